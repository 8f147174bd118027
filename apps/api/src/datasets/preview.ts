/** A few rows of a version, read from its shards by ranges and decoded for people. Everything is bounded: rows, columns, and what one cell shows. */
import { Injectable } from '@nestjs/common';
import { datasetShardKey, SPLITS, type Column, type DatasetManifest, type DatasetShard } from '@paceline/spec';
import { parseSafetensorsHeader, safetensorsHeaderBytes, type ObjectStore, type TensorRange } from '@paceline/storage';
import { Fault } from '../fault.js';
import type { Viewer } from '../teams/authentication.js';
import { DataStore } from './data-store.js';
import { DatasetPreview } from './dataset.types.js';
import { Datasets } from './datasets.js';

export const MAX_PREVIEW_ROWS = 50;
const MAX_COLUMNS = 100;
const MAX_HEADER_BYTES = 32 << 20;
const MAX_TEXT_BYTES = 4_000;
const MAX_ELEMENTS = 1_000;
const MAX_IMAGE_BYTES = 512 << 10;
const MAX_IMAGES_BYTES = 8 << 20;

export interface PreviewRequest {
  readonly rows: number;
  readonly from: number;
  readonly split: string;
  readonly columns?: readonly string[] | null | undefined;
}

@Injectable()
export class Preview {
  constructor(
    private readonly datasets: Datasets,
    private readonly data: DataStore,
  ) {}

  /** @throws Fault INVALID_INPUT, NOT_FOUND, SERVICE_UNAVAILABLE */
  of(viewer: Viewer, versionId: string, request: PreviewRequest): Promise<DatasetPreview> {
    return this.datasets.withManifest(viewer.teamId, versionId, (manifest) => {
      if (!manifest) throw new Fault('NOT_FOUND', 'There is no such version.');
      return this.read(viewer, manifest, request);
    });
  }

  private async read(viewer: Viewer, manifest: DatasetManifest, request: PreviewRequest): Promise<DatasetPreview> {
    const split = SPLITS.find((name) => name === request.split);
    if (!split) throw new Fault('INVALID_INPUT', `split: there are ${SPLITS.filter((name) => manifest.splits[name]).join(', ')}`);
    if (!(request.rows >= 0 && request.rows <= MAX_PREVIEW_ROWS)) throw new Fault('INVALID_INPUT', `rows: from 0 to ${MAX_PREVIEW_ROWS}`);
    if (!(request.from >= 0)) throw new Fault('INVALID_INPUT', 'from: must be at least 0');
    const columns = columnsOf(manifest, request.columns);
    const budget = { imageBytes: MAX_IMAGES_BYTES };
    const rows: unknown[][] = [];
    let before = 0;
    for (const shard of manifest.splits[split]?.shards ?? []) {
      const from = Math.max(0, request.from + rows.length - before);
      const to = Math.min(shard.rows, from + request.rows - rows.length);
      if (to > from) rows.push(...(await this.data.use((store) => readRows(store, viewer.teamId, shard, columns, from, to, budget))));
      before += shard.rows;
      if (rows.length >= request.rows) break;
    }
    return Object.assign(new DatasetPreview(), { columns: columns.map(({ name }) => name), rows });
  }
}

function columnsOf(manifest: DatasetManifest, names: readonly string[] | null | undefined): Column[] {
  if (!names) return manifest.columns.slice(0, MAX_COLUMNS);
  if (names.length > MAX_COLUMNS) throw new Fault('INVALID_INPUT', `columns: at most ${MAX_COLUMNS} at once`);
  return names.map((name) => {
    const found = manifest.columns.find((column) => column.name === name);
    if (!found) throw new Fault('INVALID_INPUT', `columns: there is no column ${JSON.stringify(name.slice(0, 100))}`);
    return found;
  });
}

type Read = (from: number, to: number) => Promise<Buffer>;

