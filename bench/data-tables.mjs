/** Small prepared datasets for bench data: tensors to shards, and the manifest that names them. */
import { createHash } from 'node:crypto';
import { datasetShardKey } from '@paceline/spec';

export const TEAM = '11111111-1111-4111-8111-111111111111';

/** @typedef {{ name: string, dtype: string, shape: number[], bytes: Uint8Array }} Tensor */

/** @param {readonly Tensor[]} tensors */
function shardFile(tensors) {
  /** @type {Record<string, unknown>} */
  const header = {};
  let at = 0;
  for (const { name, dtype, shape, bytes } of tensors) {
    header[name] = { dtype, shape, data_offsets: [at, at + bytes.length] };
    at += bytes.length;
  }
  const json = Buffer.from(JSON.stringify(header));
  const start = Buffer.alloc(8);
  start.writeBigUInt64LE(BigInt(json.length));
  return Buffer.concat([start, json, ...tensors.map(({ bytes }) => bytes)]);
}

/**
 * @param {import('@paceline/storage').ObjectStore} store
 * @param {import('@paceline/spec').Column[]} columns
 * @param {readonly { rows: number, tensors: readonly Tensor[] }[]} parts
 * @param {string} label
 * @returns {Promise<import('@paceline/spec').DatasetManifest>}
 */
export async function prepared(store, columns, parts, label) {
  const shards = [];
  for (const { rows, tensors } of parts) {
    const file = shardFile(tensors);
    const sha256 = createHash('sha256').update(file).digest('hex');
    await store.put(datasetShardKey(TEAM, sha256), [file]);
    shards.push({ sha256, rows, bytes: file.length });
  }
  const rows = parts.reduce((sum, part) => sum + part.rows, 0);
  return {
    format: 'paceline.dataset',
    version: 1,
    columns,
    label,
    splits: { train: { rows, shards } },
    dropped: { missing: 0 },
    isOrdered: false,
  };
}

/** @param {ArrayBufferView} view */
export const bytesOf = (view) => new Uint8Array(view.buffer, view.byteOffset, view.byteLength);

/** @param {number} rows */
export const statistics = (rows) => ({ count: rows, missing: 0, mean: 0.5, deviation: 0.3, minimum: 0, maximum: 1 });

/**
 * @param {number} length
 * @param {number} seed
 */
export function floats(length, seed) {
  let state = seed;
  return Float32Array.from({ length }, () => (state = (state * 16807) % 2147483647) / 2147483647);
}
