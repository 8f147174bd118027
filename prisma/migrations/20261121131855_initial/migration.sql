-- CreateSchema
CREATE SCHEMA IF NOT EXISTS "public";

-- CreateEnum
CREATE TYPE "RunStatus" AS ENUM ('PENDING', 'QUEUED', 'PROVISIONING', 'RUNNING', 'PAUSING', 'PAUSED', 'RECOVERING', 'SUCCEEDED', 'FAILED', 'CANCELLED');

-- CreateEnum
CREATE TYPE "StepTaskState" AS ENUM ('OPEN', 'HELD', 'CLOSED');

-- CreateTable
CREATE TABLE "Team" (
    "id" UUID NOT NULL,
    "name" TEXT NOT NULL,
    "createdAt" TIMESTAMPTZ(3) NOT NULL DEFAULT CURRENT_TIMESTAMP,

    CONSTRAINT "Team_pkey" PRIMARY KEY ("id")
);

-- CreateTable
CREATE TABLE "ApiKey" (
    "id" UUID NOT NULL,
    "teamId" UUID NOT NULL,
    "name" TEXT NOT NULL,
    "prefix" TEXT NOT NULL,
    "hash" BYTEA NOT NULL,
    "isAdmin" BOOLEAN NOT NULL DEFAULT false,
    "createdAt" TIMESTAMPTZ(3) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    "lastUsedAt" TIMESTAMPTZ(3),
    "revokedAt" TIMESTAMPTZ(3),

    CONSTRAINT "ApiKey_pkey" PRIMARY KEY ("id")
);

-- CreateTable
CREATE TABLE "ClusterSpec" (
    "id" UUID NOT NULL,
    "teamId" UUID NOT NULL,
    "name" TEXT NOT NULL,
    "servers" TEXT[],
    "workers" TEXT[],
    "createdAt" TIMESTAMPTZ(3) NOT NULL DEFAULT CURRENT_TIMESTAMP,

    CONSTRAINT "ClusterSpec_pkey" PRIMARY KEY ("id")
);

-- CreateTable
CREATE TABLE "Dataset" (
    "name" TEXT NOT NULL,
    "title" TEXT NOT NULL,
    "trainExamples" INTEGER NOT NULL,
    "evalExamples" INTEGER NOT NULL,
    "inputShape" INTEGER[],
    "classes" INTEGER NOT NULL,
    "license" TEXT NOT NULL,
    "source" TEXT NOT NULL,

    CONSTRAINT "Dataset_pkey" PRIMARY KEY ("name")
);

-- CreateTable
CREATE TABLE "Run" (
    "id" UUID NOT NULL,
    "teamId" UUID NOT NULL,
    "clusterSpecId" UUID,
    "name" TEXT NOT NULL,
    "status" "RunStatus" NOT NULL,
    "statusReason" TEXT,
    "statusChangedAt" TIMESTAMPTZ(3) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    "spec" JSON NOT NULL,
    "model" JSON NOT NULL,
    "serverCount" INTEGER NOT NULL,
    "trainExamples" INTEGER NOT NULL,
    "evalExamples" INTEGER NOT NULL,
    "parameterCount" BIGINT NOT NULL,
    "totalRounds" BIGINT NOT NULL,
    "roundsPerEpoch" BIGINT NOT NULL,
    "attempt" INTEGER NOT NULL DEFAULT 1,
    "lastEventSeq" INTEGER NOT NULL DEFAULT 0,
    "lastMetricSeq" INTEGER NOT NULL DEFAULT 0,
    "coordinator" JSONB,
    "coordinatorAt" TIMESTAMPTZ(3),
    "cancelRequestedAt" TIMESTAMPTZ(3),
    "result" JSONB,
    "createdAt" TIMESTAMPTZ(3) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    "startedAt" TIMESTAMPTZ(3),
    "finishedAt" TIMESTAMPTZ(3),

    CONSTRAINT "Run_pkey" PRIMARY KEY ("id")
);

