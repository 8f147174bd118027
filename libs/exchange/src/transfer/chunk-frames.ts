/**
 * Chunks of flat vectors in data frames. This file alone knows how a chunk is encoded; which chunk is sent, and where it goes, is decided by the machines.
 *
 *   bytes of a chunk ── sendChunk ──> Connection ═══ wire ═══> Connection ── checkChunk, then its destination or scratchOf
 *
 * Gradients and parameters, all modes, workers, servers, standbys and the collector of weights go through here.
 */
import type { Arena } from '@paceline/kernels';
import { Codec, FrameType, ProtocolError, checkAttempt, type FrameHeader } from '@paceline/protocol';
import type { Connection, FrameNumbers } from '../connection.js';
import { acquireRegion, bytesOf, type Region } from '../attempt/regions.js';
import type { ChunkBytes, OwnedChunk } from './chunks.js';
import { EncodedRegion, type WaitingChunks } from './encoded-region.js';
import type { PublishedChunk } from './published.js';
import { mostRowBytes, RowsRegion } from './rows.js';

/** Which vector a chunk is of: the sum of the gradients of replicas [lo, hi) in a round, or parameters of a generation. */
export interface VectorName {
  readonly type: FrameType;
  readonly round: number;
  readonly lo: number;
  readonly hi: number;
}

/** How the chunks of a run's gradients, or of its parameters, are encoded. */
export interface ChunkDecoder {
  /** In the header of a frame. */
  readonly codec: number;
  /** Others that may come, where the run picks its codec itself. */
  readonly others?: readonly number[];
  /** Chunks in this codec are differences to the generation before. */
  readonly difference?: number | undefined;
  /** Whether the chunk of this index may come in this codec: state comes as it is, and the others only where their codec leaves some as they are. */
  takes(chunk: number, codec: number): boolean;
  /** Whether a chunk of n float32 elements can take so many bytes. @param chunk its index */
  isLength(n: number, bytes: number, chunk: number, codec: number): boolean;
  /** Decodes `bytes` bytes of the arena into the region. False when nobody encodes so. */
  decode(header: FrameHeader, payload: Region, region: Region): boolean;
  /** At a server: chunks may wait as they came. Without it they are decoded when they are whole. */
  readonly waiting?: WaitingChunks | undefined;
}

/** At a worker: how parameters come that are encoded, and where they are decoded. */
export interface EncodedParameters {
  readonly decoder: ChunkDecoder;
  readonly arena: Arena;
}

type Send = (to: Connection, numbers: FrameNumbers, vector: VectorName, chunk: number, part: ChunkBytes, onFlushed: () => void) => void;

export const sendChunk: Send = (to, { attempt, term, view }, { type, round, lo, hi }, chunk, { codec, bytes }, onFlushed) =>
  to.sendData({ type, codec, attempt, term, view, round, nodeLo: lo, nodeHi: hi, chunk }, bytes, onFlushed);

/** Takes over one reference to the region, and lets it go when the bytes have left. */
export function sendRegion(to: Connection, numbers: FrameNumbers, vector: VectorName, chunk: number, region: Region): void {
  sendPublished(to, numbers, vector, chunk, { codec: Codec.none, region, bytes: region.bytes.length });
}

/** The same of a chunk that may be encoded. */
export function sendPublished(
  to: Connection,
  numbers: FrameNumbers,
  vector: VectorName,
  chunk: number,
  { codec, region, bytes }: PublishedChunk,
  onFlushed?: () => void,
): void {
  sendChunk(to, numbers, vector, chunk, { codec, bytes: region.first(bytes) }, () => {
    region.release();
    onFlushed?.();
  });
}

/**
 * Checks a frame before its payload is read.
 * @param chunk what the header names, where this side has it; `length` counts float32 elements
 * @param decoder of what may come encoded
 * @throws ProtocolError for what no peer sends
 */
