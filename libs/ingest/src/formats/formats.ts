/** The formats: how each is recognised, and which reader takes its files. */
import type { Part, RowBatch } from '../cell.js';
import { IngestError } from '../ingest-error.js';
import type { FormatName } from '../options.js';
import { unpacked } from '../sources/compression.js';
import { splitInName, type SourceContext, type SourceFile } from '../sources/source-file.js';
import { inSplitOrder } from './array-columns.js';
import { readCsv } from './csv.js';
import { idxParts } from './idx.js';
import { IMAGE_NAME, imageParts } from './images.js';
import { readJsonLines } from './json-lines.js';
import { npyParts } from './npy.js';
import { moduleParts } from './module.js';
import { npzParts } from './npz.js';
import { readParquet } from './parquet.js';
import { safetensorsParts } from './safetensors.js';
import { withPictures } from './table-pictures.js';
import { readText } from './text.js';
import { readTfRecords } from './tfrecord.js';
import { webDatasetParts } from './webdataset.js';

const NAMES: readonly (readonly [RegExp, FormatName])[] = [
  [/\.csv$/, 'csv'],
  [/\.(?:tsv|tab)$/, 'tsv'],
  [/\.(?:jsonl|ndjson|json)$/, 'jsonl'],
  [/[.-]idx\d?(?:[.-]ubyte)?$/, 'idx'],
  [IMAGE_NAME, 'images'],
  [/\.npy$/, 'npy'],
  [/\.npz$/, 'npz'],
  [/\.safetensors$/, 'safetensors'],
  [/\.parquet$/, 'parquet'],
  [/\.tar$/, 'webdataset'],
  [/\.tfrecords?(?:-\d+-of-\d+)?$/, 'tfrecord'],
  [/\.txt$/, 'text'],
];

const PACKED = /\.(?:gz|gzip|zst|zstd)$/;

function formatByName(file: SourceFile): FormatName | undefined {
  const name = file.relative
    .toLowerCase()
    .replace(/\.tgz$/, '.tar')
    .replace(PACKED, '');
  return NAMES.find(([pattern]) => pattern.test(name))?.[1];
}

/**
 * What most files of a folder are; a README among them changes nothing.
 * @throws IngestError FORMAT_UNKNOWN
 */
export async function formatOf(files: readonly SourceFile[], context: SourceContext): Promise<FormatName> {
  const [first] = files as [SourceFile];
  if (context.options.format !== undefined) return context.options.format;
  const counts = new Map<FormatName, number>();
  for (const file of files) {
    const format = formatByName(file);
    if (format !== undefined) counts.set(format, (counts.get(format) ?? 0) + 1);
  }
  // Texts beside anything else are notes.
  const found = [...counts].toSorted(([a, m], [b, n]) => Number(a === 'text') - Number(b === 'text') || n - m)[0]?.[0];
  const format = found ?? (await formatByContent(first, context));
  if (format === undefined)
    throw new IngestError('FORMAT_UNKNOWN', 'Neither the name nor the first bytes tell the format.', { file: first.name });
  return format;
}

/** Recognised by the first bytes, where these tell. */
async function formatByContent(file: SourceFile, context: SourceContext): Promise<FormatName | undefined> {
  let start: Uint8Array = new Uint8Array(0);
  for await (const piece of unpacked(file, context)) {
    start = piece.length > 600 ? piece : Buffer.concat([start, piece]);
    if (start.length >= 600) break;
  }
  const text = Buffer.from(start.subarray(0, 600)).toString('latin1');
  if (text.startsWith('\x93NUMPY')) return 'npy';
  if (text.startsWith('PAR1')) return 'parquet';
  if (text.startsWith('PK\x03\x04')) return 'npz';
  if (text.slice(257, 262) === 'ustar') return 'webdataset';
  if (/^\x89PNG|^\xff\xd8\xff|^RIFF....WEBP/s.test(text)) return 'images';
  if (/^\0\0[\x08\x09\x0b-\x0e][\x01-\x06]/.test(text)) return 'idx';
  if (text.trimStart().startsWith('{"')) return 'jsonl';
  // Printable text with one of the delimiters in its first line is taken for a table.
  return /^[^\0-\x08\x0e-\x1f\n]+[,;\t|][^\0-\x08\x0e-\x1f\n]*\n/.test(text) ? 'csv' : undefined;
}

type FileReader = (file: SourceFile, context: SourceContext) => AsyncIterable<RowBatch>;
type PartPlanner = (files: readonly SourceFile[], context: SourceContext) => Part[] | Promise<Part[]>;

/** Files that follow one another, each with whole rows. Of several, the names say the splits: train-00000-of-00002.parquet, test.csv. */
const oneAfterTheOther =
  (read: FileReader, types?: Part['types']): PartPlanner =>
  (files, context) => {
    const named = files.map((file) => [file.split ?? (files.length > 1 ? splitInName(file.relative) : undefined), file] as const);
    return inSplitOrder(named).map(([split, file]) => ({ split, types, read: () => withPictures(read(file, context), file, context) }));
  };

const PLANNERS: Readonly<Record<FormatName, PartPlanner>> = {
  csv: oneAfterTheOther((file, context) => readCsv(file, context, false)),
  tsv: oneAfterTheOther((file, context) => readCsv(file, context, true)),
  jsonl: oneAfterTheOther(readJsonLines),
  text: oneAfterTheOther(readText, { text: 'text' }),
  idx: idxParts,
  images: imageParts,
  npy: npyParts,
  npz: npzParts,
  safetensors: safetensorsParts,
  parquet: oneAfterTheOther(readParquet),
  webdataset: webDatasetParts,
  tfrecord: oneAfterTheOther(readTfRecords),
  module: moduleParts,
};

/** Only files of the format; a single file is taken as what the user says that it is. */
export async function partsOf(format: FormatName, files: readonly SourceFile[], context: SourceContext): Promise<Part[]> {
  const chosen = context.options.format === undefined && files.length > 1 ? files.filter((file) => formatByName(file) === format) : files;
  return await PLANNERS[format](chosen.length > 0 ? chosen : files, context);
}
