-- AlterTable
ALTER TABLE "Worker" ADD COLUMN     "holdsShards" BOOLEAN NOT NULL DEFAULT true;
