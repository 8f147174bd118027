/**
 * A folder of pictures: the folder that a picture lies in is its class, as in flowers/train/rose/1.jpg. Folders called train, validation and test
 * (and what people write for them) at the top are splits. Pictures stay encoded; of each the header is read.
 */
import sharp from 'sharp';
import type { SplitName } from '@paceline/spec';
import { BATCH_ROWS, type Cell, type ImageCell, type Part, type RowBatch } from '../cell.js';
import { IngestError, type Place } from '../ingest-error.js';
import type { SourceContext, SourceFile } from '../sources/source-file.js';
import { splitInName } from '../sources/source-file.js';
import { inSplitOrder } from './array-columns.js';

export const IMAGE_NAME = /\.(?:png|jpe?g|webp)$/i;
const BATCH_BYTES = 16 << 20;
/** As the loader of a run has it. */
const PIXELS_MAX = 100_000_000;
/** Enough of a picture to know that all of it can be decoded; a JPEG is then decoded at an eighth of its size. */
const CHECK_SCALE = 8;
const FORMATS = new Set(['png', 'jpeg', 'webp']);

/**
 * Reads the header, and decodes the picture once: one that is damaged or cut off is found here and not in the middle of a run.
 * @throws IngestError FORMAT_MALFORMED, UNSUPPORTED for what is no PNG, JPEG or WebP file
 */
export async function imageCell(bytes: Uint8Array, place: Place): Promise<ImageCell> {
  const header = await sharp(bytes, { limitInputPixels: PIXELS_MAX, failOn: 'error' })
    .metadata()
    .catch((error: Error) => {
      throw new IngestError('FORMAT_MALFORMED', `It is no picture that can be read (${error.message}).`, place, { cause: error });
    });
  const { format, width, height, channels } = header;
  if (!FORMATS.has(format)) throw new IngestError('UNSUPPORTED', `A picture in the format ${format}; PNG, JPEG and WebP are read.`, place);
  if (width * height > PIXELS_MAX) throw new IngestError('ROW_TOO_LONG', `A picture of ${width} × ${height} pixels.`, place);
  await checkPixels(bytes, height, width, place, format === 'jpeg');
  return { kind: 'image', bytes, height, width, channels: Math.min(4, Math.max(1, channels)) };
}

/** The warning for a JPEG with fewer rows than its header claims. Other warnings concern bytes that change no pixel. */
const ROWS_ARE_MISSING = /premature end/i;

async function checkPixels(bytes: Uint8Array, height: number, width: number, place: Place, isJpeg: boolean): Promise<void> {
  const small = (size: number): number => Math.ceil(size / CHECK_SCALE);
  const decode = (failOn: 'error' | 'warning'): Promise<unknown> =>
    sharp(bytes, { limitInputPixels: PIXELS_MAX, failOn, sequentialRead: true })
      .resize({ width: small(width), height: small(height), fit: 'fill', kernel: 'nearest' })
      .raw()
      .toBuffer();
  const refused = (cause: unknown): IngestError =>
    new IngestError('FORMAT_MALFORMED', `The picture is damaged or cut off (${(cause as Error).message.slice(0, 300)}).`, place, { cause });
  if (isJpeg) {
    const warning = await decode('warning').then(
      () => undefined,
      (error: unknown) => error,
    );
    if (warning === undefined) return;
    // oxlint-disable-next-line messages/decide-nothing -- libvips gives its warnings no code
    if (ROWS_ARE_MISSING.test((warning as Error).message)) throw refused(warning);
  }
  await decode('error').catch((error: unknown) => {
    throw refused(error);
  });
}

interface Picture {
  readonly file: SourceFile;
  readonly label: string | undefined;
}

export function imageParts(files: readonly SourceFile[], context: SourceContext): Part[] {
  const bySplit = new Map<SplitName | undefined, Picture[]>();
  for (const file of files) {
    if (!IMAGE_NAME.test(file.relative)) continue;
    const folders = file.relative.split('/').slice(0, -1);
    const named = folders.length > 0 && isSplitFolder(folders[0]!) ? splitInName(folders[0]!) : undefined;
    const label = (named === undefined ? folders : folders.slice(1))[0];
    const split = file.split ?? named;
    const pictures = bySplit.get(split);
    if (pictures) pictures.push({ file, label });
    else bySplit.set(split, [{ file, label }]);
  }
  return inSplitOrder([...bySplit]).map(([split, pictures]) => {
    const hasClasses = pictures.some(({ label }) => label !== undefined);
    return { split, label: hasClasses ? 'label' : undefined, read: () => readObservedRuns(pictures, hasClasses, context) };
  });
}

const isSplitFolder = (name: string): boolean => /^(?:train|training|val|valid|validation|dev|test|testing)$/i.test(name);

async function* readObservedRuns(pictures: readonly Picture[], hasClasses: boolean, context: SourceContext): AsyncGenerator<RowBatch> {
  const names = hasClasses ? ['image', 'label'] : ['image'];
  for (let row = 0; row < pictures.length;) {
    const batch: Picture[] = [];
    for (let bytes = 0; batch.length < BATCH_ROWS && bytes < BATCH_BYTES && row + batch.length < pictures.length;) {
      const picture = pictures[row + batch.length]!;
      batch.push(picture);
      bytes += picture.file.bytes ?? 0;
    }
    const rows = await Promise.all(
      batch.map(async ({ file, label }): Promise<Cell[]> => {
        const image = await imageCell(await wholeFile(file, context), { file: file.name });
        return hasClasses ? [image, label] : [image];
      }),
    );
    // Each picture is a file of its own: its row in messages is 1.
    for (const [i, cells] of rows.entries()) yield { names, rows: [cells], file: batch[i]!.file.name, firstRow: 1 };
    row += batch.length;
  }
}

export async function wholeFile(file: SourceFile, { options }: SourceContext): Promise<Uint8Array> {
  const { rowBytes } = options.limits;
  const pieces: Uint8Array[] = [];
  let bytes = 0;
  for await (const piece of file.open()) {
    bytes += piece.length;
    if (bytes > rowBytes) throw new IngestError('ROW_TOO_LONG', `The file has more than ${rowBytes} bytes.`, { file: file.name });
    pieces.push(piece);
  }
  return Buffer.concat(pieces);
}
