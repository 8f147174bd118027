/**
 * Zip archives as streams, without compression: weights do not get smaller by it. Written file after file with data descriptors, so that nothing
 * has to be known beforehand. All times are the same, so that equal files make equal archives.
 */
import { unzipSync, Zip, ZipPassThrough } from 'fflate';
import type { Bytes } from './byte-stream.js';
import { ExportError } from './export-error.js';

/** The body is read to its end before the next file is asked for. */
export interface ExportFile {
  readonly path: string;
  readonly body: Bytes;
}

/** The earliest that the format can say, in the local time that it is written in. */
const EPOCH = new Date(1980, 0, 1);

export async function* zip(files: AsyncIterable<ExportFile>): AsyncGenerator<Uint8Array, void, void> {
  const out: Uint8Array[] = [];
  const archive = new Zip((error, piece) => {
    if (error) throw error;
    // The library may use its buffer again.
    out.push(Uint8Array.from(piece));
  });
  for await (const { path, body } of files) {
    const file = new ZipPassThrough(path);
    file.mtime = EPOCH;
    archive.add(file);
    for await (const piece of body) {
      file.push(piece);
      yield* out.splice(0);
    }
    file.push(new Uint8Array(0), true);
    yield* out.splice(0);
  }
  archive.end();
  yield* out.splice(0);
}

/** What is unpacked in memory: more than the largest model that can be trained. */
const ARCHIVE_MAX_BYTES = 1 << 30;

/**
 * Files of an archive by its directory, which lies at its end: of a stream a reader would have to guess where a file ends, and archives lie in
 * archives here. Paths that lead out of a folder are refused.
 * @throws ExportError ARCHIVE_UNREADABLE
 */
export async function unzip(stream: Bytes): Promise<{ readonly path: string; readonly bytes: Uint8Array }[]> {
  const pieces: Uint8Array[] = [];
  let length = 0;
  for await (const piece of stream) {
    pieces.push(piece);
    length += piece.length;
    if (length > ARCHIVE_MAX_BYTES) throw unreadable(`it has more than ${ARCHIVE_MAX_BYTES} bytes`);
  }
  const filter = ({ name, originalSize }: { name: string; originalSize: number }): boolean => {
    if (!/^[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}$/.test(name)) throw unreadable(`it has a file called ${JSON.stringify(name.slice(0, 100))}`);
    if (originalSize > ARCHIVE_MAX_BYTES) throw unreadable(`${name} has more than ${ARCHIVE_MAX_BYTES} bytes`);
    return true;
  };
  try {
    return Object.entries(unzipSync(Buffer.concat(pieces), { filter })).map(([path, bytes]) => ({ path, bytes }));
  } catch (error) {
    if (error instanceof ExportError) throw error;
    throw unreadable(error instanceof Error ? error.message : String(error), error);
  }
}

const unreadable = (why: string, cause?: unknown): ExportError =>
  new ExportError('ARCHIVE_UNREADABLE', `the archive cannot be read: ${why}`, undefined, { cause });
