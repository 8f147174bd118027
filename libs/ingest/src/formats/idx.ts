/**
 * IDX, the format of the MNIST files (LeCun, Cortes, Burges: "The MNIST database of handwritten digits"): two zero bytes, element type, number
 * of dimensions, their sizes (big-endian), elements. Three dimensions of bytes are grey pictures, and get a channel of size 1.
 */
import type { Part } from '../cell.js';
import { IngestError } from '../ingest-error.js';
import { ByteReader } from '../sources/byte-reader.js';
import { unpacked } from '../sources/compression.js';
import type { SourceContext, SourceFile } from '../sources/source-file.js';
import { elementColumn, sideBySide, type ArrayColumn } from './array-columns.js';
import type { ElementType } from './elements.js';

const TYPES: Readonly<Record<number, Omit<ElementType, 'isLittleEndian'>>> = {
  0x08: { name: 'u8', bytes: 1 },
  0x09: { name: 'i8', bytes: 1 },
  0x0b: { name: 'i16', bytes: 2 },
  0x0c: { name: 'i32', bytes: 4 },
  0x0d: { name: 'f32', bytes: 4 },
  0x0e: { name: 'f64', bytes: 8 },
};
const DIMENSIONS_MAX = 6;

/** `train-images-idx3-ubyte.gz` is called image, `t10k-labels-idx1-ubyte` label. */
const nameOf = ({ relative }: SourceFile): string =>
  (relative.split('/').at(-1) ?? relative)
    .replace(/\.(?:gz|gzip|zst|zstd)$/i, '')
    .replace(/[.-]?idx\d?(?:[.-]ubyte)?$/i, '')
    .replace(/images$/i, 'image')
    .replace(/labels$/i, 'label');

export const idxParts = (files: readonly SourceFile[], context: SourceContext): Part[] =>
  sideBySide(files, nameOf, (file, column) => openIdx(file, column, context), 'label');

async function openIdx(file: SourceFile, column: string, context: SourceContext): Promise<ArrayColumn> {
  const reader = new ByteReader(unpacked(file, context), file.name);
  try {
    const [zero, alsoZero, typeCode, dimensions] = (await reader.read(4)) as unknown as [number, number, number, number];
    const malformed = (why: string): never => {
      throw new IngestError('FORMAT_MALFORMED', why, { file: file.name });
    };
    if (zero !== 0 || alsoZero !== 0) malformed('An IDX file begins with two zero bytes.');
    const type = TYPES[typeCode];
    if (!type) return malformed(`0x${typeCode.toString(16)} is no element type of IDX.`);
    if (dimensions < 1 || dimensions > DIMENSIONS_MAX) malformed(`It has ${dimensions} dimensions; 1 to ${DIMENSIONS_MAX} are read.`);
    const sizes = await reader.read(4 * dimensions);
    const view = new DataView(sizes.buffer);
    const shape = Array.from({ length: dimensions }, (_, i) => view.getUint32(4 * i));
    const inner = shape.slice(1);
    const cellShape = dimensions === 3 && type.name === 'u8' ? [...inner, 1] : inner;
    const element = { name: type.name, bytes: type.bytes, isLittleEndian: false };
    return elementColumn(column, file.name, reader, element, shape, context.options.limits.rowBytes, cellShape);
  } catch (error) {
    await reader.close();
    throw error;
  }
}
