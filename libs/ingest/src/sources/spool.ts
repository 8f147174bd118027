/** Formats whose directory is at their end are read by position: what is not a plain file of this machine is copied into the work folder first. */
import { mkdtemp, open, rm, type FileHandle } from 'node:fs/promises';
import path from 'node:path';
import { IngestError } from '../ingest-error.js';
import { unpacked } from './compression.js';
import type { SourceContext, SourceFile } from './source-file.js';

export interface SeekableFile {
  readonly path: string;
  readonly bytes: number;
}

const PACKED = /\.(?:gz|gzip|zst|zstd)$/i;

/** @throws what opening the source throws */
export async function seekable(file: SourceFile, context: SourceContext): Promise<SeekableFile> {
  if (file.path !== undefined && file.bytes !== undefined && !PACKED.test(file.relative)) return { path: file.path, bytes: file.bytes };
  const folder = await mkdtemp(path.join(context.workFolder, 'source-'));
  context.atClose(() => rm(folder, { recursive: true, force: true }));
  const copy = path.join(folder, 'copy');
  const handle = await open(copy, 'wx', 0o600);
  let bytes = 0;
  try {
    for await (const piece of unpacked(file, context)) {
      await handle.appendFile(piece);
      bytes += piece.length;
    }
  } finally {
    await handle.close();
  }
  return { path: copy, bytes };
}

/** @throws IngestError FORMAT_MALFORMED when the file ends before */
export async function readAt(handle: FileHandle, from: number, bytes: number, name: string): Promise<Uint8Array> {
  const found = new Uint8Array(bytes);
  for (let at = 0; at < bytes;) {
    const { bytesRead } = await handle.read(found, at, bytes - at, from + at);
    if (bytesRead === 0) throw new IngestError('FORMAT_MALFORMED', `The file is cut off after ${from + at} bytes.`, { file: name });
    at += bytesRead;
  }
  return found;
}

const PIECE_BYTES = 1 << 20;

/** Bytes [from, to) in pieces, with a handle of its own. */
export async function* rangeOf({ path: at }: SeekableFile, from: number, to: number, name: string): AsyncGenerator<Uint8Array> {
  const handle = await open(at, 'r');
  try {
    for (let position = from; position < to; position += PIECE_BYTES)
      yield await readAt(handle, position, Math.min(PIECE_BYTES, to - position), name);
  } finally {
    await handle.close();
  }
}
