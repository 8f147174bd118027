-- AlterTable
ALTER TABLE "Team" ADD COLUMN     "maxActiveRuns" INTEGER,
ADD COLUMN     "maxParameters" BIGINT,
ADD COLUMN     "maxServerPlaces" INTEGER,
ADD COLUMN     "maxWorkers" INTEGER;
