/**
 * Checksums of bytes wherever they lie: XXH3-64, cut to 32 bits (assembly/checksum.ts). WebAssembly reads its own memory alone:
 *
 *   in an arena, or made by `sharedBuffer`   summed where they lie
 *   anywhere else                            copied piece by piece into a window of 32 KiB, which stays in the cache, and summed there
 */
import { instantiateChecksumParts, instantiateKernels, type ChecksumParts, type Kernels } from './kernels.js';
import { webAssembly } from './webassembly.js';

const PAGE_BYTES = 65_536;
/** The compiled kernels take no larger memory. */
const MAXIMUM_PAGES = 65_535;
const BLOCK_BYTES = 1024;
/** Up to so many are not summed in blocks. */
const SHORT_BYTES = 240;

const kernelsByBuffer = new WeakMap<ArrayBufferLike, Pick<Kernels, 'checksum'>>();

/** Registers the kernels that work over a memory. Code that makes a view of a memory calls it. */
export function rememberKernels(buffer: ArrayBufferLike, kernels: Pick<Kernels, 'checksum'>): void {
  kernelsByBuffer.set(buffer, kernels);
}

/**
 * Shared memory for so many bytes, whose checksums in this thread need no copy. What follows them belongs to the kernels. Beyond 4 GiB it is a plain one.
 */
export function sharedBuffer(byteLength: number): SharedArrayBuffer {
  const secretAt = Math.ceil(byteLength / 64) * 64;
  const pages = Math.ceil((secretAt + SECRET_ROOM) / PAGE_BYTES);
  if (pages > MAXIMUM_PAGES) return new SharedArrayBuffer(byteLength);
  const memory = new webAssembly.Memory({ initial: pages, maximum: pages, shared: true });
  rememberKernels(memory.buffer, instantiateKernels(memory, secretAt));
  return memory.buffer as SharedArrayBuffer;
}

/** Whether the checksum of these bytes is taken where they lie. */
export const isSummedInPlace = ({ buffer }: Uint8Array): boolean => kernelsByBuffer.has(buffer);

export function checksumOf(bytes: Uint8Array): number {
  const kernels = kernelsByBuffer.get(bytes.buffer);
  return kernels ? kernels.checksum(bytes.byteOffset, bytes.byteLength) : new ChecksumStream().add(bytes).digest();
}

// The window: secret, accumulators, the 64 bytes before the rest, the rest of earlier pieces and the next piece.
const SECRET_ROOM = 256;
const STATE_AT = SECRET_ROOM;
const BEFORE_BYTES = 64;
const REST_AT = STATE_AT + 64 + BEFORE_BYTES;
const PIECE_BYTES = 32_768;

let window: { readonly bytes: Uint8Array; readonly kernels: ChecksumParts } | undefined;

function openWindow(): NonNullable<typeof window> {
  if (window) return window;
  const memory = new webAssembly.Memory({ initial: 1, maximum: 1, shared: true });
  window = { bytes: new Uint8Array(memory.buffer), kernels: instantiateChecksumParts(memory) };
  return window;
}

/** The checksum of bytes that come in pieces, through the window. Several may be under way: each keeps what it needs. */
export class ChecksumStream {
  /** Accumulators, the last 64 bytes that they took, and the bytes that wait: at most a block, as the last one is taken by `digest`. */
  private readonly kept = new Uint8Array(REST_AT - STATE_AT + BLOCK_BYTES);
  private rest = 0;
  private total = 0;

  add(piece: Uint8Array): this {
    const { bytes, kernels } = this.resume();
    for (let at = 0; at < piece.length;) {
      const count = Math.min(piece.length - at, PIECE_BYTES);
      bytes.set(piece.subarray(at, at + count), REST_AT + this.rest);
      at += count;
      this.rest += count;
      const blocks = Math.ceil(this.rest / BLOCK_BYTES) - 1;
      if (blocks <= 0) continue;
      kernels.checksumBlocks(REST_AT, blocks);
      const next = REST_AT + blocks * BLOCK_BYTES;
      this.rest -= blocks * BLOCK_BYTES;
      bytes.copyWithin(REST_AT - BEFORE_BYTES, next - BEFORE_BYTES, next + this.rest);
    }
    this.total += piece.length;
    kernels.checksumSave(STATE_AT);
    this.kept.set(bytes.subarray(STATE_AT, REST_AT + this.rest));
    return this;
  }

  /** Checksum of everything that was added. */
  digest(): number {
    const { kernels } = this.resume();
    const { rest, total } = this;
    return (total <= SHORT_BYTES ? kernels.checksum(REST_AT, total) : kernels.checksumEnd(REST_AT, rest, total)) >>> 0;
  }

  private resume(): NonNullable<typeof window> {
    const opened = openWindow();
    opened.bytes.set(this.kept.subarray(0, REST_AT - STATE_AT + this.rest), STATE_AT);
    if (this.total === 0) opened.kernels.checksumBegin();
    else opened.kernels.checksumLoad(STATE_AT);
    return opened;
  }
}
