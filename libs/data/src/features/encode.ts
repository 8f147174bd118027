/** Encoders at work: each writes its values of every row into rows of float32. Made once from the plan, used for every batch. */
import type { Encoder, EncoderOf } from '@paceline/spec';
import { badCell, type Cells } from './cells.js';
import type { DecodeImage } from './image.js';
import { fnv1a } from './fnv1a.js';
import { textIds } from './tokenizer.js';

export interface Target {
  readonly into: Float32Array;
  /** Offset of the encoder's first value of row 0. */
  readonly offset: number;
  /** Floats from one row to the next. */
  readonly stride: number;
}

export interface RowEncoder {
  /** Floats of one row. */
  readonly width: number;
  readonly columns: readonly string[];
  /** Whether its cells have a fixed size, so that whole shards are encoded ahead. */
  readonly isFixed: boolean;
  /** @throws DatasetError DATASET_ROW_INVALID */
  write(cells: Cells, target: Target): Promise<void> | void;
}

export type CodedEncoder = Exclude<Encoder, EncoderOf<'same'>>;

const product = (shape: readonly number[]): number => shape.reduce((all, n) => all * n, 1);

export function rowEncoder(encoder: CodedEncoder, decodeImage: DecodeImage): RowEncoder {
  switch (encoder.kind) {
    case 'numbers':
      return numbersEncoder(encoder);
    case 'one-hot':
    case 'hash':
    case 'index':
    case 'class':
      return categoryEncoder(encoder);
    case 'array':
      return arrayEncoder(encoder);
    case 'image':
      return imageEncoder(encoder, decodeImage);
    case 'sequence':
      return sequenceEncoder(encoder);
    case 'text':
      return textEncoder(encoder);
  }
}

/** Rows that are written column by column before the next ones: they stay in the cache of the processor. */
const BLOCK_ROWS = 256;

function numbersEncoder({ columns, missing, subtract, divide }: EncoderOf<'numbers'>): RowEncoder {
  return {
    width: columns.length,
    columns,
    isFixed: true,
    write(cells, { into, offset, stride }) {
      const values = columns.map((column) => cells.fixed(column));
      for (let from = 0; from < cells.rows; from += BLOCK_ROWS) {
        const to = Math.min(from + BLOCK_ROWS, cells.rows);
        for (let i = 0; i < columns.length; i++) {
          const column = values[i]!;
          const [less, by, instead] = [subtract[i]!, divide[i]!, missing[i] ?? null];
          let at = offset + i + from * stride;
          for (let row = from; row < to; row++, at += stride) {
            let value = column[row]!;
            if (Number.isNaN(value)) {
              if (instead === null) throw badCell(cells, row, columns[i]!, 'a target has no value');
              value = instead;
            }
            into[at] = (value - less) / by;
          }
        }
      }
    },
  };
}

function categoryEncoder(encoder: EncoderOf<'one-hot' | 'hash' | 'index' | 'class'>): RowEncoder {
  const { column, kind } = encoder;
  const places = placesOf(encoder);
  const isSpread = kind === 'one-hot' || kind === 'hash';
  const width = kind === 'one-hot' ? encoder.names.length : kind === 'hash' ? encoder.buckets : 1;
  return {
    width,
    columns: [column],
    isFixed: true,
    write(cells, { into, offset, stride }) {
      const codes = cells.fixed(column);
      const vocabulary = cells.vocabulary(column);
      const placeOf = places(vocabulary);
      for (let row = 0, at = offset; row < cells.rows; row++, at += stride) {
        const code = codes[row]!;
        if (!(code >= -1 && code < vocabulary.length)) throw badCell(cells, row, column, `code ${code} of ${vocabulary.length} categories`);
        const place = code === -1 ? -1 : placeOf[code]!;
        if (isSpread) {
          into.fill(0, at, at + width);
          if (place >= 0) into[at + place] = 1;
        } else if (kind === 'index') into[at] = place + 1;
        else if (place >= 0) into[at] = place;
        else
          throw badCell(
            cells,
            row,
            column,
            code === -1 ? 'a target has no category' : `${JSON.stringify(vocabulary[code])} is no class of the run`,
          );
      }
    },
  };
}

/** From the codes of a vocabulary to places, -1 for what the plan does not know. */
function placesOf(encoder: EncoderOf<'one-hot' | 'hash' | 'index' | 'class'>): (vocabulary: readonly string[]) => Int32Array {
  const known = new WeakMap<readonly string[], Int32Array>();
  const places = encoder.kind === 'hash' ? undefined : new Map(encoder.names.map((name, i) => [name, i]));
  const placeOf = (name: string): number => (encoder.kind === 'hash' ? fnv1a(name) % encoder.buckets : (places!.get(name) ?? -1));
  return (vocabulary) => {
    let found = known.get(vocabulary);
    if (!found) known.set(vocabulary, (found = Int32Array.from(vocabulary, placeOf)));
    return found;
  };
}

