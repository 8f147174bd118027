-- AlterTable
ALTER TABLE "Run" ADD COLUMN     "bestRound" BIGINT NOT NULL DEFAULT 0,
ADD COLUMN     "nextAttemptAt" TIMESTAMPTZ(3),
ADD COLUMN     "pauseRequestedAt" TIMESTAMPTZ(3),
ADD COLUMN     "restartsTotal" INTEGER NOT NULL DEFAULT 0,
ADD COLUMN     "restartsUsed" INTEGER NOT NULL DEFAULT 0,
ADD COLUMN     "workersWanted" INTEGER;

-- AlterTable
ALTER TABLE "Attempt" ADD COLUMN     "endCause" TEXT,
ADD COLUMN     "endReason" TEXT,
ADD COLUMN     "endRound" BIGINT,
ADD COLUMN     "parentRunId" UUID;

-- AlterTable
ALTER TABLE "RunServer" ADD COLUMN     "storage" TEXT;

-- CreateTable
CREATE TABLE "Checkpoint" (
    "runId" UUID NOT NULL,
    "attempt" INTEGER NOT NULL,
    "round" INTEGER NOT NULL,
    "bytes" BIGINT NOT NULL,
    "sha256" TEXT NOT NULL,
    "loss" DOUBLE PRECISION,
    "reason" TEXT NOT NULL,
    "createdAt" TIMESTAMPTZ(3) NOT NULL,
    "invalidAt" TIMESTAMPTZ(3),
    "removedAt" TIMESTAMPTZ(3),

    CONSTRAINT "Checkpoint_pkey" PRIMARY KEY ("runId","attempt","round")
);

-- AddForeignKey
ALTER TABLE "Checkpoint" ADD CONSTRAINT "Checkpoint_runId_fkey" FOREIGN KEY ("runId") REFERENCES "Run"("id") ON DELETE RESTRICT ON UPDATE CASCADE;
