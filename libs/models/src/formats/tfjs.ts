/**
 * The form of TensorFlow.js: model.json with topology and weights manifest, and the weights in files of 4 MiB, as tensorflowjs_converter cuts them.
 * `tf.loadLayersModel` of an unchanged @tensorflow/tfjs reads it in a page and in Node.
 */
import type { ExportFile } from '../archive.js';
import { jsonOf, textOf } from '../byte-stream.js';
import type { ExportParts } from '../export-parts.js';
import { PREDICT_SCRIPT } from '../predict-script.js';
import { stockTopology, stockWeightNames } from '../stock-topology.js';

export const SHARD_BYTES = 4 << 20;

export function tfjsFiles({ name, plan, variables, weights, metadata, outputs }: ExportParts): Iterable<ExportFile> {
  const topology = stockTopology(plan, name.replaceAll(/[^\w.-]+/g, '_') || 'model');
  const nameOf = stockWeightNames(plan);
  const bytes = variables.reduce((sum, { length }) => sum + length * 4, 0);
  const shards = Math.max(1, Math.ceil(bytes / SHARD_BYTES));
  const paths = Array.from({ length: shards }, (_, i) => `group1-shard${i + 1}of${shards}.bin`);
  const manifest = [{ paths, weights: variables.map(({ path, shape }) => ({ name: nameOf(path), shape, dtype: 'float32' })) }];
  const model = {
    format: 'layers-model',
    generatedBy: 'Paceline',
    convertedBy: null,
    modelTopology: topology,
    weightsManifest: manifest,
    userDefinedMetadata: { paceline: Object.assign({ outputs }, metadata) },
  };
  return [
    { path: 'model.json', body: jsonOf(model) },
    { path: 'predict.mjs', body: textOf(PREDICT_SCRIPT) },
    ...paths.map((path, i) => ({ path, body: weights.take(Math.min(SHARD_BYTES, bytes - i * SHARD_BYTES)) })),
  ];
}
