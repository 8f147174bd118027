/**
 * The files of a tar archive as a stream. Nothing is written to disk, yet names that would leave the folder are refused, and so are links and
 * devices: an archive that has them is not what it says.
 */
import { extract, type Header } from 'tar-stream';
import { IngestError } from '../ingest-error.js';
import { unpacked } from './compression.js';
import { drained } from './drained.js';
import type { SourceContext, SourceFile } from './source-file.js';

export interface ArchiveEntry {
  readonly name: string;
  readonly bytes: Uint8Array;
}

/** Headers of entries that say nothing of the content, such as long names, are gathered in memory by the library: more is refused. */
const BETWEEN_ENTRIES_MAX_BYTES = 1 << 20;

/** @throws IngestError SOURCE_FORBIDDEN, ROW_TOO_LONG, FORMAT_MALFORMED */
export async function* tarEntries(file: SourceFile, context: SourceContext): AsyncGenerator<ArchiveEntry> {
  const archive = extract();
  let sinceEntry = 0;
  let allowed = BETWEEN_ENTRIES_MAX_BYTES;
  const fed = (async () => {
    for await (const piece of unpacked(file, context)) {
      for (let from = 0; from < piece.length; from += 65_536) {
        const part = piece.subarray(from, from + 65_536);
        sinceEntry += part.length;
        if (sinceEntry > allowed + 2 * BETWEEN_ENTRIES_MAX_BYTES)
          throw new IngestError('FORMAT_MALFORMED', 'A header of the archive is longer than a header may be.', { file: file.name });
        if (!archive.write(part)) await drained(archive);
        if (archive.destroyed) return;
      }
    }
    archive.end(null);
  })();
  fed.catch((error: unknown) => archive.destroy(error as Error));
  try {
    for await (const entry of archive) {
      const { header } = entry;
      check(header, file, context);
      sinceEntry = 0;
      allowed = header.size ?? 0;
      const pieces: Uint8Array[] = [];
      for await (const piece of entry) pieces.push(piece as Uint8Array);
      if (header.type === 'file') yield { name: header.name.replace(/^(?:\.\/)+/, ''), bytes: Buffer.concat(pieces) };
    }
    await fed;
  } catch (error) {
    if (error instanceof IngestError || context.signal?.aborted) throw error;
    throw new IngestError(
      'FORMAT_MALFORMED',
      `It is not a complete tar archive (${(error as Error).message}).`,
      { file: file.name },
      { cause: error },
    );
  } finally {
    archive.destroy();
  }
}

function check({ name, type, size }: Header, file: SourceFile, { options }: SourceContext): void {
  const place = { file: `${file.name}/${name}` };
  if (type !== 'file' && type !== 'directory')
    throw new IngestError(
      'SOURCE_FORBIDDEN',
      `The archive has an entry of type ${type ?? 'unknown'}; only files and folders are read.`,
      place,
    );
  if (name.startsWith('/') || /^[A-Za-z]:|\\|\0/.test(name) || name.split('/').includes('..'))
    throw new IngestError('SOURCE_FORBIDDEN', 'The name of the entry leaves the folder.', place);
  if ((size ?? 0) > options.limits.rowBytes)
    throw new IngestError('ROW_TOO_LONG', `The entry has ${size} bytes; at most ${options.limits.rowBytes} are read.`, place);
}