-- CreateTable
CREATE TABLE "Attempt" (
    "runId" UUID NOT NULL,
    "number" INTEGER NOT NULL,
    "createdAt" TIMESTAMPTZ(3) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    "startedAt" TIMESTAMPTZ(3),
    "endedAt" TIMESTAMPTZ(3),
    "parentNumber" INTEGER,
    "parentRound" BIGINT,
    "storedN" BIGINT NOT NULL DEFAULT 0,
    "seatFailures" INTEGER NOT NULL DEFAULT 0,
    "lastFailureAt" TIMESTAMPTZ(3),

    CONSTRAINT "Attempt_pkey" PRIMARY KEY ("runId","number")
);

-- CreateTable
CREATE TABLE "RunServer" (
    "runId" UUID NOT NULL,
    "attempt" INTEGER NOT NULL,
    "index" INTEGER NOT NULL,
    "made" INTEGER NOT NULL DEFAULT 0,
    "madeAt" TIMESTAMPTZ(3) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    "serverId" TEXT,
    "host" TEXT,
    "port" INTEGER,
    "unixPath" TEXT,
    "claimedAt" TIMESTAMPTZ(3),

    CONSTRAINT "RunServer_pkey" PRIMARY KEY ("runId","attempt","index")
);

-- CreateTable
CREATE TABLE "StepTask" (
    "id" UUID NOT NULL,
    "runId" UUID NOT NULL,
    "attempt" INTEGER NOT NULL,
    "seat" INTEGER NOT NULL,
    "n" INTEGER NOT NULL,
    "state" "StepTaskState" NOT NULL DEFAULT 'OPEN',
    "heldSeats" INTEGER NOT NULL,
    "workerId" TEXT,
    "replicas" INTEGER[],
    "createdAt" TIMESTAMPTZ(3) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    "heldAt" TIMESTAMPTZ(3),
    "closedAt" TIMESTAMPTZ(3),
    "closeReason" TEXT,

    CONSTRAINT "StepTask_pkey" PRIMARY KEY ("id")
);

-- CreateTable
CREATE TABLE "Worker" (
    "id" TEXT NOT NULL,
    "host" TEXT NOT NULL,
    "pid" INTEGER NOT NULL,
    "fingerprint" TEXT,
    "version" TEXT NOT NULL,
    "protocolVersion" INTEGER NOT NULL,
    "rssBytes" BIGINT NOT NULL,
    "startedAt" TIMESTAMPTZ(3) NOT NULL,
    "lastSeenAt" TIMESTAMPTZ(3) NOT NULL,
    "leftAt" TIMESTAMPTZ(3),
    "runId" UUID,

    CONSTRAINT "Worker_pkey" PRIMARY KEY ("id")
);

-- CreateTable
CREATE TABLE "Server" (
    "id" TEXT NOT NULL,
    "host" TEXT NOT NULL,
    "pid" INTEGER NOT NULL,
    "version" TEXT NOT NULL,
    "protocolVersion" INTEGER NOT NULL,
    "rssBytes" BIGINT NOT NULL,
    "startedAt" TIMESTAMPTZ(3) NOT NULL,
    "lastSeenAt" TIMESTAMPTZ(3) NOT NULL,
    "leftAt" TIMESTAMPTZ(3),
    "runId" UUID,

    CONSTRAINT "Server_pkey" PRIMARY KEY ("id")
);

-- CreateTable
CREATE TABLE "RunEvent" (
    "runId" UUID NOT NULL,
    "seq" INTEGER NOT NULL,
    "attempt" INTEGER NOT NULL,
    "n" BIGINT,
    "type" TEXT NOT NULL,
    "message" TEXT NOT NULL,
    "data" JSONB NOT NULL,
    "at" TIMESTAMPTZ(3) NOT NULL,

    CONSTRAINT "RunEvent_pkey" PRIMARY KEY ("runId","seq")
);