function arrayEncoder({ column, shape, subtract, divide }: EncoderOf<'array'>): RowEncoder {
  const width = product(shape);
  return {
    width,
    columns: [column],
    isFixed: true,
    write(cells, { into, offset, stride }) {
      const values = cells.fixed(column);
      if (values.length !== cells.rows * width)
        throw badCell(cells, 0, column, `${values.length} numbers in ${cells.rows} rows, and the plan takes ${width} of each`);
      const isAsItIs = subtract === 0 && divide === 1;
      if (isAsItIs && stride === width && values instanceof Float32Array) return into.set(values.subarray(0, cells.rows * width), offset);
      for (let row = 0, read = 0; row < cells.rows; row++) {
        let at = offset + row * stride;
        for (let i = 0; i < width; i++) into[at++] = (Math.fround(values[read++]!) - subtract) / divide;
      }
    },
  };
}

function sequenceEncoder({ column, length, shape, pad, value, isMasked }: EncoderOf<'sequence'>): RowEncoder {
  const padding = isMasked ? Number.NaN : value;
  const element = product(shape);
  const width = length * element;
  return {
    width,
    columns: [column],
    isFixed: false,
    write(cells, { into, offset, stride }) {
      for (const [row, piece] of cells.pieces(column).entries()) {
        const at = offset + row * stride;
        const taken = Math.min(piece.length, width);
        const from = pad === 'before' ? width - taken : 0;
        if (taken < width) into.fill(padding, at, at + width);
        into.set(taken === piece.length ? piece : piece.subarray(0, taken), at + from);
      }
    },
  };
}

function textEncoder(encoder: EncoderOf<'text'>): RowEncoder {
  const { column, length, skip, encode, ids, isMasked } = encoder;
  const idsOf = textIds(encoder);
  const decoder = new TextDecoder();
  const width = encode === 'multi-hot' ? ids : length;
  return {
    width,
    columns: [column],
    isFixed: false,
    write(cells, { into, offset, stride }) {
      for (const [row, bytes] of cells.pieces(column).entries()) {
        const at = offset + row * stride;
        const found = idsOf(decoder.decode(bytes as Uint8Array));
        const taken = Math.min(found.length - skip, length);
        into.fill(isMasked ? Number.NaN : 0, at, at + width);
        for (let i = 0; i < taken; i++) {
          if (encode === 'multi-hot') into[at + found[i + skip]!] = 1;
          else into[at + i] = found[i + skip]!;
        }
      }
    },
  };
}

function imageEncoder(encoder: EncoderOf<'image'>, decodeImage: DecodeImage): RowEncoder {
  const { column, height, width: pixels, channels, subtract, divide } = encoder;
  const width = height * pixels * channels;
  /** A look-up is faster than the division and cannot differ from it. */
  const scaled = Float32Array.from({ length: 256 }, (_, byte) => (byte - subtract) / divide);
  return {
    width,
    columns: [column],
    isFixed: false,
    async write(cells, { into, offset, stride }) {
      await Promise.all(
        cells.pieces(column).map(async (file, row) => {
          let bytes: Uint8Array;
          try {
            bytes = await decodeImage(file as Uint8Array, encoder);
          } catch (error) {
            throw badCell(cells, row, column, error instanceof Error ? error.message : String(error));
          }
          scale(bytes, scaled, into, offset + row * stride);
        }),
      );
    },
  };
}

/** Four bytes are read as one word where they lie so: a third faster than one by one, on as many bytes as a batch of images has. */
function scale(bytes: Uint8Array, scaled: Float32Array, into: Float32Array, offset: number): void {
  const { length } = bytes;
  const words = IS_LITTLE_ENDIAN && bytes.byteOffset % 4 === 0 ? new Uint32Array(bytes.buffer, bytes.byteOffset, length >> 2) : NO_WORDS;
  let at = offset;
  for (let i = 0; i < words.length; i++, at += 4) {
    const word = words[i]!;
    into[at] = scaled[word & 0xff]!;
    into[at + 1] = scaled[(word >>> 8) & 0xff]!;
    into[at + 2] = scaled[(word >>> 16) & 0xff]!;
    into[at + 3] = scaled[word >>> 24]!;
  }
  for (let i = 4 * words.length; i < length; i++) into[at++] = scaled[bytes[i]!]!;
}

const NO_WORDS = new Uint32Array(0);
const IS_LITTLE_ENDIAN = new Uint8Array(Uint16Array.of(1).buffer)[0] === 1;
