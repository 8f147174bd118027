/**
 * The IDX format of the MNIST files (LeCun, Cortes, Burges: "The MNIST database of handwritten digits"):
 *
 *   0  0  type  dimensions | size of dimension 0 … (uint32, big-endian) | elements, row-major
 *
 * Read as hostile input: nothing is allocated from a number in the file before it has been compared with the bytes that
 * are really there. Only unsigned bytes (type 0x08) are taken, which is what images and labels are made of.
 */
import { DatasetError } from './dataset-error.js';

export interface IdxArray {
  readonly shape: readonly number[];
  /** A view of the file's bytes, not a copy. */
  readonly values: Uint8Array;
}

const TYPE_UNSIGNED_BYTE = 0x08;
const MAX_DIMENSIONS = 4;

/** @throws DatasetError DATASET_MALFORMED, naming `subject` */
export function parseIdx(bytes: Uint8Array, dimensions: number, subject: string): IdxArray {
  const malformed = (message: string): never => {
    throw new DatasetError('DATASET_MALFORMED', subject, message);
  };
  if (bytes.length < 4) malformed(`only ${bytes.length} bytes: an IDX file starts with 4 bytes of magic`);
  if (bytes[0] !== 0 || bytes[1] !== 0) malformed('no IDX file: the first two bytes must be zero');
  if (bytes[2] !== TYPE_UNSIGNED_BYTE)
    malformed(`element type 0x${bytes[2]!.toString(16).padStart(2, '0')}; only unsigned bytes (0x08) are read`);
  if (dimensions > MAX_DIMENSIONS) throw new RangeError(`at most ${MAX_DIMENSIONS} dimensions are read`);
  if (bytes[3] !== dimensions) malformed(`${bytes[3]} dimensions instead of ${dimensions}`);
  const headerBytes = 4 + 4 * dimensions;
  if (bytes.length < headerBytes) malformed(`cut off in the header: ${bytes.length} of ${headerBytes} bytes`);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const shape = Array.from({ length: dimensions }, (_, i) => view.getUint32(4 + 4 * i));
  const present = bytes.length - headerBytes;
  let elements = 1;
  for (const size of shape) {
    if (size === 0) malformed(`a dimension of size 0 in [${shape.join(', ')}]`);
    elements *= size;
    // At every step: the product of all dimensions might not be exact any more.
    if (elements > present) malformed(`the header says [${shape.join(', ')}], but there are only ${present} elements`);
  }
  if (elements < present) malformed(`${present - elements} bytes too many after ${elements} elements`);
  return { shape, values: bytes.subarray(headerBytes) };
}
