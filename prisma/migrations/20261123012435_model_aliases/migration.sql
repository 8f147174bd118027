-- CreateTable
CREATE TABLE "ModelAlias" (
    "teamId" UUID NOT NULL,
    "name" TEXT NOT NULL,
    "runId" UUID NOT NULL,
    "round" INTEGER,
    "updatedAt" TIMESTAMPTZ(3) NOT NULL DEFAULT CURRENT_TIMESTAMP,

    CONSTRAINT "ModelAlias_pkey" PRIMARY KEY ("teamId","name")
);

-- CreateIndex
CREATE INDEX "ModelAlias_runId_idx" ON "ModelAlias"("runId");

-- AddForeignKey
ALTER TABLE "ModelAlias" ADD CONSTRAINT "ModelAlias_teamId_fkey" FOREIGN KEY ("teamId") REFERENCES "Team"("id") ON DELETE CASCADE ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "ModelAlias" ADD CONSTRAINT "ModelAlias_runId_fkey" FOREIGN KEY ("runId") REFERENCES "Run"("id") ON DELETE CASCADE ON UPDATE CASCADE;
