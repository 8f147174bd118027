/**
 * What a codec keeps of each replica, chunk by chunk in data frames: from workers to the checkpoint that a shard writes, from a checkpoint to the workers that
 * go on from it, and by way of a shard from a worker that gives a replica away to the one that has it next. Who wants a chunk pulls it (`residual-pull`);
 * the answer is a frame of type residual, empty where it is not there. So neither side has more of them in memory than it has pulled.
 */
import { Codec, FrameType, ProtocolError, type FrameHeader } from '@paceline/protocol';
import type { Connection, FrameNumbers } from '../connection.js';
import { bytesOf } from '../attempt/regions.js';

/** What a round has left of a replica: float32 elements, all chunks in the order of the layout. */
export interface ReplicaResidual {
  readonly replica: number;
  readonly values: Float32Array<ArrayBuffer>;
}

/** A chunk of it. */
export interface ResidualName {
  /** The round that has left it. */
  readonly round: number;
  readonly replica: number;
  readonly chunk: number;
}

/** What one round has left of all replicas in the chunks of a shard, for the writer of a checkpoint: in the order of `names`, one at a time. */
export interface GatheredResiduals {
  readonly names: readonly ResidualName[];
  /** Float32 elements. */
  lengthOf(name: ResidualName): number;
  /** @param piece place in `names`. Undefined: nobody has it. It never rejects */
  read(piece: number): Promise<Uint8Array | undefined>;
  /** Nobody waits for the checkpoint any more. */
  abandon(): void;
}

/** What the checkpoint has that an attempt begins with. */
export interface StoredResiduals {
  /** The round that has left it: the one before the checkpoint. */
  readonly round: number;
  /** Undefined where the checkpoint does not have it. It never rejects. */
  read(replica: number, chunk: number): Promise<Uint8Array | undefined>;
}

/** Where each chunk lies in what is kept of a replica. */
export class ResidualLayout {
  private readonly offsets: readonly number[];
  readonly totalLength: number;

  /** @param lengths float32 elements that are kept of each chunk of the layout; 0: none */
  constructor(
    private readonly lengths: readonly number[],
    readonly replicas: number,
  ) {
    let total = 0;
    this.offsets = lengths.map((length) => (total += length) - length);
    this.totalLength = total;
  }

  lengthOf(chunk: number): number {
    return this.lengths[chunk] ?? 0;
  }

  /** Those of `chunks` of which something is kept. */
  kept(chunks: readonly number[]): number[] {
    return chunks.filter((chunk) => this.lengthOf(chunk) > 0);
  }

  part(values: Float32Array, chunk: number): Uint8Array {
    return new Uint8Array(values.buffer, values.byteOffset + bytesOf(this.offsets[chunk]!), bytesOf(this.lengthOf(chunk)));
  }

  /** Before a payload is read. @throws ProtocolError */
  check({ chunk, codec, length }: FrameHeader): void {
    const floats = this.lengthOf(chunk);
    if (floats === 0) throw new ProtocolError('UNKNOWN_CHUNK', `nothing is kept of chunk ${chunk}`);
    if (codec !== Codec.none) throw new ProtocolError('BAD_CODEC', `codec ${codec} of what is kept of a replica`);
    if (length > 0 && length !== bytesOf(floats))
      throw new ProtocolError('WRONG_LENGTH', `of chunk ${chunk} ${bytesOf(floats)} bytes are kept, not ${length}`);
  }
}

const NOTHING = new Uint8Array(0);

export function sendResidualPull(to: Connection, numbers: FrameNumbers, name: ResidualName): void {
  to.sendMessage({ type: 'residual-pull', ...name }, numbers);
}

/** @param bytes undefined: it is not here */
export function sendResidual(
  to: Connection,
  { attempt, term, view }: FrameNumbers,
  { round, replica, chunk }: ResidualName,
  bytes: Uint8Array | undefined,
  onFlushed?: () => void,
): void {
  const header = { type: FrameType.residual, codec: Codec.none, attempt, term, view, round, nodeLo: replica, nodeHi: replica + 1, chunk };
  to.sendData(header, bytes ?? NOTHING, onFlushed);
}