async function readRows(
  store: ObjectStore,
  teamId: string,
  { sha256, bytes }: DatasetShard,
  columns: readonly Column[],
  from: number,
  to: number,
  budget: { imageBytes: number },
): Promise<unknown[][]> {
  const key = datasetShardKey(teamId, sha256);
  const read: Read = async (a, b) => {
    const found = await store.read(key, a, b);
    return Buffer.from(found.buffer, found.byteOffset, found.byteLength);
  };
  const headerBytes = safetensorsHeaderBytes(await read(0, 8), bytes);
  if (headerBytes > MAX_HEADER_BYTES) throw new Fault('TOO_LARGE', 'The dataset has too many columns for a preview.');
  const tensors = parseSafetensorsHeader(await read(8, 8 + headerBytes), bytes);
  const cells: unknown[][] = [];
  for (const column of columns) cells.push(await cellsOf(column, tensors, read, from, to, budget));
  return Array.from({ length: to - from }, (_, row) => cells.map((of) => of[row]));
}

async function cellsOf(
  column: Column,
  tensors: ReadonlyMap<string, TensorRange>,
  read: Read,
  from: number,
  to: number,
  budget: { imageBytes: number },
): Promise<unknown[]> {
  const tensor = tensors.get(column.name)!;
  const count = to - from;
  if (column.kind === 'number' || column.kind === 'category' || column.kind === 'array') {
    const elements = column.kind === 'array' ? column.shape.reduce((product, n) => product * n, 1) : 1;
    const width = tensor.dtype === 'U8' ? 1 : 4;
    const cells: unknown[] = [];
    for (let row = from; row < to; row++) {
      const at = tensor.from + row * elements * width;
      const values = numbers(await read(at, at + Math.min(elements, MAX_ELEMENTS) * width), tensor.dtype);
      cells.push(column.kind === 'array' ? values : column.kind === 'number' ? values[0] : (column.vocabulary[values[0] ?? -1] ?? null));
    }
    return cells;
  }
  const offsets = tensors.get(`${column.name}:offsets`)!;
  const bounds = await read(offsets.from + from * 8, offsets.from + (to + 1) * 8);
  const inner = column.kind === 'sequence' ? column.shape.reduce((product, n) => product * n, 1) * 4 : 1;
  return Promise.all(
    Array.from({ length: count }, async (_, i) => {
      const start = tensor.from + Number(bounds.readBigInt64LE(i * 8)) * inner;
      const end = tensor.from + Number(bounds.readBigInt64LE((i + 1) * 8)) * inner;
      if (column.kind === 'sequence') return numbers(await read(start, Math.min(end, start + MAX_ELEMENTS * 4)), tensor.dtype);
      if (column.kind === 'text') return shortText(await read(start, Math.min(end, start + MAX_TEXT_BYTES)), end - start);
      if (end - start > MAX_IMAGE_BYTES || (budget.imageBytes -= end - start) < 0) return null;
      return dataUrl(await read(start, end));
    }),
  );
}

/** JSON knows no NaN: a missing value is null. */
function numbers(bytes: Buffer, dtype: string): (number | null)[] {
  if (dtype === 'U8') return [...bytes];
  return Array.from({ length: Math.floor(bytes.length / 4) }, (_, i) => {
    const value = dtype === 'I32' ? bytes.readInt32LE(i * 4) : bytes.readFloatLE(i * 4);
    return Number.isFinite(value) ? value : null;
  });
}

const shortText = (bytes: Buffer, whole: number): string =>
  bytes.length === whole ? bytes.toString('utf8') : `${bytes.toString('utf8').replace(/\uFFFD$/, '')}…`;

function dataUrl(bytes: Buffer): string | null {
  const head = bytes.subarray(0, 12).toString('latin1');
  const type = head.startsWith('\x89PNG')
    ? 'png'
    : head.startsWith('\xff\xd8\xff')
      ? 'jpeg'
      : /^RIFF....WEBP/s.test(head)
        ? 'webp'
        : undefined;
  return type === undefined ? null : `data:image/${type};base64,${bytes.toString('base64')}`;
}