export function checkChunk<C extends { readonly length: number }>(
  header: FrameHeader,
  type: FrameType,
  attempt: number,
  chunk: C | undefined,
  decoder?: Pick<ChunkDecoder, 'codec' | 'others' | 'takes' | 'isLength'>,
): asserts chunk is C {
  if (header.type !== type) throw new ProtocolError('BAD_FRAME', `a frame of type ${header.type} where only type ${type} is taken`);
  checkAttempt(header, attempt);
  const isEncoded = header.codec !== Codec.none;
  if (isEncoded && header.codec !== decoder?.codec && !decoder?.others?.includes(header.codec))
    throw new ProtocolError('BAD_CODEC', `codec ${header.codec} where ${decoder ? `${decoder.codec} or 0` : 'only 0'} is taken`);
  if (!chunk) throw new ProtocolError('UNKNOWN_CHUNK', `chunk ${header.chunk}`);
  if (decoder && !decoder.takes(header.chunk, header.codec))
    throw new ProtocolError('BAD_CODEC', `chunk ${header.chunk} in codec ${header.codec}, which the spec of the run does not have for it`);
  if (isEncoded) {
    if (decoder?.isLength(chunk.length, header.length, header.chunk, header.codec)) return;
    throw new ProtocolError('WRONG_LENGTH', `chunk ${header.chunk} does not take ${header.length} bytes in codec ${header.codec}`);
  }
  const bytes = bytesOf(chunk.length);
  if (header.length !== bytes) throw new ProtocolError('WRONG_LENGTH', `chunk ${header.chunk} has ${bytes} bytes, not ${header.length}`);
}

/** The same of a group of rows, whose length is that of the rows it brings. @throws ProtocolError */
export function checkRows(
  header: FrameHeader,
  attempt: number,
  { count, width }: { readonly count: number; readonly width: number },
): void {
  if (header.type !== FrameType.gradient)
    throw new ProtocolError('BAD_FRAME', `a frame of type ${header.type} where only gradients are taken`);
  checkAttempt(header, attempt);
  if (header.codec !== Codec.rows) throw new ProtocolError('BAD_CODEC', `codec ${header.codec} where rows are taken`);
  if (header.length > mostRowBytes(count, width))
    throw new ProtocolError('WRONG_LENGTH', `chunk ${header.chunk} has ${count} rows, not as many as ${header.length} bytes hold`);
}

let scratch = new Uint8Array(0);

/** Where a payload goes that will be dropped. The whole process shares it: nobody reads it, and a checksum is taken read by read, as the bytes come. */
export function scratchOf(bytes: number): Uint8Array {
  if (scratch.length < bytes) scratch = new Uint8Array(bytes);
  return scratch.subarray(0, bytes);
}

/** Receives the chunks of one connection into regions, one at a time. */
export class RegionReceiver {
  /** Where the payload goes: the chunk, or the bytes that it is decoded from. */
  private payload: Region | undefined;
  private encoded: { readonly header: FrameHeader; readonly chunk: OwnedChunk } | undefined;

  constructor(private readonly decoder?: ChunkDecoder) {}

  /** Where the payload goes. @param chunk undefined for a frame that will be dropped */
  receive(header: FrameHeader, chunk: OwnedChunk | undefined): Uint8Array {
    this.letGo();
    if (!chunk) return scratchOf(header.length);
    if (header.codec === Codec.none) this.payload = acquireRegion(chunk.arena, chunk.length);
    else {
      this.encoded = { header, chunk };
      this.payload = acquireRegion(chunk.arena, Math.ceil(header.length / Float32Array.BYTES_PER_ELEMENT));
    }
    return this.payload.bytes.subarray(0, header.length);
  }

  /**
   * The whole chunk, which is the caller's now; undefined when it went to scratch. Where chunks may wait it is as it came, until it is `decoded`.
   * @throws ProtocolError BAD_PAYLOAD
   */
  received(): Region | undefined {
    const { payload, encoded } = this;
    this.payload = undefined;
    this.encoded = undefined;
    return payload && encoded ? this.decode(payload, encoded.header, encoded.chunk) : payload;
  }

  /** What has come of a chunk is not wanted any more. */
  letGo(): void {
    this.payload?.release();
    this.payload = undefined;
    this.encoded = undefined;
  }

  private decode(payload: Region, header: FrameHeader, { arena, length, rows }: OwnedChunk): Region {
    if (rows) return RowsRegion.of(payload, header.length, rows.count, rows.width);
    const decoder = this.decoder!;
    if (decoder.waiting) return EncodedRegion.of(payload, { header, length, decoder, waiting: decoder.waiting });
    try {
      const region = acquireRegion(arena, length);
      if (decoder.decode(header, payload, region)) return region;
      region.release();
    } finally {
      payload.release();
    }
    throw new ProtocolError('BAD_PAYLOAD', `chunk ${header.chunk} in codec ${header.codec}`);
  }
}
