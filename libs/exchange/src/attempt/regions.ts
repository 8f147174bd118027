/**
 * Reference-counted regions of arenas. A region handed to a socket is not reused before the write's callback (docs/protocol.md §3.5),
 * so generations of parameters are not two fixed buffers but regions: a chunk's region of generation k goes back to the
 * arena when round k is committed and the last socket has let go of it.
 */
import type { Arena } from '@paceline/kernels';

/** Bytes of `length` float32 elements. */
export const bytesOf = (length: number): number => length * Float32Array.BYTES_PER_ELEMENT;

export class Region {
  private references = 1;
  bytes: Uint8Array;
  /** What the last addition has found, of a sum. */
  private isFiniteSum: boolean | undefined;
  private prefix: Uint8Array | undefined;

  constructor(
    readonly arena: Arena,
    public pointer: number,
    /** Float32 elements. */
    public length: number,
    /** Where the block of the arena begins that it lies in. */
    private block = pointer,
  ) {
    this.bytes = arena.bytes(pointer, bytesOf(length));
  }

  /** It lies in another block from now on; the former one goes back to the arena. */
  protected moveTo(pointer: number, length: number): void {
    this.arena.free(this.block);
    Object.assign(this, {
      pointer,
      length,
      block: pointer,
      bytes: this.arena.bytes(pointer, bytesOf(length)),
      isFiniteSum: undefined,
      prefix: undefined,
    });
  }

  /** The first bytes of it, for a send: the same view each time, by which the checksum of what goes to several peers is known. */
  first(byteLength: number): Uint8Array {
    if (byteLength === this.bytes.length) return this.bytes;
    if (this.prefix?.length !== byteLength) this.prefix = this.bytes.subarray(0, byteLength);
    return this.prefix;
  }

  get floats(): Float32Array {
    return this.arena.f32(this.pointer, this.length);
  }

  /** Changes its memory for that of another region of the arena. */
  protected exchange(other: Region): void {
    const { pointer, length, block, bytes } = this;
    const unknown = { isFiniteSum: undefined, prefix: undefined };
    Object.assign(this, { pointer: other.pointer, length: other.length, block: other.block, bytes: other.bytes, ...unknown });
    Object.assign(other, { pointer, length, block, bytes, ...unknown });
  }

  /** As float32, where it may have waited as it came. */
  decoded(): this {
    return this;
  }

  /** += another region, which is not used afterwards. */
  add(from: Region): void {
    this.isFiniteSum = from.addTo(this);
  }

  /** Adds its elements to those of a sum. It finds out on the way whether that is finite: no further pass over the memory is needed for that. */
  protected addTo(sum: Region): boolean | undefined {
    return this.arena.kernels.addFinite(sum.pointer, this.pointer, sum.length);
  }

  /** Whether it has neither NaN nor infinity: of what has come, or of a sum that was not changed since its last addition. */
  get isFinite(): boolean {
    return this.isFiniteSum ?? this.arena.kernels.allFinite(this.pointer, this.length);
  }

  /** It holds something else now: nothing is known of it any more. */
  overwritten(): void {
    this.isFiniteSum = undefined;
  }

  /** Somebody else reads it: a socket, a copy that is kept. It must not be written. */
  get isShared(): boolean {
    return this.references > 1;
  }

  retain(): this {
    if (this.references <= 0) throw new Error('a released region was retained');
    this.references++;
    return this;
  }

  release(): void {
    if (this.references <= 0) throw new Error('a region was released twice');
    if (--this.references === 0) this.arena.free(this.block);
  }
}

/** Takes a region of `length` float32 elements out of an arena. @throws ArenaFullError */
export function acquireRegion(arena: Arena, length: number): Region {
  return new Region(arena, arena.alloc(bytesOf(length)), length);
}

export function releaseRegions(regions: readonly Region[]): void {
  for (const region of regions) region.release();
}

/** Region operations for a reduction tree: `into += from`, and release. */
export const regionSum = {
  add(into: Region, from: Region): void {
    into.add(from);
  },
  release(region: Region): void {
    region.release();
  },
};
