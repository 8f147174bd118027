-- AlterTable
ALTER TABLE "Worker" ADD COLUMN     "devices" JSONB NOT NULL DEFAULT '[]',
ADD COLUMN     "engines" JSONB NOT NULL DEFAULT '[]';
