/** A prepared dataset in memory, as an importer makes it: shards by hash, and the manifest that names them. */
import { createHash } from 'node:crypto';
import type { DatasetManifest, DatasetShard } from '@paceline/spec';
import type { Caller } from './services.js';

export interface Tensor {
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly data: ArrayBufferView;
}

/** A safetensors file. */
export function safetensors(tensors: Readonly<Record<string, Tensor>>): Buffer {
  let offset = 0;
  const header: Record<string, unknown> = {};
  const parts = Object.entries(tensors).map(([name, { dtype, shape, data }]) => {
    header[name] = { dtype, shape, data_offsets: [offset, (offset += data.byteLength)] };
    return Buffer.from(data.buffer, data.byteOffset, data.byteLength);
  });
  const json = JSON.stringify(header);
  const text = Buffer.from(json.padEnd(Math.ceil(json.length / 8) * 8));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  return Buffer.concat([length, text, ...parts]);
}

export const sha256 = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');

export interface Prepared {
  readonly manifest: DatasetManifest;
  readonly shards: ReadonlyMap<string, Buffer>;
}

/** Columns size (number), colour (category, the label) and note (text). @param salt makes other bytes of it */
export function flowers(rows = 6, salt = 0): Prepared {
  const shards = new Map<string, Buffer>();
  const vocabulary = ['red', 'blue', 'white'];
  const shardOf = (count: number, from: number): DatasetShard => {
    const notes = Array.from({ length: count }, (_, i) => `note ${from + i}`);
    const ends = notes.reduce((all, note) => [...all, all.at(-1)! + note.length], [0]);
    const bytes = safetensors({
      size: { dtype: 'F32', shape: [count], data: Float32Array.from({ length: count }, (_, i) => from + i + salt) },
      colour: { dtype: 'I32', shape: [count], data: Int32Array.from({ length: count }, (_, i) => (from + i) % 3) },
      note: { dtype: 'U8', shape: [ends.at(-1)!], data: Buffer.from(notes.join('')) },
      'note:offsets': { dtype: 'I64', shape: [count + 1], data: BigInt64Array.from(ends, BigInt) },
    });
    const hash = sha256(bytes);
    shards.set(hash, bytes);
    return { sha256: hash, rows: count, bytes: bytes.length };
  };
  const first = Math.ceil(rows / 2);
  const train = [shardOf(first, 0), shardOf(rows - first, first)];
  const test = [shardOf(3, rows)];
  const counts = [0, 1, 2].map((code) => Array.from({ length: rows }, (_, i) => i % 3).filter((c) => c === code).length);
  const mean = (rows - 1) / 2 + salt;
  const manifest: DatasetManifest = {
    format: 'paceline.dataset',
    version: 1,
    columns: [
      {
        name: 'size',
        kind: 'number',
        statistics: {
          count: rows,
          missing: 0,
          mean,
          deviation: Math.sqrt((rows * rows - 1) / 12),
          minimum: salt,
          maximum: rows - 1 + salt,
        },
      },
      { name: 'colour', kind: 'category', vocabulary, statistics: { count: rows, missing: 0, counts } },
      { name: 'note', kind: 'text', lengths: { count: rows, missing: 0, minimum: 6, maximum: 6, mean: 6 } },
    ],
    label: 'colour',
    splits: { train: { rows, shards: train }, test: { rows: 3, shards: test } },
    dropped: { missing: 0 },
    isOrdered: false,
  };
  return { manifest, shards };
}

const asBytes = (caller: Caller, path: string, bytes: Uint8Array) =>
  caller.put(path).set('content-type', 'application/octet-stream').send(Buffer.from(bytes));

export const putShard = (caller: Caller, hash: string, bytes: Uint8Array) => asBytes(caller, `/api/v1/datasets/shards/${hash}`, bytes);

export const commit = (caller: Caller, name: string, manifest: unknown) =>
  caller.post(`/api/v1/datasets/${name}/versions?source=test`).set('content-type', 'application/json').send(JSON.stringify(manifest));

/** Uploads and commits. @returns the version */
export async function upload(caller: Caller, name: string, prepared: Prepared): Promise<string> {
  for (const [hash, bytes] of prepared.shards) {
    const { status, text } = await putShard(caller, hash, bytes);
    if (status >= 300) throw new Error(`a shard was refused: ${text}`);
  }
  const { status, body } = await commit(caller, name, prepared.manifest);
  if (status >= 300) throw new Error(`the manifest was refused: ${JSON.stringify(body)}`);
  return (body as { version: string }).version;
}
