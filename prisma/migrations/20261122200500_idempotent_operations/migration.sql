-- What a key has made may be of any kind: the row names the operation, and points at nothing.
ALTER TABLE "IdempotencyKey" DROP CONSTRAINT "IdempotencyKey_runId_fkey";
ALTER TABLE "IdempotencyKey" RENAME COLUMN "runId" TO "resultId";
ALTER TABLE "IdempotencyKey" ADD COLUMN     "operation" TEXT NOT NULL DEFAULT 'createRun';
ALTER TABLE "IdempotencyKey" ALTER COLUMN "operation" DROP DEFAULT;

-- CreateIndex
CREATE INDEX "IdempotencyKey_createdAt_idx" ON "IdempotencyKey"("createdAt");
