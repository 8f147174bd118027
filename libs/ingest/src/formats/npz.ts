/** NumPy's .npz: a zip file of .npy files, each a column. x_train and x_test, as Keras' datasets have them, are one column of two splits. */
import { open as openZipFile, type Entry, type ZipFile } from 'yauzl';
import type { Part } from '../cell.js';
import { IngestError } from '../ingest-error.js';
import { ByteReader } from '../sources/byte-reader.js';
import { seekable } from '../sources/spool.js';
import type { SourceContext, SourceFile } from '../sources/source-file.js';
import { columnsBySplit, opened, readColumns, type ArrayColumn } from './array-columns.js';
import { openNpy } from './npy.js';

const ENTRIES_MAX = 100_000;
const RATIO_FROM_BYTES = 64 << 20;

export async function npzParts(files: readonly SourceFile[], context: SourceContext): Promise<Part[]> {
  const parts: Part[] = [];
  for (const file of files) {
    const zip = await openZip(file, context);
    const arrays = zip.entries.filter(({ fileName }) => fileName.endsWith('.npy'));
    const nameOf = ({ fileName }: Entry): string => fileName.slice(0, -'.npy'.length);
    for (const [split, group] of columnsBySplit(arrays, nameOf, () => file.split))
      parts.push({
        split,
        read: () =>
          readColumns(() =>
            opened(
              group.map(
                ({ item: entry, column }) =>
                  () =>
                    openEntry(zip.zip, file.name, entry, column, context),
              ),
            ),
          ),
      });
  }
  return parts;
}

async function openZip(file: SourceFile, context: SourceContext): Promise<{ zip: ZipFile; entries: Entry[] }> {
  const { path } = await seekable(file, context);
  const malformed = (error: Error): IngestError =>
    new IngestError('FORMAT_MALFORMED', `It is not a complete zip file (${error.message}).`, { file: file.name }, { cause: error });
  const zip = await new Promise<ZipFile>((resolve, reject) =>
    openZipFile(path, { lazyEntries: true, autoClose: false, validateEntrySizes: true, strictFileNames: true }, (error, opened) =>
      error ? reject(malformed(error)) : resolve(opened),
    ),
  );
  context.atClose(() => Promise.resolve(zip.close()));
  const entries: Entry[] = [];
  await new Promise<void>((resolve, reject) => {
    zip.on('error', (error: Error) => reject(malformed(error)));
    zip.on('end', () => resolve());
    zip.on('entry', (entry: Entry) => {
      entries.push(entry);
      if (entries.length > ENTRIES_MAX)
        reject(new IngestError('SOURCE_TOO_LARGE', `More than ${ENTRIES_MAX} arrays.`, { file: file.name }));
      else zip.readEntry();
    });
    zip.readEntry();
  });
  checkSizes(entries, file, context);
  return { zip, entries };
}

/** yauzl holds an entry to the size that the directory gives; here the directory is held to the limits. */
function checkSizes(entries: readonly Entry[], file: SourceFile, { options }: SourceContext): void {
  const { unpackedBytes, unpackRatio } = options.limits;
  let sum = 0;
  for (const { fileName, uncompressedSize, compressedSize } of entries) {
    sum += uncompressedSize;
    const place = { file: `${file.name}/${fileName}` };
    if (sum > unpackedBytes) throw new IngestError('SOURCE_TOO_LARGE', `Unpacked it has more than ${unpackedBytes} bytes.`, place);
    if (uncompressedSize > RATIO_FROM_BYTES && uncompressedSize > compressedSize * unpackRatio)
      throw new IngestError('SOURCE_TOO_LARGE', `It unpacks to more than ${unpackRatio} times its size.`, place);
  }
}

async function openEntry(zip: ZipFile, file: string, entry: Entry, column: string, { options }: SourceContext): Promise<ArrayColumn> {
  const name = `${file}/${entry.fileName}`;
  async function* content(): AsyncGenerator<Uint8Array> {
    try {
      const stream = await new Promise<NodeJS.ReadableStream & { destroy(): void }>((resolve, reject) =>
        zip.openReadStream(entry, (error, opened) => (error ? reject(error) : resolve(opened))),
      );
      try {
        for await (const piece of stream) yield piece as Uint8Array;
      } finally {
        stream.destroy();
      }
    } catch (error) {
      throw new IngestError('FORMAT_MALFORMED', `It cannot be unpacked (${(error as Error).message}).`, { file: name }, { cause: error });
    }
  }
  return await openNpy(new ByteReader(content(), name), column, name, options.limits.rowBytes);
}
