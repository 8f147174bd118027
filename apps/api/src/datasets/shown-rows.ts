/** A few rows of a version, read from its shards by ranges and decoded for people. Everything is bounded: rows, columns, what one cell shows, and what all do. */
import { datasetShardKey, SPLITS, type Column, type DatasetManifest, type DatasetShard } from '@paceline/spec';
import { parseSafetensorsHeader, safetensorsHeaderBytes, type ObjectStore, type TensorRange } from '@paceline/storage';
import { Fault } from '../fault.js';

export const MAX_PREVIEW_ROWS = 50;
const MAX_COLUMNS = 100;
/** Of one cell; and of all cells together, which have equal parts of it. */
const MAX_TEXT_BYTES = 4_000;
const ALL_TEXT_BYTES = 2 << 20;
const MAX_ELEMENTS = 1_000;
const ALL_ELEMENTS = 200_000;
const MAX_IMAGE_BYTES = 512 << 10;
const MAX_IMAGES_BYTES = 8 << 20;

/** What an answer needs beside the manifest, which is let go of before. */
export interface AnswerContext {
  readonly teamId: string;
  /** The header of a shard has so many bytes at most. */
  readonly headerBytes: number;
  use<T>(work: (store: ObjectStore) => Promise<T>): Promise<T>;
}

export interface PreviewRequest {
  readonly rows: number;
  readonly from: number;
  readonly split: string;
  readonly columns?: readonly string[] | null | undefined;
}

export interface ShownRows {
  readonly columns: string[];
  readonly rows: unknown[][];
}

interface Budget {
  readonly textBytes: number;
  readonly elements: number;
  imageBytes: number;
}

/** @returns what reads the rows, and keeps the columns that are shown alone @throws Fault INVALID_INPUT */
export function plannedPreview(manifest: DatasetManifest, request: PreviewRequest): (context: AnswerContext) => Promise<ShownRows> {
  const split = SPLITS.find((name) => name === request.split);
  if (!split) throw new Fault('INVALID_INPUT', `split: there are ${SPLITS.filter((name) => manifest.splits[name]).join(', ')}`);
  if (!(request.rows >= 0 && request.rows <= MAX_PREVIEW_ROWS)) throw new Fault('INVALID_INPUT', `rows: from 0 to ${MAX_PREVIEW_ROWS}`);
  if (!(request.from >= 0)) throw new Fault('INVALID_INPUT', 'from: must be at least 0');
  const columns = columnsOf(manifest, request.columns);
  const parts = partsOf(manifest.splits[split]?.shards ?? [], request);
  const cells = Math.max(1, columns.length * request.rows);
  const maxTensors = 2 * manifest.columns.length;
  return async ({ teamId, headerBytes, use }) => {
    const budget: Budget = {
      textBytes: Math.min(MAX_TEXT_BYTES, Math.floor(ALL_TEXT_BYTES / cells)),
      elements: Math.min(MAX_ELEMENTS, Math.floor(ALL_ELEMENTS / cells)),
      imageBytes: MAX_IMAGES_BYTES,
    };
    const rows: unknown[][] = [];
    for (const part of parts)
      rows.push(...(await use((store) => readRows(store, { teamId, part, columns, headerBytes, maxTensors }, budget))));
    return { columns: columns.map(({ name }) => name), rows };
  };
}

/** Rows [from, to) of a shard. */
interface Part {
  readonly shard: DatasetShard;
  readonly from: number;
  readonly to: number;
}

function partsOf(shards: readonly DatasetShard[], { from: first, rows }: PreviewRequest): Part[] {
  const parts: Part[] = [];
  let [before, found] = [0, 0];
  for (const shard of shards) {
    const from = Math.max(0, first + found - before);
    const to = Math.min(shard.rows, from + rows - found);
    if (to > from) {
      parts.push({ shard, from, to });
      found += to - from;
    }
    before += shard.rows;
    if (found >= rows) break;
  }
  return parts;
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

interface RowsOfPart {
  readonly teamId: string;
  readonly part: Part;
  readonly columns: readonly Column[];
  readonly headerBytes: number;
  readonly maxTensors: number;
}

async function readRows(store: ObjectStore, of: RowsOfPart, budget: Budget): Promise<unknown[][]> {
  const { shard, from, to } = of.part;
  const { sha256, bytes } = shard;
  const { columns, maxTensors } = of;
  const key = datasetShardKey(of.teamId, sha256);
  const read: Read = async (a, b) => {
    const found = await store.read(key, a, b);
    return Buffer.from(found.buffer, found.byteOffset, found.byteLength);
  };
  const headerBytes = safetensorsHeaderBytes(await read(0, 8), bytes);
  if (headerBytes > of.headerBytes) throw new Fault('TOO_LARGE', 'The headers of the shards are too large for a preview.');
  const tensors = parseSafetensorsHeader(await read(8, 8 + headerBytes), bytes, { maxTensors });
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
  budget: Budget,
): Promise<unknown[]> {
  const tensor = tensors.get(column.name)!;
  const count = to - from;
  if (column.kind === 'number' || column.kind === 'category' || column.kind === 'array') {
    const elements = column.kind === 'array' ? column.shape.reduce((product, n) => product * n, 1) : 1;
    const width = tensor.dtype === 'U8' ? 1 : 4;
    const cells: unknown[] = [];
    for (let row = from; row < to; row++) {
      const at = tensor.from + row * elements * width;
      const values = numbers(await read(at, at + Math.min(elements, budget.elements) * width), tensor.dtype);
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
      if (column.kind === 'sequence') return numbers(await read(start, Math.min(end, start + budget.elements * 4)), tensor.dtype);
      if (column.kind === 'text') return shortText(await read(start, Math.min(end, start + budget.textBytes)), end - start);
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
