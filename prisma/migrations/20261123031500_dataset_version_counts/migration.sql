-- AlterTable
ALTER TABLE "DatasetVersion" ADD COLUMN     "evalRows" BIGINT,
ADD COLUMN     "manifestBytes" BIGINT,
ADD COLUMN     "trainRows" BIGINT;

-- Versions that are there: what lists have read out of the manifest so far. A manifest lies in the store as it was sent, near to the size of its text.
UPDATE "DatasetVersion" SET
  "trainRows" = ("manifest" #>> '{splits,train,rows}')::bigint,
  "evalRows" = coalesce(
    nullif(("manifest" #>> '{splits,test,rows}')::bigint, 0),
    nullif(("manifest" #>> '{splits,validation,rows}')::bigint, 0),
    ("manifest" #>> '{splits,train,rows}')::bigint
  ),
  "manifestBytes" = octet_length("manifest"::text);

ALTER TABLE "DatasetVersion" ALTER COLUMN "evalRows" SET NOT NULL,
ALTER COLUMN "manifestBytes" SET NOT NULL,
ALTER COLUMN "trainRows" SET NOT NULL;
