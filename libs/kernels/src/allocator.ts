/**
 * The block allocator of an arena: two-level segregated fit (TLSF; Masmano et al., ECRTS 2004), constant time.
 *
 * Free blocks hang in lists by size class: a power of two, cut into 8 steps. A request takes the first block of the
 * smallest class whose blocks are all large enough, so blocks of one chunk size, which is what a server asks for, are
 * reused at once. Neighbours that are both free are joined on `free`, so there are never two free blocks side by side.
 * The book-keeping lives in JavaScript and not in the memory, where an overrun could break it.
 */

/** A cache line; also what keeps two blocks from sharing one. */
export const ALIGNMENT_BYTES = 64;

const STEP_BITS = 3;
const STEPS = 1 << STEP_BITS;
/** Sizes in units of ALIGNMENT_BYTES fit 26 bits (4 GiB). */
const CLASSES = 26;

interface Block {
  readonly pointer: number;
  /** In units of ALIGNMENT_BYTES. */
  units: number;
  free: boolean;
  before: Block | undefined;
  after: Block | undefined;
  previousFree: Block | undefined;
  nextFree: Block | undefined;
}

/** Index of the list a free block of this size hangs in: floor(log2) and the next 3 bits. */
function classOf(units: number): number {
  if (units < STEPS) return units;
  const power = 31 - Math.clz32(units);
  return (power - STEP_BITS + 1) * STEPS + ((units >>> (power - STEP_BITS)) & (STEPS - 1));
}

/** Smallest class all of whose blocks hold this size. */
function classHolding(units: number): number {
  if (units < STEPS) return units;
  const power = 31 - Math.clz32(units);
  return classOf(units + (1 << (power - STEP_BITS)) - 1);
}

export class BlockAllocator {
  private readonly heads: (Block | undefined)[] = new Array<Block | undefined>((CLASSES + 1) * STEPS).fill(undefined);
  /** Bit i of word w: list w·32+i is not empty. */
  private readonly bitmap = new Uint32Array(Math.ceil(this.heads.length / 32));
  private readonly used = new Map<number, Block>();
  private last: Block | undefined;
  bytesInUse = 0;

  /** @param endBytes where the managed range ends so far; it starts at `startBytes`, both multiples of 64. */
  constructor(
    startBytes: number,
    private endBytes: number,
  ) {
    this.endBytes = startBytes;
    this.extend(endBytes);
  }

  /** The managed range grows to `endBytes`. */
  extend(endBytes: number): void {
    const units = Math.floor((endBytes - this.endBytes) / ALIGNMENT_BYTES);
    if (units <= 0) return;
    const block: Block = {
      pointer: this.endBytes,
      units,
      free: true,
      before: this.last,
      after: undefined,
      previousFree: undefined,
      nextFree: undefined,
    };
    if (this.last) this.last.after = block;
    this.last = block;
    this.endBytes += units * ALIGNMENT_BYTES;
    this.insert(this.join(block));
  }

  /** Pointer of a block of at least `bytes`, or undefined when no free block is large enough. */
  take(bytes: number): number | undefined {
    const units = Math.ceil(bytes / ALIGNMENT_BYTES);
    const block = this.find(units);
    if (!block) return undefined;
    this.remove(block);
    if (block.units > units) {
      const rest: Block = {
        pointer: block.pointer + units * ALIGNMENT_BYTES,
        units: block.units - units,
        free: true,
        before: block,
        after: block.after,
        previousFree: undefined,
        nextFree: undefined,
      };
      if (block.after) block.after.before = rest;
      else this.last = rest;
      block.after = rest;
      block.units = units;
      this.insert(rest);
    }
    block.free = false;
    this.used.set(block.pointer, block);
    this.bytesInUse += units * ALIGNMENT_BYTES;
    return block.pointer;
  }

  /** Gives a block back. @throws Error when the pointer is not that of a block in use: freed twice, or never taken. */
  give(pointer: number): void {
    const block = this.used.get(pointer);
    if (!block) throw new Error(`free(${pointer}): no block in use starts there; was it freed twice?`);
    this.used.delete(pointer);
    this.bytesInUse -= block.units * ALIGNMENT_BYTES;
    block.free = true;
    this.insert(this.join(block));
  }

  /** Bytes that are free at the end of the range, where growth would add to. */
  get freeAtEndBytes(): number {
    return this.last?.free ? this.last.units * ALIGNMENT_BYTES : 0;
  }

  /** Joins a block that hangs in no list with its free neighbours; the earliest of them is what remains. */
  private join(block: Block): Block {
    let first = block;
    if (block.before?.free) {
      first = block.before;
      this.remove(first);
      this.swallow(first, block);
    }
    if (first.after?.free) {
      const next = first.after;
      this.remove(next);
      this.swallow(first, next);
    }
    return first;
  }

  private swallow(first: Block, next: Block): void {
    first.units += next.units;
    first.after = next.after;
    if (next.after) next.after.before = first;
    else this.last = first;
  }

  private find(units: number): Block | undefined {
    const from = classHolding(units);
    for (let word = from >>> 5; word < this.bitmap.length; word++) {
      let bits = this.bitmap[word]!;
      if (word === from >>> 5) bits &= -1 << (from & 31);
      if (bits !== 0) return this.heads[word * 32 + (31 - Math.clz32(bits & -bits))];
    }
    // The class below may hold a block that just fits: worth one look when the alternative is to grow.
    const near = this.heads[classOf(units)];
    return near && near.units >= units ? near : undefined;
  }

  private insert(block: Block): void {
    const index = classOf(block.units);
    const head = this.heads[index];
    block.previousFree = undefined;
    block.nextFree = head;
    if (head) head.previousFree = block;
    this.heads[index] = block;
    this.bitmap[index >>> 5]! |= 1 << (index & 31);
  }

  private remove(block: Block): void {
    const index = classOf(block.units);
    if (block.previousFree) block.previousFree.nextFree = block.nextFree;
    else this.heads[index] = block.nextFree;
    if (block.nextFree) block.nextFree.previousFree = block.previousFree;
    if (!this.heads[index]) this.bitmap[index >>> 5]! &= ~(1 << (index & 31));
  }
}
