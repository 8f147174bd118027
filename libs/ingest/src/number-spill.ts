/**
 * The number columns of the training split, kept until minimum and maximum are known and the histograms can be counted: in memory while they
 * are few, in a file of the work folder otherwise. Bounded memory: one shard's part at a time is read back.
 */
import { mkdtemp, open, rm, type FileHandle } from 'node:fs/promises';
import path from 'node:path';
import type { ColumnState } from './column.js';
import type { ShardTensor } from './column-buffer.js';
import { addToHistogram, HISTOGRAM_BINS } from './statistics.js';

const IN_MEMORY_BYTES = 64 << 20;
/** With more columns the manifest would be full of histograms that nobody looks at. */
export const HISTOGRAM_COLUMNS_MAX = 2000;

export class NumberSpill {
  private readonly columns: readonly ColumnState[];
  private readonly parts: { readonly rows: number; readonly bytes: Uint8Array | undefined }[] = [];
  private inMemoryBytes = 0;
  private file: { readonly folder: string; readonly handle: FileHandle } | undefined;

  constructor(
    columns: readonly ColumnState[],
    private readonly workFolder: string,
  ) {
    const numbers = columns.filter(({ form }) => form.kind === 'number');
    this.columns = numbers.length > HISTOGRAM_COLUMNS_MAX ? [] : numbers;
  }

  /** Takes the number columns out of the tensors of a shard. */
  async add(tensors: readonly ShardTensor[]): Promise<void> {
    const [first] = this.columns;
    if (!first) return;
    const names = new Set(this.columns.map(({ name }) => name));
    const mine = tensors.filter(({ name }) => names.has(name));
    const bytes = Buffer.concat(mine.map((tensor) => tensor.bytes));
    const rows = mine[0]!.shape[0]!;
    if (this.inMemoryBytes + bytes.length <= IN_MEMORY_BYTES) {
      this.inMemoryBytes += bytes.length;
      this.parts.push({ rows, bytes });
      return;
    }
    this.file ??= await this.openFile();
    await this.file.handle.appendFile(bytes);
    this.parts.push({ rows, bytes: undefined });
  }

  private async openFile(): Promise<{ folder: string; handle: FileHandle }> {
    const folder = await mkdtemp(path.join(this.workFolder, 'numbers-'));
    return { folder, handle: await open(path.join(folder, 'values'), 'wx+', 0o600) };
  }

  /** By name of the column. */
  async histograms(): Promise<Map<string, number[]>> {
    const found = new Map(this.columns.map(({ name }) => [name, new Array<number>(HISTOGRAM_BINS).fill(0)]));
    let position = 0;
    for (const { rows, bytes } of this.parts) {
      let part = bytes;
      if (!part) {
        part = Buffer.alloc(rows * this.columns.length * 4);
        for (let at = 0; at < part.length;) {
          const { bytesRead } = await this.file!.handle.read(part, at, part.length - at, position + at);
          if (bytesRead === 0) throw new Error(`the file of numbers in ${this.file!.folder} was cut off`);
          at += bytesRead;
        }
        position += part.length;
      }
      const values = new Float32Array(part.buffer, part.byteOffset, part.length / 4);
      for (const [i, { name, tally }] of this.columns.entries())
        addToHistogram(found.get(name)!, values.subarray(i * rows, (i + 1) * rows), tally.bounds);
    }
    return found;
  }

  async close(): Promise<void> {
    await this.file?.handle.close();
    if (this.file) await rm(this.file.folder, { recursive: true, force: true });
  }
}
