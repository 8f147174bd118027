-- AlterTable
ALTER TABLE "LedgerRange" ADD COLUMN     "dropped" BIGINT NOT NULL DEFAULT 0;
