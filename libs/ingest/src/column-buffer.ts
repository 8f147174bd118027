/** The values of one column in the shard that is being filled. Grows by doubling; `take` gives the tensors and starts anew. */
import type { SplitName } from '@paceline/spec';
import type { ArrayCell, ImageCell } from './cell.js';
import type { ColumnState } from './column.js';
import type { StoredCell, StoredColumn } from './stored-rows.js';

export interface ShardTensor {
  readonly name: string;
  readonly dtype: 'F32' | 'I32' | 'U8' | 'I64';
  readonly shape: readonly number[];
  readonly bytes: Uint8Array;
}

type Elements = Float32Array | Int32Array | Uint8Array;
const FIRST_ELEMENTS = 128;
const MAKE = { F32: Float32Array, I32: Int32Array, U8: Uint8Array } as const;

const bytesOf = (values: ArrayBufferView): Uint8Array => new Uint8Array(values.buffer, values.byteOffset, values.byteLength);

export abstract class ColumnBuffer {
  protected rows = 0;
  constructor(protected readonly column: ColumnState) {}
  /** Bytes of a row in the shard, where all rows take the same. */
  abstract readonly rowBytes: number | undefined;
  /** Adds the values of the rows `rows[from..to)`. @returns the bytes that they take in the shard */
  abstract add(column: StoredColumn, rows: Int32Array, from: number, to: number): number;
  /** @param split whose shard it is: the values count in the statistics of the training split, or among what others have besides */
  abstract take(split: SplitName): ShardTensor[];
}

/** number and category: one element per row. */
class ScalarBuffer extends ColumnBuffer {
  private values: Float32Array | Int32Array;
  constructor(
    column: ColumnState,
    private readonly dtype: 'F32' | 'I32',
  ) {
    super(column);
    this.values = new MAKE[dtype](FIRST_ELEMENTS);
  }

  readonly rowBytes = 4;

  add(column: StoredColumn, rows: Int32Array, from: number, to: number): number {
    const end = this.rows + to - from;
    if (end > this.values.length) this.values = grown(this.values, end);
    const { values } = this;
    const given = column as Float32Array | Int32Array;
    for (let i = from, at = this.rows; i < to; i++) values[at++] = given[rows[i]!]!;
    this.rows = end;
    return (to - from) * this.rowBytes;
  }

  take(split: SplitName): ShardTensor[] {
    const values = this.values.slice(0, this.rows);
    this.rows = 0;
    const { column } = this;
    if (split !== 'train') column.heldOut(split).add(values, this.dtype === 'I32');
    else if (this.dtype === 'F32') column.tally.add(values);
    else
      for (const code of values)
        if (code < 0) column.missingCodes++;
        else column.codeCounts[code] = (column.codeCounts[code] ?? 0) + 1;
    return [{ name: column.name, dtype: this.dtype, shape: [values.length], bytes: bytesOf(values) }];
  }
}

/** array: the same number of elements in every row. sequence: any number, with offsets. */
class ElementsBuffer extends ColumnBuffer {
  private values: Elements;
  private length = 0;
  private readonly elementsPerItem: number;
  readonly rowBytes: number | undefined;
  private readonly offsets: number[] = [0];

  constructor(
    column: ColumnState,
    private readonly dtype: 'F32' | 'I32' | 'U8',
    private readonly shape: readonly number[],
    private readonly isSequence: boolean,
  ) {
    super(column);
    this.elementsPerItem = shape.reduce((product, n) => product * n, 1);
    this.values = new MAKE[dtype](FIRST_ELEMENTS);
    this.rowBytes = isSequence ? undefined : this.elementsPerItem * this.values.BYTES_PER_ELEMENT;
  }

  add(column: StoredColumn, rows: Int32Array, from: number, to: number): number {
    let bytes = 0;
    for (let i = from; i < to; i++) bytes += this.addOne((column as ArrayCell[])[rows[i]!]!);
    return bytes;
  }

  private addOne({ values }: ArrayCell): number {
    const end = this.length + values.length;
    if (end > this.values.length) this.values = grown(this.values, end);
    this.values.set(values, this.length);
    this.length = end;
    this.rows++;
    if (this.isSequence) this.offsets.push(end / this.elementsPerItem);
    return values.length * this.values.BYTES_PER_ELEMENT + (this.isSequence ? 8 : 0);
  }

