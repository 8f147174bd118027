/**
 * Whether a shard holds what its manifest says: the tensors of every column and no other, with the right element type and shape; offsets that
 * begin with 0, never fall and end with the last element; codes that are in the vocabulary. Readers rely on it, so a shard that a person's
 * machine has written is checked before any other process opens it. Runs in manifest-process.ts.
 */
import { parseSafetensorsHeader, safetensorsHeaderBytes, type TensorRange } from '@paceline/storage';
import type { Column } from '@paceline/spec';

/** Bytes [from, to) of the shard. */
export type ReadRange = (from: number, to: number) => Promise<Uint8Array>;

/** What is wrong, in words that go on from "the shard …". */
export class ShardFault extends Error {
  override readonly name = 'ShardFault';
}

const PIECE_BYTES = 4 << 20;
const OFFSETS = ':offsets';

interface Expected {
  readonly dtype: string;
  /** null: any length. */
  readonly shape: readonly (number | null)[];
}

/** @throws ShardFault; StorageError SAFETENSORS_INVALID */
export async function checkShard(columns: readonly Column[], rows: number, bytes: number, read: ReadRange): Promise<void> {
  const headerBytes = safetensorsHeaderBytes(await read(0, 8), bytes);
  const tensors = parseSafetensorsHeader(await read(8, 8 + headerBytes), bytes, { maxTensors: 2 * columns.length });
  const expected = new Map(columns.flatMap((column) => expectedOf(column, rows)));
  for (const name of tensors.keys()) if (!expected.has(name)) throw new ShardFault(`holds ${JSON.stringify(name)}, which is no column`);
  for (const [name, { dtype, shape }] of expected) {
    const found = tensors.get(name);
    if (!found) throw new ShardFault(`lacks ${JSON.stringify(name)}`);
    const isRight =
      found.dtype === dtype &&
      found.shape.length === shape.length &&
      shape.every((n, i) => (n === null ? found.shape[i]! >= 0 : n === found.shape[i]));
    if (!isRight) {
      const wanted = shape.map((n) => n ?? 'any').join(', ');
      throw new ShardFault(
        `has ${JSON.stringify(name)} as ${found.dtype} [${found.shape.join(', ')}]; by the manifest it is ${dtype} [${wanted}]`,
      );
    }
  }
  for (const column of columns) {
    const tensor = tensors.get(column.name)!;
    const offsets = tensors.get(column.name + OFFSETS);
    if (offsets) await checkOffsets(column.name, offsets, tensor.shape[0]!, read);
    if (column.kind === 'category') await checkCodes(column.name, tensor, column.vocabulary.length, read);
  }
}

function expectedOf(column: Column, rows: number): [string, Expected][] {
  const { name } = column;
  const offsets: [string, Expected] = [name + OFFSETS, { dtype: 'I64', shape: [rows + 1] }];
  switch (column.kind) {
    case 'number':
      return [[name, { dtype: 'F32', shape: [rows] }]];
    case 'category':
      return [[name, { dtype: 'I32', shape: [rows] }]];
    case 'array':
      return [[name, { dtype: column.dtype, shape: [rows, ...column.shape] }]];
    case 'sequence':
      return [[name, { dtype: column.dtype, shape: [null, ...column.shape] }], offsets];
    case 'text':
    case 'image':
      return [[name, { dtype: 'U8', shape: [null] }], offsets];
  }
}

async function checkOffsets(name: string, range: TensorRange, elements: number, read: ReadRange): Promise<void> {
  const what = `${JSON.stringify(name + OFFSETS)}`;
  let last = -1n;
  for await (const view of pieces(range, read)) {
    for (let at = 0; at < view.byteLength; at += 8) {
      const value = view.getBigInt64(at, true);
      if (last === -1n && value !== 0n) throw new ShardFault(`has ${what} that do not begin with 0`);
      if (value < last) throw new ShardFault(`has ${what} that fall`);
      last = value;
    }
  }
  if (last !== BigInt(elements)) throw new ShardFault(`has ${what} that end with ${last}, and ${elements} elements`);
}

async function checkCodes(name: string, range: TensorRange, entries: number, read: ReadRange): Promise<void> {
  for await (const view of pieces(range, read)) {
    for (let at = 0; at < view.byteLength; at += 4) {
      const code = view.getInt32(at, true);
      if (code < -1 || code >= entries)
        throw new ShardFault(`has the code ${code} in ${JSON.stringify(name)}, whose vocabulary has ${entries} entries`);
    }
  }
}

async function* pieces({ from, to }: TensorRange, read: ReadRange): AsyncGenerator<DataView, void, void> {
  for (let at = from; at < to; at += PIECE_BYTES) {
    const end = Math.min(to, at + PIECE_BYTES);
    const bytes = await read(at, end);
    if (bytes.length !== end - at) throw new ShardFault('is shorter than its size says');
    yield new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }
}
