/**
 * Where the columns of a shard lie in its file. The header was written by anybody: names, dtypes and shapes are held against the manifest, and
 * what follows from them against the size of the file.
 */
import type { Column, DatasetManifest, DatasetShard } from '@paceline/spec';
import { parseSafetensorsHeader, safetensorsHeaderBytes, StorageError, type TensorRange } from '@paceline/storage';

export interface ShardColumn {
  readonly kind: Column['kind'];
  readonly dtype: 'F32' | 'I32' | 'U8';
  /** Elements of one row of a fixed column, or of one element of a sequence. */
  readonly size: number;
  readonly from: number;
  readonly to: number;
  /** Where the [rows + 1] I64 offsets begin, for columns with pieces of any length. */
  readonly offsetsFrom: number | undefined;
}

export type ShardLayout = ReadonlyMap<string, ShardColumn>;

/** What is wrong with a shard, in a sentence. */
export class ShardInvalid extends Error {
  override readonly name = 'ShardInvalid';
}

const product = (shape: readonly number[]): number => shape.reduce((all, n) => all * n, 1);

/**
 * @param start the first bytes of the file: the header at least
 * @throws ShardInvalid
 */
export function shardLayout(manifest: DatasetManifest, shard: DatasetShard, start: Uint8Array): ShardLayout {
  const tensors = headerOf(shard, start);
  const layout = new Map<string, ShardColumn>();
  let expected = 0;
  for (const column of manifest.columns) {
    const hasOffsets = column.kind === 'sequence' || column.kind === 'text' || column.kind === 'image';
    const { dtype, size } = elementOf(column);
    const data = tensors.get(column.name);
    const inner = 'shape' in column ? column.shape : [];
    const shape = hasOffsets ? [data?.shape[0] ?? 0, ...inner] : [shard.rows, ...inner];
    checkTensor(column.name, data, dtype, shape);
    let offsetsFrom: number | undefined;
    if (hasOffsets) {
      const offsets = tensors.get(`${column.name}:offsets`);
      checkTensor(`${column.name}:offsets`, offsets, 'I64', [shard.rows + 1]);
      offsetsFrom = offsets.from;
    }
    expected += hasOffsets ? 2 : 1;
    layout.set(column.name, { kind: column.kind, dtype, size, from: data.from, to: data.to, offsetsFrom });
  }
  if (tensors.size !== expected) throw new ShardInvalid(`it has ${tensors.size} tensors, and the columns of the manifest make ${expected}`);
  return layout;
}

function headerOf(shard: DatasetShard, start: Uint8Array): Map<string, TensorRange> {
  try {
    const bytes = safetensorsHeaderBytes(start, shard.bytes);
    return parseSafetensorsHeader(start.subarray(8, 8 + bytes), shard.bytes);
  } catch (error) {
    if (error instanceof StorageError) throw new ShardInvalid(error.message, { cause: error });
    throw error;
  }
}

function elementOf(column: Column): { dtype: 'F32' | 'I32' | 'U8'; size: number } {
  switch (column.kind) {
    case 'number':
      return { dtype: 'F32', size: 1 };
    case 'category':
      return { dtype: 'I32', size: 1 };
    case 'array':
    case 'sequence':
      return { dtype: column.dtype, size: product(column.shape) };
    case 'text':
    case 'image':
      return { dtype: 'U8', size: 1 };
  }
}

function checkTensor(name: string, found: TensorRange | undefined, dtype: string, shape: readonly number[]): asserts found is TensorRange {
  const text = JSON.stringify(name.slice(0, 100));
  if (!found) throw new ShardInvalid(`it has no tensor ${text}`);
  const isSame = found.dtype === dtype && found.shape.length === shape.length && found.shape.every((n, i) => n === shape[i]);
  if (!isSame)
    throw new ShardInvalid(
      `its tensor ${text} is ${found.dtype} [${found.shape.join(', ')}], and the manifest says ${dtype} [${shape.join(', ')}]`,
    );
}

/**
 * Offsets of pieces, checked: they begin at 0 (of the whole column), never fall and end at the end of the data.
 * @param bytes I64 little-endian, of `rows` + 1 offsets
 * @param total elements of the whole column
 * @throws ShardInvalid
 */
export function offsetsOf(name: string, bytes: Uint8Array, total: number, isWhole: boolean): Float64Array {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const offsets = new Float64Array(bytes.length >> 3);
  let last = 0;
  for (let i = 0; i < offsets.length; i++) {
    const offset = view.getInt32(8 * i + 4, true) * 2 ** 32 + view.getUint32(8 * i, true);
    if (offset < last || offset > total || (isWhole && i === 0 && offset !== 0))
      throw new ShardInvalid(
        `offset ${i} of ${JSON.stringify(name.slice(0, 100))} is ${offset}, after ${last} and within ${total} elements`,
      );
    offsets[i] = last = offset;
  }
  if (isWhole && last !== total)
    throw new ShardInvalid(`the offsets of ${JSON.stringify(name.slice(0, 100))} end at ${last}, its data has ${total} elements`);
  return offsets;
}
