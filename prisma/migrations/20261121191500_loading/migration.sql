-- AlterTable
ALTER TABLE "RunServer" ADD COLUMN     "isLoading" BOOLEAN NOT NULL DEFAULT false;
