-- AlterTable
ALTER TABLE "Run" ADD COLUMN     "data" JSON;

-- Runs that are there are all on MNIST.
UPDATE "Run" SET
  "data" = '{"source":{"kind":"built-in","name":"mnist"},"format":{"inputs":[{"name":"image","shape":[28,28,1]}],"targets":[{"name":"label","kind":"classes","shape":[],"classes":10}],"isWeighted":false},"trainExamples":60000,"evalExamples":10000,"evaluateOn":"test"}',
  "model" = (
    ("model"::jsonb - 'inputShape' - 'outputShape') || jsonb_build_object(
      'inputs', jsonb_build_array(jsonb_build_object('name', 'input', 'shape', "model"::jsonb -> 'inputShape')),
      'outputs', jsonb_build_array(jsonb_build_object('name', 'output', 'shape', "model"::jsonb -> 'outputShape'))
    )
  )::json
WHERE "data" IS NULL;

ALTER TABLE "Run" ALTER COLUMN "data" SET NOT NULL;

-- AlterTable
ALTER TABLE "Metric" ADD COLUMN     "meanAbsoluteError" DOUBLE PRECISION,
ADD COLUMN     "meanSquaredError" DOUBLE PRECISION;
