/**
 * Chunks of flat vectors in data frames. This file alone knows how a chunk is encoded; which chunk is sent, and where it goes, is decided by the machines.
 *
 *   bytes of a chunk ── sendChunk ──> Connection ═══ wire ═══> Connection ── checkChunk, then its destination or scratchOf
 *
 * Gradients and parameters, all modes, workers, servers, standbys and the collector of weights go through here.
 */
import { Codec, ProtocolError, checkAttempt, type FrameHeader, type FrameType } from '@paceline/protocol';
import type { Connection, FrameNumbers } from '../connection.js';
import { acquireRegion, bytesOf, type Region } from '../attempt/regions.js';
import type { OwnedChunk } from './chunks.js';

/** Which vector a chunk is of: the sum of the gradients of replicas [lo, hi) in a round, or parameters of a generation. */
export interface VectorName {
  readonly type: FrameType;
  readonly round: number;
  readonly lo: number;
  readonly hi: number;
}

type Send = (to: Connection, numbers: FrameNumbers, vector: VectorName, chunk: number, bytes: Uint8Array, onFlushed: () => void) => void;

/** The bytes must not change before `onFlushed`, as in Connection.sendData. */
export const sendChunk: Send = (to, { attempt, term, view }, { type, round, lo, hi }, chunk, bytes, onFlushed) =>
  to.sendData({ type, codec: Codec.none, attempt, term, view, round, nodeLo: lo, nodeHi: hi, chunk }, bytes, onFlushed);

/** Takes over one reference to the region, and lets it go when the bytes have left. */
export function sendRegion(to: Connection, numbers: FrameNumbers, vector: VectorName, chunk: number, region: Region): void {
  sendChunk(to, numbers, vector, chunk, region.bytes, () => region.release());
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

/** Where a payload goes that will be dropped. The whole process shares it: nobody reads it, and a checksum is taken read by read, as the bytes come. */
export function scratchOf(bytes: number): Uint8Array {
  if (scratch.length < bytes) scratch = new Uint8Array(bytes);
  return scratch.subarray(0, bytes);
}

/** Receives the chunks of one connection into regions, one at a time. */
export class RegionReceiver {
  private region: Region | undefined;

  /** Where the payload goes. @param chunk undefined for a frame that will be dropped */
  receive({ length }: FrameHeader, chunk: OwnedChunk | undefined): Uint8Array {
    this.region = chunk && acquireRegion(chunk.arena, chunk.length);
    return this.region?.bytes ?? scratchOf(length);
  }

  /** The whole chunk, which is the caller's now; undefined when it went to scratch. */
  received(): Region | undefined {
    const { region } = this;
    this.region = undefined;
    return region;
  }
}
