/**
 * The sum of a node, of the range of one server, in fewer bytes. What is trained is cut into pieces, which a codec writes one behind the other, each from a multiple of four bytes on;
 * what layers keep follows as float32: it is used as it is, and no later step would mend what is rounded.
 *
 *     range     | piece 0 | piece 1 | … | state of layers |
 *     message   | encoded | encoded | … | float32         |
 */
import { PIECE_LENGTH, type Packing, type Range } from '@paceline/collectives';
import type { Kernels } from '@paceline/kernels';

const FLOAT_BYTES = 4;
const aligned = (bytes: number): number => Math.ceil(bytes / FLOAT_BYTES) * FLOAT_BYTES;

interface Part extends Range {
  /** Place in the message, in bytes. */
  readonly at: number;
  readonly bytes: number;
}

/** Numbers that no other sum has: random numbers follow from them. */
export interface SumKey {
  readonly round: number;
  readonly server: number;
  /** The first replica of the node. */
  readonly lo: number;
}

export class PackedRange {
  /** Length of a message, a multiple of four. */
  readonly bytes: number;
  private readonly pieces: readonly Part[];
  private readonly state: Part;

  constructor(
    private readonly packing: Packing,
    { offset, length }: Range,
  ) {
    const trained = Math.min(Math.max(packing.length - offset, 0), length);
    const pieces: Part[] = [];
    let at = 0;
    for (let from = 0; from < trained; from += PIECE_LENGTH) {
      const piece = { offset: from, length: Math.min(PIECE_LENGTH, trained - from) };
      const bytes = packing.bytes(piece.length);
      pieces.push({ ...piece, at, bytes });
      at = aligned(at + bytes);
    }
    this.pieces = pieces;
    this.state = { offset: trained, length: length - trained, at, bytes: (length - trained) * FLOAT_BYTES };
    this.bytes = at + this.state.bytes;
  }

  /**
   * @param values the sum over the range
   * @param into a message
   * Both lie in the arena of the packing.
   */
  pack(values: Float32Array, into: Uint8Array, { round, server, lo }: SumKey): void {
    for (const [i, { offset, length, at, bytes }] of this.pieces.entries())
      this.packing.pack(values.subarray(offset, offset + length), into.subarray(at, at + bytes), [round, server, lo, i]);
    const { offset, length, at } = this.state;
    const kept = values.subarray(offset, offset + length);
    into.set(new Uint8Array(kept.buffer, kept.byteOffset, kept.byteLength), at);
  }

  /**
   * The same with error feedback (Karimireddy et al. 2019): what a sum leaves out is kept, and added to the next one.
   * @param values afterwards with what is added
   * @param rest what the sum before has left, over what is trained of the range. In the arena too
   * @param growth examples of this step, over those of the step before
   */
  packWith(values: Float32Array, rest: Float32Array, into: Uint8Array, key: SumKey, kernels: Kernels, growth: number): void {
    kernels.sgd(values.byteOffset, values.byteOffset, rest.byteOffset, rest.length, 1, -growth); // values += growth · rest
    this.pack(values, into, key);
  }

  /** What a sum has left, from the values and the message of `packWith`: only when the step counts, since otherwise what the sum before has left is still to come. */
  keepRest(values: Float32Array, rest: Float32Array, message: Uint8Array, kernels: Kernels): void {
    const { length: trained } = rest;
    for (const { offset, length, at, bytes } of this.pieces)
      this.packing.unpack(message.subarray(at, at + bytes), rest.subarray(offset, offset + length));
    kernels.sgd(values.byteOffset, rest.byteOffset, rest.byteOffset, trained, 1, 1); // rest = values − what will be decoded
    if (!kernels.allFinite(rest.byteOffset, trained)) rest.fill(0);
  }

  /** Elements of the range that are trained. */
  get trained(): number {
    return this.state.offset;
  }

  /** @returns false when the bytes are none that `pack` writes */
  unpack(from: Uint8Array, values: Float32Array): boolean {
    if (from.length !== this.bytes) return false;
    for (const { offset, length, at, bytes } of this.pieces)
      if (!this.packing.unpack(from.subarray(at, at + bytes), values.subarray(offset, offset + length))) return false;
    const { offset, length, at, bytes } = this.state;
    const kept = values.subarray(offset, offset + length);
    new Uint8Array(kept.buffer, kept.byteOffset, kept.byteLength).set(from.subarray(at, at + bytes));
    return true;
  }
}
