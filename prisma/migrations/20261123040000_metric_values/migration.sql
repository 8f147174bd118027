-- AlterTable
ALTER TABLE "Checkpoint" ADD COLUMN     "isBest" BOOLEAN NOT NULL DEFAULT false;

-- AlterTable
ALTER TABLE "Metric" ADD COLUMN     "validation" JSONB,
ADD COLUMN     "values" JSONB NOT NULL DEFAULT '{}';

-- Loss and accuracy are there always, null where they are not known. Errors are there where they were measured.
UPDATE "Metric" SET "values" =
  jsonb_build_object('loss', "loss", 'accuracy', "accuracy")
  || jsonb_strip_nulls(jsonb_build_object('meanAbsoluteError', "meanAbsoluteError", 'meanSquaredError', "meanSquaredError"));

UPDATE "Run" SET "result" = ("result" - 'loss' - 'accuracy' - 'meanAbsoluteError' - 'meanSquaredError') || jsonb_build_object(
  'values', jsonb_build_object('loss', "result"->'loss', 'accuracy', "result"->'accuracy')
  || jsonb_strip_nulls(jsonb_build_object('meanAbsoluteError', "result"->'meanAbsoluteError', 'meanSquaredError', "result"->'meanSquaredError')))
WHERE jsonb_typeof("result") = 'object';

UPDATE "Run" SET "coordinator" = jsonb_set("coordinator", '{latest}', jsonb_build_object(
  'epoch', "coordinator"->'latest'->'epoch', 'examplesPerSecond', "coordinator"->'latest'->'examplesPerSecond', 'validation', 'null'::jsonb,
  'values', jsonb_build_object('loss', "coordinator"->'latest'->'loss', 'accuracy', "coordinator"->'latest'->'accuracy')))
WHERE jsonb_typeof("coordinator"->'latest') = 'object';

-- AlterTable
ALTER TABLE "Metric" DROP COLUMN "accuracy",
DROP COLUMN "loss",
DROP COLUMN "meanAbsoluteError",
DROP COLUMN "meanSquaredError";