  take(split: SplitName): ShardTensor[] {
    const values = this.values.slice(0, this.length);
    const { column, dtype, shape, rows } = this;
    if (split === 'train') column.tally.add(values);
    else column.heldOut(split).add(values, false);
    this.length = 0;
    this.rows = 0;
    if (!this.isSequence) return [{ name: column.name, dtype, shape: [rows, ...shape], bytes: bytesOf(values) }];
    const offsets = BigInt64Array.from(this.offsets, BigInt);
    const lengths = this.offsets.slice(1).map((end, i) => end - this.offsets[i]!);
    if (split === 'train') column.lengths.add(lengths);
    else column.heldOut(split).addLengths(lengths);
    this.offsets.length = 1;
    return [
      { name: `${column.name}:offsets`, dtype: 'I64', shape: [offsets.length], bytes: bytesOf(offsets) },
      { name: column.name, dtype, shape: [values.length / this.elementsPerItem, ...shape], bytes: bytesOf(values) },
    ];
  }
}

/** text and image: bytes with offsets. */
class BytesBuffer extends ColumnBuffer {
  private bytes = Buffer.alloc(1024);
  private length = 0;
  private readonly offsets: number[] = [0];
  /** Text: UTF-16 units; image: heights. */
  private readonly sizes: number[] = [];
  private readonly widths: number[] = [];
  private readonly channels = new Set<number>();

  readonly rowBytes = undefined;

  add(column: StoredColumn, rows: Int32Array, from: number, to: number): number {
    let bytes = 0;
    for (let i = from; i < to; i++) bytes += this.addOne((column as StoredCell[])[rows[i]!]!);
    return bytes;
  }

  private addOne(value: StoredCell): number {
    const from = this.length;
    if (typeof value === 'string') {
      this.reserve(value.length * 3); // a UTF-16 unit is at most three bytes of UTF-8
      this.length += this.bytes.write(value, this.length, 'utf8');
      this.sizes.push(value.length);
    } else {
      const image = value as ImageCell;
      this.reserve(image.bytes.length);
      this.bytes.set(image.bytes, this.length);
      this.length += image.bytes.length;
      this.sizes.push(image.height);
      this.widths.push(image.width);
      this.channels.add(image.channels);
    }
    this.offsets.push(this.length);
    return this.length - from + 8;
  }

  private reserve(more: number): void {
    if (this.length + more <= this.bytes.length) return;
    const larger = Buffer.alloc(Math.max(this.length + more, this.bytes.length * 2));
    larger.set(this.bytes.subarray(0, this.length));
    this.bytes = larger;
  }

  take(split: SplitName): ShardTensor[] {
    const { column } = this;
    if (split === 'train') {
      column.lengths.add(this.sizes);
      column.widths.add(this.widths);
      for (const channels of this.channels) column.channels.add(channels);
    }
    const bytes = Uint8Array.prototype.slice.call(this.bytes, 0, this.length);
    const offsets = BigInt64Array.from(this.offsets, BigInt);
    this.length = 0;
    this.offsets.length = 1;
    this.sizes.length = 0;
    this.widths.length = 0;
    this.channels.clear();
    return [
      { name: `${column.name}:offsets`, dtype: 'I64', shape: [offsets.length], bytes: bytesOf(offsets) },
      { name: column.name, dtype: 'U8', shape: [bytes.length], bytes },
    ];
  }
}

function grown<T extends Elements>(values: T, atLeast: number): T {
  const larger = new (values.constructor as new (length: number) => T)(Math.max(atLeast, values.length * 2));
  larger.set(values);
  return larger;
}

export function columnBuffer(column: ColumnState): ColumnBuffer {
  const { form } = column;
  switch (form.kind) {
    case 'number':
      return new ScalarBuffer(column, 'F32');
    case 'category':
      return new ScalarBuffer(column, 'I32');
    case 'array':
      return new ElementsBuffer(column, form.dtype, form.shape, false);
    case 'sequence':
      return new ElementsBuffer(column, form.dtype, form.shape, true);
    case 'text':
    case 'image':
      return new BytesBuffer(column);
  }
}
