/**
 * Rows that wait for their number to be known, before a split in order can cut them: written to a file of the work folder as they come, read
 * back once. One block of rows is in memory at a time.
 */
import { deserialize, serialize } from 'node:v8';
import { mkdtemp, open, rm, type FileHandle } from 'node:fs/promises';
import path from 'node:path';
import { SPLITS, type SplitName } from '@paceline/spec';
import { apportion, type Fractions } from './splits.js';
import { rowsFrom, type StoredColumn, type StoredRows } from './stored-rows.js';

export class StagedRows {
  private rows = 0;
  private readonly blocks: { readonly bytes: number; readonly rows: number }[] = [];
  private file: { readonly folder: string; readonly handle: FileHandle } | undefined;

  constructor(private readonly workFolder: string) {}

  async add({ count, columns }: StoredRows): Promise<void> {
    if (count === 0) return;
    if (!this.file) {
      const folder = await mkdtemp(path.join(this.workFolder, 'rows-'));
      this.file = { folder, handle: await open(path.join(folder, 'rows'), 'wx+', 0o600) };
    }
    const bytes = serialize(columns);
    await this.file.handle.appendFile(bytes);
    this.blocks.push({ bytes: bytes.length, rows: count });
    this.rows += count;
  }

  counts(fractions: Fractions): Record<SplitName, number> {
    return apportion(fractions, this.rows);
  }

  /** The rows in order, each with the split that its place gives it. */
  async *divided(fractions: Fractions): AsyncIterable<{ split: SplitName; rows: StoredRows; wanted: Int32Array }> {
    const counts = this.counts(fractions);
    const splits = SPLITS.filter((split) => counts[split] > 0);
    let index = 0;
    let left = counts[splits[0]!];
    let position = 0;
    for (const { bytes: length, rows: count } of this.blocks) {
      const bytes = Buffer.alloc(length);
      for (let at = 0; at < length;) {
        const { bytesRead } = await this.file!.handle.read(bytes, at, length - at, position + at);
        if (bytesRead === 0) throw new Error(`the file of rows in ${this.file!.folder} was cut off`);
        at += bytesRead;
      }
      position += length;
      const rows: StoredRows = { count, columns: deserialize(bytes) as StoredColumn[] };
      for (let from = 0; from < count;) {
        if (left === 0) left = counts[splits[++index]!];
        const to = Math.min(count, from + left);
        yield { split: splits[index]!, rows, wanted: rowsFrom(from, to) };
        left -= to - from;
        from = to;
      }
    }
  }

  async close(): Promise<void> {
    await this.file?.handle.close();
    if (this.file) await rm(this.file.folder, { recursive: true, force: true });
  }
}
