/**
 * gzip and zstd around any file, recognised by their first bytes. What comes out is bounded absolutely and by its ratio to what went in, so a
 * small file that unpacks without end is refused early.
 */
import { createGunzip } from 'node:zlib';
import { Decompress } from 'fzstd';
import { IngestError } from '../ingest-error.js';
import { drained } from './drained.js';
import type { SourceContext, SourceFile } from './source-file.js';
import { ZstdFrames } from './zstd-frames.js';

const RATIO_FROM_BYTES = 64 << 20;
type Packing = 'gzip' | 'zstd' | undefined;

function packingOf(first: Uint8Array): Packing {
  if (first[0] === 0x1f && first[1] === 0x8b) return 'gzip';
  return first[0] === 0x28 && first[1] === 0xb5 && first[2] === 0x2f && first[3] === 0xfd ? 'zstd' : undefined;
}

/** The content of a file, whatever it is packed in. */
export async function* unpacked(file: SourceFile, context: SourceContext): AsyncGenerator<Uint8Array> {
  const pieces = file.open()[Symbol.asyncIterator]();
  try {
    let first = await pieces.next();
    // Four bytes are needed to tell; a body from the network may begin with fewer.
    while (!first.done && first.value.length < 4) {
      const more = await pieces.next();
      if (more.done) break;
      first = { done: false, value: Buffer.concat([first.value, more.value]) };
    }
    if (first.done) return;
    const whole = prepended(first.value, pieces);
    const packing = packingOf(first.value);
    if (packing === undefined) yield* whole;
    else yield* bounded(file, packing === 'gzip' ? gunzipped : zstdDecompressed, whole, context);
  } finally {
    await pieces.return?.();
  }
}

async function* prepended(first: Uint8Array, rest: AsyncIterator<Uint8Array>): AsyncGenerator<Uint8Array> {
  yield first;
  for (let piece = await rest.next(); !piece.done; piece = await rest.next()) yield piece.value;
}

type Unpack = (input: AsyncIterable<Uint8Array>) => AsyncIterable<Uint8Array>;

async function* bounded(
  file: SourceFile,
  unpack: Unpack,
  input: AsyncIterable<Uint8Array>,
  { options }: SourceContext,
): AsyncGenerator<Uint8Array> {
  const { unpackedBytes, unpackRatio } = options.limits;
  let packed = 0;
  let out = 0;
  async function* counted(): AsyncGenerator<Uint8Array> {
    for await (const piece of input) {
      packed += piece.length;
      yield piece;
    }
  }
  try {
    for await (const piece of unpack(counted())) {
      out += piece.length;
      if (out > unpackedBytes)
        throw new IngestError('SOURCE_TOO_LARGE', `Unpacked it has more than ${unpackedBytes} bytes.`, { file: file.name });
      if (out > RATIO_FROM_BYTES && out > packed * unpackRatio)
        throw new IngestError('SOURCE_TOO_LARGE', `It unpacks to more than ${unpackRatio} times its size.`, { file: file.name });
      yield piece;
    }
  } catch (error) {
    if (error instanceof IngestError || (error as Error).name === 'AbortError') throw error;
    throw new IngestError(
      'FORMAT_MALFORMED',
      `It cannot be unpacked (${(error as Error).message}).`,
      { file: file.name },
      { cause: error },
    );
  }
}

/** Several members one after the other are one file, as gzip has it. */
async function* gunzipped(input: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  const gunzip = createGunzip({ chunkSize: 256 << 10 });
  const fed = (async () => {
    for await (const piece of input) {
      if (gunzip.destroyed) return;
      if (!gunzip.write(piece)) await drained(gunzip);
    }
    gunzip.end();
  })();
  fed.catch((error: unknown) => gunzip.destroy(error as Error));
  try {
    for await (const piece of gunzip) yield piece as Uint8Array;
    await fed;
  } finally {
    gunzip.destroy();
  }
}

/** A block of 128 KiB may come from 4 bytes: pieces are small, so that one of them never becomes more than 128 MiB. */
const PIECE_BYTES = 4096;

async function* zstdDecompressed(input: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  let waiting: Uint8Array[] = [];
  let isDone = false;
  const frames = new ZstdFrames();
  const stream = new Decompress((piece, isLast) => {
    if (piece.length > 0) waiting.push(piece);
    isDone = isLast === true;
  });
  for await (const piece of input) {
    for (let from = 0; from < piece.length; from += PIECE_BYTES) {
      const part = piece.subarray(from, from + PIECE_BYTES);
      frames.push(part);
      stream.push(part, false);
      const ready = waiting;
      waiting = [];
      yield* ready;
    }
  }
  frames.end();
  stream.push(new Uint8Array(0), true);
  yield* waiting;
  if (!isDone) throw new Error('the file is cut off');
}
