/** Records whose pictures are still bytes, as Parquet and modules have them: the pictures' headers are read, then the record becomes cells. */
import type { Cell } from '../cell.js';
import type { Place } from '../ingest-error.js';
import { imageCell } from './images.js';
import { rowOf, type NameTable } from './plain-cells.js';

/** PNG, JPEG and WebP by their first bytes. */
export function isPicture(bytes: Uint8Array): boolean {
  const start = Buffer.from(bytes.buffer, bytes.byteOffset, Math.min(12, bytes.length)).toString('latin1');
  return /^(?:\x89PNG|\xff\xd8\xff|RIFF[^]{4}WEBP)/.test(start);
}

/** The bytes of `{image: bytes}`, or of `{bytes, path}` as Hugging Face writes pictures into Parquet. */
function observedIn(value: unknown): Uint8Array | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  const { image, bytes } = value as { image?: unknown; bytes?: unknown };
  if (image instanceof Uint8Array) return image;
  return bytes instanceof Uint8Array && isPicture(bytes) ? bytes : undefined;
}

/** @throws IngestError as `imageCell` and `rowOf` do */
export async function recordRow(record: object, table: NameTable, place: Place): Promise<Cell[]> {
  const entries: [string, unknown][] = [];
  for (const [name, value] of Object.entries(record)) {
    const picture = observedIn(value);
    entries.push([name, picture ? await imageCell(picture, { file: place.file, row: place.row, column: name }) : value]);
  }
  return rowOf(Object.fromEntries(entries), table, place);
}
