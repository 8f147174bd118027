/**
 * An arena: one shared WebAssembly memory with an allocator and the kernels over it. Parameters, slots and gradients of a
 * chunk lie in one arena, sockets read into it and write out of it, and other threads map it.
 *
 * One thread creates the arena and allocates; others attach its memory (`postMessage(arena.memory)`) and use kernels and
 * views. Growth never moves anything: views made before stay valid, they only do not see the new end.
 */
import { ALIGNMENT_BYTES, BlockAllocator } from './allocator.js';
import { rememberKernels } from './checksum.js';
import { instantiateKernels, type Kernels } from './kernels.js';
import { webAssembly, type SharedMemory } from './webassembly.js';

const PAGE_BYTES = 65_536;
/** WebAssembly memories end at 4 GiB. The kernels take all of it but the last page, so that no end of a range is address 0. */
export const ARENA_MAXIMUM_BYTES = 65_535 * PAGE_BYTES;
/** Growing by an eighth, at least 1 MiB, keeps the number of grow calls logarithmic. */
const LEAST_GROWTH_BYTES = 1 << 20;
/** Before it lies what belongs to the kernels; and so no block has pointer 0. */
const FIRST_BLOCK = 4 * ALIGNMENT_BYTES;

export interface ArenaOptions {
  /** Allocated at once; rounded up to 64 KiB. */
  readonly initialBytes: number;
  /** The arena never grows beyond this; at most 4 GiB less a page. Only address space is reserved. */
  readonly maximumBytes: number;
}

/** No block of the requested size is free and the memory cannot grow. Start another server, or raise the arena's maximum. */
export class ArenaFullError extends Error {
  override readonly name = 'ArenaFullError';
  readonly code = 'ARENA_FULL';
  constructor(
    readonly requestedBytes: number,
    readonly bytesInUse: number,
    readonly maximumBytes: number,
    cause?: unknown,
  ) {
    super(`The arena is full: ${requestedBytes} bytes were asked for, ${bytesInUse} of at most ${maximumBytes} are in use.`, { cause });
  }
}

export class Arena {
  readonly kernels: Kernels;
  private remembered: ArrayBufferLike | undefined;

  private constructor(
    readonly memory: SharedMemory,
    private readonly blocks: BlockAllocator | undefined,
    private readonly maximumBytes: number,
  ) {
    this.kernels = instantiateKernels(memory);
  }

  /**
   * @throws RangeError for sizes that make no sense
   * @throws KernelsMissingError when the package was not built
   */
  static create({ initialBytes, maximumBytes }: ArenaOptions): Arena {
    if (!(initialBytes > 0 && initialBytes <= maximumBytes && maximumBytes <= ARENA_MAXIMUM_BYTES)) {
      throw new RangeError(
        `An arena of ${initialBytes} to ${maximumBytes} bytes: sizes must be positive, in order, and at most ${ARENA_MAXIMUM_BYTES}.`,
      );
    }
    const initial = Math.ceil(initialBytes / PAGE_BYTES);
    const maximum = Math.ceil(maximumBytes / PAGE_BYTES);
    const memory = new webAssembly.Memory({ initial, maximum, shared: true });
    return new Arena(memory, new BlockAllocator(FIRST_BLOCK, memory.buffer.byteLength), maximum * PAGE_BYTES);
  }

  /** The arena of another thread: kernels and views, no allocation. */
  static attach(memory: SharedMemory): Arena {
    if (!(memory.buffer instanceof SharedArrayBuffer)) throw new TypeError('Arena.attach needs a shared memory.');
    return new Arena(memory, undefined, ARENA_MAXIMUM_BYTES);
  }

  /**
   * A block of at least `byteLength` bytes, 64-byte aligned. Its contents are whatever was there before.
   * @throws ArenaFullError
   */
  alloc(byteLength: number): number {
    const blocks = this.owned('alloc');
    if (!Number.isSafeInteger(byteLength) || byteLength <= 0)
      throw new RangeError(`alloc(${byteLength}): a positive whole number of bytes is needed.`);
    if (byteLength > this.maximumBytes) throw new ArenaFullError(byteLength, this.bytesInUse, this.maximumBytes);
    const pointer = blocks.take(byteLength);
    if (pointer !== undefined) return pointer;
    this.grow(blocks, byteLength);
    const grown = blocks.take(byteLength);
    if (grown === undefined) throw new Error(`The arena grew and still holds no block of ${byteLength} bytes.`);
    return grown;
  }

  /** Gives a block back. @throws Error when it is not in use: freed twice, or never allocated. */
  free(pointer: number): void {
    this.owned('free').give(pointer);
  }

  /** `count` float32 elements at `pointer`, as a view. Valid for ever, whether or not the arena grows. */
  f32(pointer: number, count: number): Float32Array<SharedArrayBuffer> {
    return new Float32Array(this.bufferUpTo(pointer + count * 4), pointer, count);
  }

  /** `byteLength` bytes at `pointer`, as a view. */
  bytes(pointer: number, byteLength: number): Uint8Array<SharedArrayBuffer> {
    return new Uint8Array(this.bufferUpTo(pointer + byteLength), pointer, byteLength);
  }

  /** Bytes of blocks in use, each rounded up to 64; 0 in a thread that only attached. */
  get bytesInUse(): number {
    return this.blocks?.bytesInUse ?? 0;
  }

  /** Bytes of the memory as it is now. */
  get bytesCapacity(): number {
    return this.memory.buffer.byteLength;
  }

  private owned(operation: string): BlockAllocator {
    if (!this.blocks) throw new Error(`${operation}: only the thread that created the arena may.`);
    return this.blocks;
  }

  private bufferUpTo(endBytes: number): SharedArrayBuffer {
    // Another thread's growth reaches this one with V8's next interrupt check; growing by nothing refreshes the buffer at once.
    if (endBytes > this.memory.buffer.byteLength) this.memory.grow(0);
    const { buffer } = this.memory;
    if (buffer !== this.remembered) rememberKernels((this.remembered = buffer), this.kernels);
    return buffer as SharedArrayBuffer;
  }

  private grow(blocks: BlockAllocator, byteLength: number): void {
    const capacity = this.bytesCapacity;
    const missing = Math.ceil(byteLength / ALIGNMENT_BYTES) * ALIGNMENT_BYTES - blocks.freeAtEndBytes;
    const wanted = Math.max(missing, LEAST_GROWTH_BYTES, capacity >>> 3);
    const possible = this.maximumBytes - capacity;
    if (missing > possible) throw new ArenaFullError(byteLength, this.bytesInUse, this.maximumBytes);
    try {
      this.memory.grow(Math.ceil(Math.min(wanted, possible) / PAGE_BYTES));
    } catch (cause) {
      throw new ArenaFullError(byteLength, this.bytesInUse, this.maximumBytes, cause);
    }
    blocks.extend(this.bytesCapacity);
  }
}