-- CreateTable
CREATE TABLE "RunStatusChange" (
    "id" BIGSERIAL NOT NULL,
    "runId" UUID NOT NULL,
    "from" "RunStatus",
    "to" "RunStatus" NOT NULL,
    "reason" TEXT NOT NULL,
    "attempt" INTEGER NOT NULL,
    "at" TIMESTAMPTZ(3) NOT NULL DEFAULT CURRENT_TIMESTAMP,

    CONSTRAINT "RunStatusChange_pkey" PRIMARY KEY ("id")
);

-- CreateTable
CREATE TABLE "Metric" (
    "runId" UUID NOT NULL,
    "seq" INTEGER NOT NULL,
    "attempt" INTEGER NOT NULL,
    "n" BIGINT NOT NULL,
    "round" INTEGER NOT NULL,
    "rounds" INTEGER NOT NULL,
    "epoch" INTEGER NOT NULL,
    "loss" DOUBLE PRECISION,
    "accuracy" DOUBLE PRECISION,
    "examples" BIGINT NOT NULL,
    "examplesPerSecond" DOUBLE PRECISION NOT NULL,
    "roundMs" DOUBLE PRECISION NOT NULL,
    "at" TIMESTAMPTZ(3) NOT NULL,

    CONSTRAINT "Metric_pkey" PRIMARY KEY ("runId","seq")
);

-- CreateTable
CREATE TABLE "LedgerRange" (
    "runId" UUID NOT NULL,
    "attempt" INTEGER NOT NULL,
    "n" BIGINT NOT NULL,
    "fromRound" INTEGER NOT NULL,
    "toRound" INTEGER NOT NULL,
    "examples" BIGINT NOT NULL,

    CONSTRAINT "LedgerRange_pkey" PRIMARY KEY ("runId","attempt","n")
);

-- CreateTable
CREATE TABLE "Outbox" (
    "id" BIGSERIAL NOT NULL,
    "runId" UUID NOT NULL,
    "attempt" INTEGER NOT NULL,
    "kind" TEXT NOT NULL,
    "jobId" TEXT NOT NULL,
    "payload" JSONB NOT NULL,
    "createdAt" TIMESTAMPTZ(3) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    "sentAt" TIMESTAMPTZ(3),

    CONSTRAINT "Outbox_pkey" PRIMARY KEY ("id")
);

-- CreateTable
CREATE TABLE "IdempotencyKey" (
    "teamId" UUID NOT NULL,
    "key" TEXT NOT NULL,
    "inputHash" TEXT NOT NULL,
    "runId" UUID NOT NULL,
    "createdAt" TIMESTAMPTZ(3) NOT NULL DEFAULT CURRENT_TIMESTAMP,

    CONSTRAINT "IdempotencyKey_pkey" PRIMARY KEY ("teamId","key")
);

-- CreateIndex
CREATE UNIQUE INDEX "Team_name_key" ON "Team"("name");

-- CreateIndex
CREATE UNIQUE INDEX "ApiKey_prefix_key" ON "ApiKey"("prefix");

-- CreateIndex
CREATE INDEX "ApiKey_teamId_idx" ON "ApiKey"("teamId");

-- CreateIndex
CREATE UNIQUE INDEX "ClusterSpec_teamId_name_key" ON "ClusterSpec"("teamId", "name");

-- CreateIndex
CREATE INDEX "Run_teamId_createdAt_id_idx" ON "Run"("teamId", "createdAt" DESC, "id" DESC);

-- CreateIndex
CREATE INDEX "Run_status_createdAt_idx" ON "Run"("status", "createdAt");

-- CreateIndex
CREATE INDEX "RunServer_serverId_idx" ON "RunServer"("serverId");

-- CreateIndex
CREATE INDEX "StepTask_runId_attempt_state_idx" ON "StepTask"("runId", "attempt", "state");

-- CreateIndex
CREATE UNIQUE INDEX "StepTask_runId_attempt_seat_n_key" ON "StepTask"("runId", "attempt", "seat", "n");

