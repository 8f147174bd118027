-- CreateEnum
CREATE TYPE "DatasetImportState" AS ENUM ('PENDING', 'IMPORTING', 'READY', 'FAILED');

-- AlterTable
ALTER TABLE "Team" ADD COLUMN     "maxDatasetBytes" BIGINT;

-- Built-in datasets follow the release: the api writes their rows again at its start.
DELETE FROM "Dataset";

-- AlterTable
ALTER TABLE "Dataset" DROP COLUMN "classes",
DROP COLUMN "inputShape",
ADD COLUMN     "format" JSONB NOT NULL;

-- AlterTable
ALTER TABLE "Run" ADD COLUMN     "datasetVersionId" UUID;

-- AlterTable
ALTER TABLE "Worker" ADD COLUMN     "dataStore" TEXT;

-- CreateTable
CREATE TABLE "TeamDataset" (
    "id" UUID NOT NULL,
    "teamId" UUID NOT NULL,
    "name" TEXT NOT NULL,
    "createdAt" TIMESTAMPTZ(3) NOT NULL DEFAULT CURRENT_TIMESTAMP,

    CONSTRAINT "TeamDataset_pkey" PRIMARY KEY ("id")
);

-- CreateTable
CREATE TABLE "DatasetVersion" (
    "id" UUID NOT NULL,
    "datasetId" UUID NOT NULL,
    "version" TEXT NOT NULL,
    "manifest" JSON NOT NULL,
    "rows" BIGINT NOT NULL,
    "bytes" BIGINT NOT NULL,
    "columns" INTEGER NOT NULL,
    "source" TEXT NOT NULL,
    "createdAt" TIMESTAMPTZ(3) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    "committedAt" TIMESTAMPTZ(3) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    "createdBy" UUID NOT NULL,

    CONSTRAINT "DatasetVersion_pkey" PRIMARY KEY ("id")
);

-- CreateTable
CREATE TABLE "DatasetShard" (
    "teamId" UUID NOT NULL,
    "sha256" TEXT NOT NULL,
    "bytes" BIGINT NOT NULL,
    "isComplete" BOOLEAN NOT NULL DEFAULT false,
    "touchedAt" TIMESTAMPTZ(3) NOT NULL DEFAULT CURRENT_TIMESTAMP,

    CONSTRAINT "DatasetShard_pkey" PRIMARY KEY ("teamId","sha256")
);

-- CreateTable
CREATE TABLE "DatasetVersionShard" (
    "versionId" UUID NOT NULL,
    "teamId" UUID NOT NULL,
    "sha256" TEXT NOT NULL,

    CONSTRAINT "DatasetVersionShard_pkey" PRIMARY KEY ("versionId","sha256")
);

-- CreateTable
CREATE TABLE "DatasetUpload" (
    "id" UUID NOT NULL,
    "teamId" UUID NOT NULL,
    "fileName" TEXT NOT NULL,
    "bytes" BIGINT NOT NULL,
    "sha256" TEXT,
    "isComplete" BOOLEAN NOT NULL DEFAULT false,
    "touchedAt" TIMESTAMPTZ(3) NOT NULL DEFAULT CURRENT_TIMESTAMP,

    CONSTRAINT "DatasetUpload_pkey" PRIMARY KEY ("id")
);

-- CreateTable
CREATE TABLE "DatasetImport" (
    "id" UUID NOT NULL,
    "teamId" UUID NOT NULL,
    "name" TEXT NOT NULL,
    "request" JSONB NOT NULL,
    "state" "DatasetImportState" NOT NULL DEFAULT 'PENDING',
    "reason" TEXT,
    "rows" BIGINT NOT NULL DEFAULT 0,
    "bytes" BIGINT NOT NULL DEFAULT 0,
    "totalBytes" BIGINT,
    "version" TEXT,
    "createdBy" UUID NOT NULL,
    "createdAt" TIMESTAMPTZ(3) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    "startedAt" TIMESTAMPTZ(3),
    "beatAt" TIMESTAMPTZ(3),
    "attempts" INTEGER NOT NULL DEFAULT 0,
    "finishedAt" TIMESTAMPTZ(3),

    CONSTRAINT "DatasetImport_pkey" PRIMARY KEY ("id")
);

-- CreateIndex
CREATE UNIQUE INDEX "TeamDataset_teamId_name_key" ON "TeamDataset"("teamId", "name");

-- CreateIndex
CREATE INDEX "DatasetVersion_datasetId_committedAt_idx" ON "DatasetVersion"("datasetId", "committedAt");

-- CreateIndex
CREATE INDEX "DatasetVersion_version_idx" ON "DatasetVersion"("version");

-- CreateIndex
CREATE UNIQUE INDEX "DatasetVersion_datasetId_version_key" ON "DatasetVersion"("datasetId", "version");

-- CreateIndex
CREATE INDEX "DatasetShard_touchedAt_idx" ON "DatasetShard"("touchedAt");

-- CreateIndex
CREATE INDEX "DatasetVersionShard_teamId_sha256_idx" ON "DatasetVersionShard"("teamId", "sha256");

-- CreateIndex
CREATE INDEX "DatasetUpload_teamId_idx" ON "DatasetUpload"("teamId");

-- CreateIndex
CREATE INDEX "DatasetUpload_touchedAt_idx" ON "DatasetUpload"("touchedAt");

-- CreateIndex
CREATE INDEX "DatasetImport_teamId_createdAt_idx" ON "DatasetImport"("teamId", "createdAt");

-- CreateIndex
CREATE INDEX "DatasetImport_state_createdAt_idx" ON "DatasetImport"("state", "createdAt");

-- CreateIndex
CREATE INDEX "Run_datasetVersionId_idx" ON "Run"("datasetVersionId");

-- AddForeignKey
ALTER TABLE "TeamDataset" ADD CONSTRAINT "TeamDataset_teamId_fkey" FOREIGN KEY ("teamId") REFERENCES "Team"("id") ON DELETE RESTRICT ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "DatasetVersion" ADD CONSTRAINT "DatasetVersion_datasetId_fkey" FOREIGN KEY ("datasetId") REFERENCES "TeamDataset"("id") ON DELETE CASCADE ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "DatasetShard" ADD CONSTRAINT "DatasetShard_teamId_fkey" FOREIGN KEY ("teamId") REFERENCES "Team"("id") ON DELETE RESTRICT ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "DatasetVersionShard" ADD CONSTRAINT "DatasetVersionShard_versionId_fkey" FOREIGN KEY ("versionId") REFERENCES "DatasetVersion"("id") ON DELETE CASCADE ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "DatasetVersionShard" ADD CONSTRAINT "DatasetVersionShard_teamId_sha256_fkey" FOREIGN KEY ("teamId", "sha256") REFERENCES "DatasetShard"("teamId", "sha256") ON DELETE RESTRICT ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "DatasetUpload" ADD CONSTRAINT "DatasetUpload_teamId_fkey" FOREIGN KEY ("teamId") REFERENCES "Team"("id") ON DELETE RESTRICT ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "DatasetImport" ADD CONSTRAINT "DatasetImport_teamId_fkey" FOREIGN KEY ("teamId") REFERENCES "Team"("id") ON DELETE RESTRICT ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "Run" ADD CONSTRAINT "Run_datasetVersionId_fkey" FOREIGN KEY ("datasetVersionId") REFERENCES "DatasetVersion"("id") ON DELETE RESTRICT ON UPDATE CASCADE;
