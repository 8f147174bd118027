-- CreateEnum
CREATE TYPE "ServerRole" AS ENUM ('primary', 'standby');

-- AlterTable
ALTER TABLE "Attempt" ADD COLUMN     "fence" INTEGER NOT NULL DEFAULT 1;

-- AlterTable
ALTER TABLE "RunServer" DROP CONSTRAINT "RunServer_pkey",
ADD COLUMN     "droppedAt" TIMESTAMPTZ(3),
ADD COLUMN     "role" "ServerRole" NOT NULL DEFAULT 'primary',
ADD COLUMN     "term" INTEGER NOT NULL DEFAULT 1,
ADD CONSTRAINT "RunServer_pkey" PRIMARY KEY ("runId", "attempt", "index", "role");
