/** What the tests of the import share: a folder of files, a sink in memory, and rows read back out of its shards. */
import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { createHash } from 'node:crypto';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { datasetManifestSchema, type DatasetManifest, type SplitName } from '@paceline/spec';
import { canonicalJson, parseSafetensorsHeader, safetensorsHeaderBytes } from '@paceline/storage';
import { importDataset, type ImportResult } from './import-dataset.js';
import { IngestError } from './ingest-error.js';
import type { ImportOptions } from './options.js';
import type { ShardSink } from './shard-writer.js';

export class MemorySink implements ShardSink {
  readonly shards = new Map<string, Uint8Array>();
  puts = 0;

  has(sha256: string): Promise<boolean> {
    return Promise.resolve(this.shards.has(sha256));
  }

  put(sha256: string, bytes: Uint8Array): Promise<void> {
    this.puts++;
    if (createHash('sha256').update(bytes).digest('hex') !== sha256) throw new Error('the bytes have another hash');
    this.shards.set(sha256, bytes);
    return Promise.resolve();
  }
}

/** The typed error of an import that must fail. */
export async function refusal(work: Promise<unknown>): Promise<IngestError> {
  const error = await work.then(
    () => new Error('nothing was refused'),
    (thrown: unknown) => thrown,
  );
  if (!(error instanceof IngestError)) throw error;
  return error;
}

export type Value = number | string | null | number[] | Uint8Array;

/** The rows of a split as plain values: strings of categories and texts, null for what is missing. */
export function rowsOf(manifest: DatasetManifest, sink: MemorySink, split: SplitName): Record<string, Value>[] {
  return (manifest.splits[split]?.shards ?? []).flatMap(({ sha256, rows }) => shardRows(manifest, sink.shards.get(sha256)!, rows));
}

function shardRows(manifest: DatasetManifest, bytes: Uint8Array, rows: number): Record<string, Value>[] {
  const headerBytes = safetensorsHeaderBytes(bytes, bytes.length);
  const tensors = parseSafetensorsHeader(bytes.subarray(8, 8 + headerBytes), bytes.length);
  const numbers = (name: string): number[] => {
    const { dtype, from, to } = tensors.get(name)!;
    const raw = bytes.slice(from, to).buffer;
    if (dtype === 'I64') return [...new BigInt64Array(raw)].map(Number);
    return [...(dtype === 'F32' ? new Float32Array(raw) : dtype === 'I32' ? new Int32Array(raw) : new Uint8Array(raw))];
  };
  const cellsOf = (column: DatasetManifest['columns'][number]): Value[] => {
    const values = numbers(column.name);
    const offsets = tensors.has(`${column.name}:offsets`) ? numbers(`${column.name}:offsets`) : [];
    const between = (i: number, size: number) => values.slice(offsets[i]! * size, offsets[i + 1]! * size);
    const at = (i: number): Value => {
      switch (column.kind) {
        case 'number':
          return Number.isNaN(values[i]) ? null : values[i]!;
        case 'category':
          return values[i] === -1 ? null : column.vocabulary[values[i]!]!;
        case 'array':
          return values.slice((values.length / rows) * i, (values.length / rows) * (i + 1));
        case 'sequence':
          return between(
            i,
            column.shape.reduce((product, n) => product * n, 1),
          );
        case 'text':
          return Buffer.from(between(i, 1)).toString('utf8');
        case 'image':
          return Uint8Array.from(between(i, 1));
      }
    };
    return Array.from({ length: rows }, (_, i) => at(i));
  };
  const columns = manifest.columns.map((column) => [column.name, cellsOf(column)] as const);
  return Array.from({ length: rows }, (_, i) => Object.fromEntries(columns.map(([name, cells]) => [name, cells[i]!])));
}

export class Bench implements AsyncDisposable {
  private constructor(readonly folder: string) {}

  static async open(): Promise<Bench> {
    return new Bench(await mkdtemp(path.join(tmpdir(), 'paceline-ingest-')));
  }

  async write(name: string, content: string | Uint8Array): Promise<string> {
    const file = path.join(this.folder, 'source', name);
    await mkdir(path.dirname(file), { recursive: true });
    await writeFile(file, content);
    return file;
  }

  /** Imports, checks what holds of every import, and gives the rows of each split. */
  async import(
    options: Partial<ImportOptions> & Pick<ImportOptions, 'sources'>,
    sink = new MemorySink(),
  ): Promise<ImportResult & { sink: MemorySink; train: Record<string, Value>[]; rows: (split: SplitName) => Record<string, Value>[] }> {
    const workFolder = await mkdtemp(path.join(this.folder, 'work-'));
    const result = await importDataset(options, sink, { workFolder });
    const left = await readdir(workFolder);
    if (left.length > 0) throw new Error(`the import left ${left.join(', ')} in its work folder`);
    datasetManifestSchema.parse(result.manifest);
    if (createHash('sha256').update(canonicalJson(result.manifest)).digest('hex') !== result.version)
      throw new Error('the version is another');
    const rows = (split: SplitName) => rowsOf(result.manifest, sink, split);
    return Object.assign({ sink, train: rows('train'), rows }, result);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.folder, { recursive: true, force: true });
  }
}
