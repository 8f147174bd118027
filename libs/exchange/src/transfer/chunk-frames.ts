/**
 * Chunks of flat vectors in data frames. This file alone knows how a chunk is encoded; which chunk is sent, and where it goes, is the business of
 * the machines.
 *
 *   bytes of a chunk ── sendChunk ──> Connection ═══ wire ═══> Connection ── checkChunk, then its destination or scratchOf
 *
 * Gradients and parameters, both modes, workers, servers, standbys and the collector of weights go through here.
 */
import { Codec, ProtocolError, checkAttempt, type FrameHeader, type FrameType } from '@paceline/protocol';
import type { Connection, FrameNumbers } from '../connection.js';
import { bytesOf, type Region } from '../rounds/regions.js';

/** Which vector a chunk is of: the sum of the gradients of replicas [lo, hi) in a round, or parameters of a generation. */
export interface VectorName {
  readonly round: number;
  readonly lo: number;
  readonly hi: number;
}

/** @param bytes must not change before `onFlushed`, as in Connection.sendData */
export function sendChunk(
  connection: Connection,
  type: FrameType,
  numbers: FrameNumbers,
  { round, lo, hi }: VectorName,
  chunk: number,
  bytes: Uint8Array,
  onFlushed: () => void,
): void {
  connection.sendData({ type, codec: Codec.none, ...numbers, round, nodeLo: lo, nodeHi: hi, chunk }, bytes, onFlushed);
}

/** Sends a chunk that lies in a region. It takes over one reference, and lets it go when the bytes have left. */
export function sendRegion(
  connection: Connection,
  type: FrameType,
  numbers: FrameNumbers,
  vector: VectorName,
  chunk: number,
  region: Region,
): void {
  sendChunk(connection, type, numbers, vector, chunk, region.bytes, () => region.release());
}

/**
 * Checks a frame before its payload is read.
 * @param chunk what the header names, where this side has it; `length` counts float32 elements
 * @throws ProtocolError for what no peer sends
 */
export function checkChunk<C extends { readonly length: number }>(
  header: FrameHeader,
  type: FrameType,
  attempt: number,
  chunk: C | undefined,
): asserts chunk is C {
  if (header.type !== type) throw new ProtocolError('BAD_FRAME', `a frame of type ${header.type} where only type ${type} is taken`);
  checkAttempt(header, attempt);
  if (header.codec !== Codec.none) throw new ProtocolError('BAD_CODEC');
  if (!chunk) throw new ProtocolError('UNKNOWN_CHUNK', `chunk ${header.chunk}`);
  const bytes = bytesOf(chunk.length);
  if (header.length !== bytes) throw new ProtocolError('WRONG_LENGTH', `chunk ${header.chunk} has ${bytes} bytes, not ${header.length}`);
}

let scratch = new Uint8Array(0);

/**
 * Where a payload goes that will be dropped. All connections of the process share it, because nobody reads it: a checksum is taken read by read, as the
 * bytes come.
 */
export function scratchOf(bytes: number): Uint8Array {
  if (scratch.length < bytes) scratch = new Uint8Array(bytes);
  return scratch.subarray(0, bytes);
}
