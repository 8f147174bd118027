/**
 * The heap of the wasm backend as the training kernels see it: tensors by address, and scratch memory that is kept from
 * step to step. The kernels are a second WebAssembly module over the backend's own memory, so nothing is copied between them.
 */
import { EDGE_BYTES, instantiateTrainingKernels, type PlainMemory, type TrainingKernels, type TrainingVariant } from '@paceline/kernels';
import type * as tf from '@tensorflow/tfjs-core';
import type { BackendWasm } from '@tensorflow/tfjs-backend-wasm';

/** What Emscripten puts on its module beside what the type says. */
interface EmscriptenModule {
  readonly asm?: { readonly memory?: PlainMemory };
  _malloc(bytes: number): number;
  _free(address: number): void;
}

/** Named, because two that are in use at the same time must not be one. */
type ScratchName =
  | 'packed'
  | 'weights'
  | 'table'
  | 'rows'
  | 'edge'
  | 'tile'
  | 'image'
  | 'zeros'
  | 'carry'
  | 'carryCell'
  | 'entries'
  | 'starts'
  | 'begin'
  | 'transposed'
  | 'band'
  | 'scores'
  | 'run';

export class Heap {
  readonly kernels: TrainingKernels;
  private readonly scratches = new Map<ScratchName, { address: number; bytes: number }>();
  private readonly module: EmscriptenModule;

  constructor(
    private readonly backend: BackendWasm,
    variant: TrainingVariant,
  ) {
    this.module = backend.wasm as unknown as EmscriptenModule;
    const memory = this.module.asm?.memory;
    if (!memory) throw new Error('the wasm backend does not show its memory: it is not the version that this library was written for');
    this.kernels = instantiateTrainingKernels(memory, variant);
  }

  address({ dataId }: tf.TensorInfo): number {
    return this.backend.dataIdMap.get(dataId).memoryOffset;
  }

  /** The live values of a float32 tensor; valid until the next allocation. */
  floats(tensor: tf.TensorInfo): Float32Array {
    return this.backend.typedArrayFromHeap(tensor) as Float32Array;
  }

  /** A new tensor, not cleared; of bool an element has one byte. */
  output(shape: readonly number[], dtype: 'float32' | 'bool' = 'float32'): tf.TensorInfo {
    return this.backend.makeOutput(shape as number[], dtype);
  }

  dispose({ dataId }: tf.TensorInfo): void {
    this.backend.disposeData(dataId);
  }

  /** Memory of at least this size until the next call with the same name; what it holds is undefined. */
  scratch(name: ScratchName, bytes: number): number {
    const present = this.scratches.get(name);
    if (present && present.bytes >= bytes) return present.address;
    if (present) {
      this.scratches.delete(name);
      this.module._free(present.address);
    }
    const address = this.module._malloc(bytes) >>> 0;
    this.scratches.set(name, { address, bytes });
    return address;
  }

  /** Where the products keep the last, partial columns of a tile. */
  get edge(): number {
    return this.scratch('edge', EDGE_BYTES);
  }
}

const heaps = new WeakMap<object, Heap>();
let variant: TrainingVariant = 'plain';

/** Chooses the variant of the kernels. A thread has one: engines with another one would change the bits of the first. */
export function chooseVariant(chosen: TrainingVariant): void {
  if (chosen !== variant && isInUse) throw new Error(`this thread computes with the ${variant} kernels already`);
  variant = chosen;
  isInUse = true;
}

let isInUse = false;

/** The heap of the backend that a kernel was called with. */
export function heapOf(backend: unknown): Heap {
  let heap = heaps.get(backend as object);
  if (!heap) heaps.set(backend as object, (heap = new Heap(backend as BackendWasm, variant)));
  return heap;
}
