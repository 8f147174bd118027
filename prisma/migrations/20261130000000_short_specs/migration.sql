-- The small parts of a spec, for whoever reads many runs at once: "model" is its zoo name or how many layers its topology has.
-- Escapes of U+0000 and of halves of characters, which jsonb refuses, are left out. What is called here depends on nothing but its input.
-- All of "Run" is written anew under its lock: apis are stopped meanwhile, as with every new version before 1.0.0.
CREATE FUNCTION "shortSpecOf"("spec" json) RETURNS jsonb LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT coalesce(jsonb_object_agg(part.key, CASE WHEN part.key <> 'model' OR jsonb_typeof(part.value) = 'string' THEN part.value
           WHEN jsonb_typeof(part.value #> '{topology,config,layers}') = 'array'
             THEN to_jsonb(jsonb_array_length(part.value #> '{topology,config,layers}') || ' layers')
           ELSE to_jsonb('topology'::text) END), '{}')
    FROM jsonb_each((CASE WHEN strpos("spec"::text, '\u') = 0 THEN "spec"::text
           ELSE regexp_replace("spec"::text, '(\\\\)|\\u(?:0000|[dD][89a-fA-F][0-9a-fA-F]{2})', '\1', 'g') END)::jsonb) AS part
   WHERE part.key IN ('model', 'dataset', 'loss', 'metrics', 'optimizer', 'gradient', 'validation', 'earlyStopping', 'reduceLROnPlateau',
                      'globalBatch', 'replicas', 'dropRemainder', 'strategy', 'codec', 'length', 'engine', 'checkpoint', 'restarts')
$$;

ALTER TABLE "Run"
  ADD COLUMN "shortSpec" jsonb NOT NULL GENERATED ALWAYS AS ("shortSpecOf"("spec")) STORED,
  ADD COLUMN "specBytes" integer NOT NULL GENERATED ALWAYS AS (octet_length("spec"::text)) STORED,
  ADD COLUMN "jobBytes" integer NOT NULL GENERATED ALWAYS AS (octet_length("spec"::text) + octet_length("model"::text) + octet_length("data"::text)) STORED;
