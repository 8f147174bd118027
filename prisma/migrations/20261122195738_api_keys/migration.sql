-- AlterTable
ALTER TABLE "ApiKey" ADD COLUMN     "expiresAt" TIMESTAMPTZ(3),
ADD COLUMN     "isReadOnly" BOOLEAN NOT NULL DEFAULT false;

-- CreateIndex
CREATE UNIQUE INDEX "ApiKey_hash_key" ON "ApiKey"("hash");

-- The prefix of a key that an administrator chose was a part of its hash: a random one takes its place.
UPDATE "ApiKey" SET "prefix" = 'x' || substr(replace(gen_random_uuid()::text, '-', ''), 1, 11) WHERE "prefix" LIKE 'x%';