-- CreateIndex
CREATE INDEX "Worker_lastSeenAt_idx" ON "Worker"("lastSeenAt");

-- CreateIndex
CREATE INDEX "Server_lastSeenAt_idx" ON "Server"("lastSeenAt");

-- CreateIndex
CREATE UNIQUE INDEX "RunEvent_runId_attempt_n_key" ON "RunEvent"("runId", "attempt", "n");

-- CreateIndex
CREATE INDEX "RunStatusChange_runId_id_idx" ON "RunStatusChange"("runId", "id");

-- CreateIndex
CREATE INDEX "Metric_runId_attempt_round_idx" ON "Metric"("runId", "attempt", "round");

-- CreateIndex
CREATE UNIQUE INDEX "Metric_runId_attempt_n_key" ON "Metric"("runId", "attempt", "n");

-- CreateIndex
CREATE UNIQUE INDEX "Outbox_jobId_key" ON "Outbox"("jobId");

-- CreateIndex
CREATE INDEX "Outbox_sentAt_id_idx" ON "Outbox"("sentAt", "id");

-- CreateIndex
CREATE INDEX "Outbox_runId_idx" ON "Outbox"("runId");

-- AddForeignKey
ALTER TABLE "ApiKey" ADD CONSTRAINT "ApiKey_teamId_fkey" FOREIGN KEY ("teamId") REFERENCES "Team"("id") ON DELETE RESTRICT ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "ClusterSpec" ADD CONSTRAINT "ClusterSpec_teamId_fkey" FOREIGN KEY ("teamId") REFERENCES "Team"("id") ON DELETE RESTRICT ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "Run" ADD CONSTRAINT "Run_teamId_fkey" FOREIGN KEY ("teamId") REFERENCES "Team"("id") ON DELETE RESTRICT ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "Run" ADD CONSTRAINT "Run_clusterSpecId_fkey" FOREIGN KEY ("clusterSpecId") REFERENCES "ClusterSpec"("id") ON DELETE SET NULL ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "Attempt" ADD CONSTRAINT "Attempt_runId_fkey" FOREIGN KEY ("runId") REFERENCES "Run"("id") ON DELETE RESTRICT ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "RunServer" ADD CONSTRAINT "RunServer_runId_fkey" FOREIGN KEY ("runId") REFERENCES "Run"("id") ON DELETE RESTRICT ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "StepTask" ADD CONSTRAINT "StepTask_runId_fkey" FOREIGN KEY ("runId") REFERENCES "Run"("id") ON DELETE RESTRICT ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "RunEvent" ADD CONSTRAINT "RunEvent_runId_fkey" FOREIGN KEY ("runId") REFERENCES "Run"("id") ON DELETE RESTRICT ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "RunStatusChange" ADD CONSTRAINT "RunStatusChange_runId_fkey" FOREIGN KEY ("runId") REFERENCES "Run"("id") ON DELETE RESTRICT ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "Metric" ADD CONSTRAINT "Metric_runId_fkey" FOREIGN KEY ("runId") REFERENCES "Run"("id") ON DELETE RESTRICT ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "LedgerRange" ADD CONSTRAINT "LedgerRange_runId_fkey" FOREIGN KEY ("runId") REFERENCES "Run"("id") ON DELETE RESTRICT ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "Outbox" ADD CONSTRAINT "Outbox_runId_fkey" FOREIGN KEY ("runId") REFERENCES "Run"("id") ON DELETE RESTRICT ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "IdempotencyKey" ADD CONSTRAINT "IdempotencyKey_teamId_fkey" FOREIGN KEY ("teamId") REFERENCES "Team"("id") ON DELETE RESTRICT ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "IdempotencyKey" ADD CONSTRAINT "IdempotencyKey_runId_fkey" FOREIGN KEY ("runId") REFERENCES "Run"("id") ON DELETE RESTRICT ON UPDATE CASCADE;
