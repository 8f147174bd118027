/**
 * Which layer and which operation leave something behind: one step is watched, and what is still there at its end is counted by where it was
 * made. Operations of the way back belong to the layer whose operation they are the gradient of. The step computes what it computes without.
 *
 * tf.js has no hook for this, and its profile tells sums and not makers: for the length of the step four methods of its engine are covered
 * on the instance.
 */
import * as tf from '@tensorflow/tfjs-core';
import type * as tfl from '@tensorflow/tfjs-layers';

/** What one step left behind of one operation. */
export interface Kept {
  /** Name and class, `dense_2 (Dense)`; null outside of all layers. */
  readonly layer: string | null;
  /** tf.js' name of the kernel, `gradient of` it on the way back. */
  readonly op: string;
  readonly tensors: number;
  /** Values in the backend that no tensor names. */
  readonly buffers: number;
  /** Bytes of the tensors. */
  readonly bytes: number;
}

interface TapeNode {
  gradient?: (dys: tf.Tensor[]) => unknown;
}

/** What of tf.js' engine is used and not in its type. */
interface Internals {
  readonly state: { readonly activeTape: TapeNode[] | null; readonly numDataBuffers: number };
  readonly backend: { numDataIds(): number };
  trackTensor(tensor: tf.Tensor, backend: unknown): void;
  disposeTensor(tensor: tf.Tensor): void;
  addTapeNode(kernelName: string, ...rest: unknown[]): void;
  runKernelFunc(kernel: { readonly kernelName?: string }): unknown;
}

const METHODS = ['trackTensor', 'disposeTensor', 'addTapeNode', 'runKernelFunc'] as const;
const NEW_TENSOR = 'a new tensor';
const CUSTOM = 'a custom operation';

interface Place {
  readonly layer: string | null;
  readonly op: string;
}

class Trace {
  private place: Place = { layer: null, op: NEW_TENSOR };
  private readonly tensors = new Map<number, Place & { readonly bytes: number }>();
  private readonly buffers = new Map<string, Place & { count: number }>();
  /** Unnamed values that operations inside of the present one have left already. */
  private left = 0;

  constructor(private readonly engine: Internals) {}

  /** Covers the methods until the returned function is called. */
  cover(): () => void {
    const { engine } = this;
    const [track, dispose, addNode, runKernel] = METHODS.map((name) => engine[name].bind(engine)) as unknown as [
      Internals['trackTensor'],
      Internals['disposeTensor'],
      Internals['addTapeNode'],
      Internals['runKernelFunc'],
    ];
    engine.trackTensor = (tensor, backend) => {
      track(tensor, backend);
      this.tensors.set(tensor.id, { ...this.place, bytes: tensor.size * tf.util.bytesPerElement(tensor.dtype) });
    };
    engine.disposeTensor = (tensor) => {
      dispose(tensor);
      this.tensors.delete(tensor.id);
    };
    engine.addTapeNode = (kernelName, ...rest) => {
      addNode(kernelName, ...rest);
      const node = engine.state.activeTape?.at(-1);
      const { gradient } = node ?? {};
      const place = { layer: this.place.layer, op: `gradient of ${kernelName || CUSTOM}` };
      if (node && gradient) node.gradient = (dys) => this.within(place, () => gradient(dys));
    };
    engine.runKernelFunc = (kernel) => this.kernel(kernel.kernelName ?? CUSTOM, () => runKernel(kernel));
    return () => {
      for (const name of METHODS) Reflect.deleteProperty(engine, name); // the class's own are seen again
    };
  }

  within<T>(place: Place, act: () => T): T {
    const outer = this.place;
    this.place = place;
    try {
      return act();
    } finally {
      this.place = outer;
    }
  }

  kept(): Kept[] {
    const byPlace = new Map<string, Kept>();
    const add = ({ layer, op }: Place, more: Omit<Kept, 'layer' | 'op'>): void => {
      const key = JSON.stringify([layer, op]);
      const { tensors, buffers, bytes } = byPlace.get(key) ?? { tensors: 0, buffers: 0, bytes: 0 };
      byPlace.set(key, {
        layer,
        op,
        tensors: tensors + more.tensors,
        buffers: buffers + more.buffers,
        bytes: bytes + more.bytes,
      });
    };
    for (const { bytes, ...place } of this.tensors.values()) add(place, { tensors: 1, buffers: 0, bytes });
    for (const { count, ...place } of this.buffers.values()) if (count > 0) add(place, { tensors: 0, buffers: count, bytes: 0 });
    return [...byPlace.values()].sort((a, b) => b.bytes - a.bytes || b.tensors + b.buffers - a.tensors - a.buffers);
  }

  private kernel<T>(name: string, run: () => T): T {
    // A gradient is the suspect, not the kernels that it is made of.
    const op = this.place.op.startsWith('gradient of ') ? this.place.op : name;
    const place = { layer: this.place.layer, op };
    const before = this.unnamed();
    const leftBefore = this.left;
    const result = this.within(place, run);
    const count = this.unnamed() - before - (this.left - leftBefore);
    if (count !== 0) {
      const key = JSON.stringify([place.layer, op]);
      this.buffers.set(key, { ...place, count: (this.buffers.get(key)?.count ?? 0) + count });
      this.left += count;
    }
    return result;
  }

  private unnamed(): number {
    return this.engine.backend.numDataIds() - this.engine.state.numDataBuffers;
  }
}

/** Runs one step, and says what it left behind, most bytes first. */
export function traceKept<T>(layers: readonly tfl.layers.Layer[], step: () => T): { result: T; kept: Kept[] } {
  const tracing = startTracing(layers);
  try {
    const result = step();
    return { result, kept: tracing.kept() };
  } finally {
    tracing.end();
  }
}

/** The same for a step that waits for a GPU; nothing else may use tf.js in this thread meanwhile. */
export async function traceKeptMeanwhile<T>(
  layers: readonly tfl.layers.Layer[],
  step: () => Promise<T>,
): Promise<{ result: T; kept: Kept[] }> {
  const tracing = startTracing(layers);
  try {
    const result = await step();
    return { result, kept: tracing.kept() };
  } finally {
    tracing.end();
  }
}

function startTracing(layers: readonly tfl.layers.Layer[]): { kept(): Kept[]; end(): void } {
  const trace = new Trace(tf.engine() as unknown as Internals);
  const uncover = trace.cover();
  const applies = layers.map((layer) => layer.apply);
  layers.forEach((layer, i) => {
    const place = { layer: `${layer.name} (${layer.getClassName()})`, op: NEW_TENSOR };
    layer.apply = (...args) => trace.within(place, () => applies[i]!.apply(layer, args));
  });
  return {
    kept: () => trace.kept(),
    end: () => {
      layers.forEach((layer, i) => (layer.apply = applies[i]!));
      uncover();
    },
  };
}
