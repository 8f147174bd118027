/**
 * The few types of WebAssembly that are used here. TypeScript has them only in its `dom` library, which would bring the
 * names of a browser (`name`, `event`, `close`…) into every package that imports this one.
 */

/** A `WebAssembly.Memory` made with `shared: true`. It can be posted to other threads, which attach it. */
export interface SharedMemory {
  /** The memory as it is now: a new object after growth, the old one stays valid. */
  readonly buffer: ArrayBufferLike;
  /** Grows by this many pages of 64 KiB; returns the pages before. */
  grow(pages: number): number;
}

/** A `WebAssembly.Memory` that is not shared. */
export interface PlainMemory {
  /** Detached and replaced when the memory grows. */
  readonly buffer: ArrayBuffer;
}

export type CompiledModule = object;

interface WebAssemblyNamespace {
  readonly Memory: new (descriptor: { initial: number; maximum: number; shared: true }) => SharedMemory;
  readonly Module: new (bytes: Uint8Array) => CompiledModule;
  readonly Instance: new (
    module: CompiledModule,
    imports: { env?: { memory: SharedMemory | PlainMemory } },
  ) => { readonly exports: object };
  readonly validate: (bytes: Uint8Array) => boolean;
}

export const webAssembly = (globalThis as unknown as { WebAssembly: WebAssemblyNamespace }).WebAssembly;
