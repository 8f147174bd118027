/**
 * Sums in fewer bytes, over any route. Each member packs what it sends towards the owner, and whoever gets it unpacks it before it adds. The owner packs the sum once. All
 * members unpack these same bytes, the owner too, so all have the same sum; who passes them on sends them as they came. The way to the owner packs a sum once for each hop: once
 * with direct routes, twice over hosts, ⌈log₂ n⌉ times in a tree and n − 1 times in a ring.
 *
 *     sum of a member    pack -> frame -> unpack -> + ... -> the owner's sum
 *     the owner's sum    pack -> unpack, and frame -> unpack at all others
 */
import { piecesOf, type Piece } from './parts.js';

/** How the elements of a piece travel. Vectors are memory that the plan has allocated, or those that it was given. */
export interface Packing {
  /** In the header of a frame; 0 is a piece as it is. */
  readonly number: number;
  /** Elements from 0 on that are packed. Those behind them travel as float32: moving averages are used as they are, no later step would mend what is rounded. */
  readonly length: number;
  /** Bytes of so many elements. */
  bytes(elements: number): number;
  /** @param key numbers that no other piece of this plan has; random numbers follow from them */
  pack(from: Float32Array, into: Uint8Array, key: readonly number[]): void;
  /** @returns false when the bytes are none that `pack` writes */
  unpack(from: Uint8Array, into: Float32Array): boolean;
}

/** Memory for pieces while they are packed: the same in each operation. */
export class PackedPieces {
  private readonly memory = new Map<number, Uint8Array>();

  constructor(packing: Packing | undefined, pieces: readonly Piece[], allocate: (elements: number) => Float32Array) {
    if (!packing) return;
    for (const { index, offset, length } of pieces) {
      if (offset >= packing.length) continue;
      const bytes = packing.bytes(length);
      const { buffer, byteOffset } = allocate(Math.ceil(bytes / 4));
      this.memory.set(index, new Uint8Array(buffer, buffer.byteLength === 0 ? 0 : byteOffset, buffer.byteLength === 0 ? 0 : bytes));
    }
  }

  /** Undefined for a piece that travels as it is. */
  of({ index }: Piece): Uint8Array | undefined {
    return this.memory.get(index);
  }
}

/** Bytes of a vector as it travels once. */
export const packedBytes = (length: number, owners: number, packing: Packing | undefined): number =>
  piecesOf(length, owners, undefined, packing?.length).reduce(
    (sum, piece) => sum + (packing && piece.offset < packing.length ? packing.bytes(piece.length) : piece.length * 4),
    0,
  );
