-- AlterTable
ALTER TABLE "Server" ADD COLUMN     "memoryBytes" BIGINT;

-- AlterTable
ALTER TABLE "Worker" ADD COLUMN     "memoryBytes" BIGINT;
