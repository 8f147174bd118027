-- AlterTable: the term of the coordinator had the name of the attempt's fence
ALTER TABLE "Attempt" RENAME COLUMN "fence" TO "coordinatorTerm";

-- AlterTable
ALTER TABLE "Run" ADD COLUMN     "isWaiting" BOOLEAN NOT NULL DEFAULT false;

-- Reasons that were written before the column was there
UPDATE "Run" SET "isWaiting" = true WHERE "status" = 'RUNNING' AND "statusReason" LIKE 'waits for %';
