/**
 * NumPy's .npy (numpy.lib.format, versions 1 to 3): magic, version, length of the header, a Python dict literal with descr, fortran_order and
 * shape, elements. Arrays of Python objects are pickles, and are never read.
 */
import type { Cell, Part } from '../cell.js';
import { IngestError, shown } from '../ingest-error.js';
import { ByteReader } from '../sources/byte-reader.js';
import { unpacked } from '../sources/compression.js';
import type { SourceContext, SourceFile } from '../sources/source-file.js';
import { checkedRow, elementColumn, sideBySide, type ArrayColumn } from './array-columns.js';
import type { ElementType } from './elements.js';

const HEADER_MAX_BYTES = 1 << 20;
const TEXT_CHARACTERS_MAX = 65_536;
const TYPES: Readonly<Record<string, ElementType['name']>> = {
  b1: 'bool',
  u1: 'u8',
  i1: 'i8',
  u2: 'u16',
  i2: 'i16',
  u4: 'u32',
  i4: 'i32',
  u8: 'u64',
  i8: 'i64',
  f2: 'f16',
  f4: 'f32',
  f8: 'f64',
};

const stem = ({ relative }: SourceFile): string => (relative.split('/').at(-1) ?? relative).replace(/\.npy(?:\.(?:gz|zst))?$/i, '');

export const npyParts = (files: readonly SourceFile[], context: SourceContext): Part[] =>
  sideBySide(files, stem, (file, column) =>
    openNpy(new ByteReader(unpacked(file, context), file.name), column, file.name, context.options.limits.rowBytes),
  );

/** @throws IngestError FORMAT_MALFORMED, UNSUPPORTED, ROW_TOO_LONG; the reader is closed then */
export async function openNpy(reader: ByteReader, column: string, file: string, rowBytesMax: number): Promise<ArrayColumn> {
  try {
    const { descr, shape, isFortran } = parseHeader(await header(reader, file), file);
    const refuse = (why: string): never => {
      throw new IngestError('UNSUPPORTED', why, { file });
    };
    if (isFortran && shape.length > 1) refuse('The array is in Fortran order: save numpy.ascontiguousarray of it.');
    const { order, code } = /^(?<order>[<>|=]?)(?<code>[a-zA-Z]\d*)$/.exec(descr)?.groups ?? {};
    if (code === undefined || code.startsWith('O') || code.startsWith('V'))
      return refuse(
        `Its dtype ${shown(descr)} is not made of numbers or texts: Python objects and records are never read. Save one array per field.`,
      );
    const isLittleEndian = order !== '>';
    const text = /^(?<kind>[US])(?<length>\d+)$/.exec(code)?.groups;
    if (text)
      return textColumn(column, file, reader, text['kind'] === 'U' ? 4 : 1, Number(text['length']), shape, rowBytesMax, isLittleEndian);
    const name = Object.hasOwn(TYPES, code) ? TYPES[code] : undefined;
    if (name === undefined) return refuse(`Its dtype ${shown(descr)} is not read: save float32, int32 or uint8.`);
    const bytes = Number(code.slice(1));
    return elementColumn(column, file, reader, { name, bytes, isLittleEndian }, shape, rowBytesMax);
  } catch (error) {
    await reader.close();
    throw error;
  }
}

async function header(reader: ByteReader, file: string): Promise<string> {
  const start = await reader.read(8);
  if (Buffer.from(start.subarray(0, 6)).toString('latin1') !== '\x93NUMPY')
    throw new IngestError('FORMAT_MALFORMED', 'A .npy file begins with \\x93NUMPY.', { file });
  const [major] = start.subarray(6);
  if (major! < 1 || major! > 3) throw new IngestError('UNSUPPORTED', `Version ${major} of the format is not read.`, { file });
  const lengthBytes = await reader.read(major === 1 ? 2 : 4);
  const view = new DataView(lengthBytes.buffer);
  const length = major === 1 ? view.getUint16(0, true) : view.getUint32(0, true);
  if (length > HEADER_MAX_BYTES) throw new IngestError('FORMAT_MALFORMED', `Its header claims ${length} bytes.`, { file });
  return Buffer.from(await reader.read(length)).toString(major === 3 ? 'utf8' : 'latin1');
}

function parseHeader(text: string, file: string): { descr: string; shape: number[]; isFortran: boolean } {
  const { descr, objects } = /'descr':\s*(?:'(?<descr>[^']{1,100})'|(?<objects>\[))/.exec(text)?.groups ?? {};
  const { order } = /'fortran_order':\s*(?<order>True|False)/.exec(text)?.groups ?? {};
  const { shape } = /'shape':\s*\((?<shape>[\d\s,L]{0,400})\)/.exec(text)?.groups ?? {};
  if (objects !== undefined) throw new IngestError('UNSUPPORTED', 'It is an array of records: save one array per field.', { file });
  if (descr === undefined || order === undefined || shape === undefined)
    throw new IngestError('FORMAT_MALFORMED', `Its header ${shown(text.trim())} does not say descr, fortran_order and shape.`, { file });
  const sizes = shape.split(',').map((size) => size.trim().replace(/L$/, ''));
  if (sizes.at(-1) === '') sizes.pop();
  if (!sizes.every((size) => /^\d{1,16}$/.test(size)))
    throw new IngestError('FORMAT_MALFORMED', `Its shape ${shown(shape)} is not valid.`, { file });
  return { descr, shape: sizes.map(Number), isFortran: order === 'True' };
}

/** Texts of fixed length, padded with zeros: four bytes of UTF-32 per character, or one. */
function textColumn(
  name: string,
  file: string,
  reader: ByteReader,
  characterBytes: 1 | 4,
  characters: number,
  shape: readonly number[],
  rowBytesMax: number,
  isLittleEndian: boolean,
): ArrayColumn {
  if (shape.length !== 1) throw new IngestError('UNSUPPORTED', 'Texts are read from arrays of one dimension only.', { file });
  if (characters > TEXT_CHARACTERS_MAX)
    throw new IngestError('ROW_TOO_LONG', `Its texts have ${characters} characters; at most ${TEXT_CHARACTERS_MAX} are read.`, { file });
  // Rows without bytes would not end with the file.
  if (characters === 0) throw new IngestError('FORMAT_MALFORMED', 'Its texts have no characters: save them as <U1 or longer.', { file });
  const { rows } = checkedRow([shape[0]!, characters], characterBytes, rowBytesMax, file);
  const width = characters * characterBytes;
  const textOf = (bytes: Uint8Array): string => {
    if (characterBytes === 1) return Buffer.from(bytes).toString('utf8').replace(/\0+$/, '');
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const points = Array.from({ length: characters }, (_, i) => view.getUint32(4 * i, isLittleEndian));
    if (points.some((point) => point > 0x10ffff)) throw new IngestError('FORMAT_MALFORMED', 'A text has an invalid character.', { file });
    return String.fromCodePoint(...points).replace(/\0+$/, '');
  };
  return {
    name,
    file,
    rows,
    async read(count) {
      const cells: Cell[] = [];
      for (let i = 0; i < count; i++) cells.push(textOf(await reader.read(width)));
      return cells;
    },
    async finish() {
      if (!(await reader.isAtEnd())) throw new IngestError('FORMAT_MALFORMED', `There are bytes after its ${rows} rows.`, { file });
    },
    close: () => reader.close(),
  };
}
