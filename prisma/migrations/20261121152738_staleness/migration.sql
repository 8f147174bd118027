-- AlterTable
ALTER TABLE "Metric" ADD COLUMN     "staleness" DOUBLE PRECISION,
ADD COLUMN     "stalenessCounts" INTEGER[] DEFAULT ARRAY[]::INTEGER[];
