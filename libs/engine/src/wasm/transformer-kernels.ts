/**
 * Attention, layer normalisation and GELU on the heap, forward and backward. Attention works on the heads where they lie, side by side in the rows
 * of the projections: nothing is transposed or copied. What each head looks at is an input that the forward kernel fills, so that the
 * tape keeps it for the gradient, as with the moments of the normalisation.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { Attend, AttentionSizes, Projected } from '../layers/attention.js';
import { heapOf, type Heap } from './heap.js';
import { empty } from './passes.js';
import { multiply } from './products.js';

const FLOAT = 4;
const ATTENTION = 'PacelineAttention';
const ATTENTION_GRADIENT = 'PacelineAttentionGradient';
const LAYER_NORM = 'PacelineLayerNorm';
const LAYER_NORM_GRADIENT = 'PacelineLayerNormGradient';
const GELU = 'PacelineGelu';
const GELU_GRADIENT = 'PacelineGeluGradient';

type Call = Parameters<tf.KernelFunc>[0];
type Named = Readonly<Record<string, tf.TensorInfo>>;

const asAttrs = (attrs: object): tf.NamedAttrMap => ({ ...attrs });

/** Of one tensor [batch, steps, heads · size]: where the rows of a head begin, and how far apart they are. */
interface Heads {
  readonly address: number;
  readonly steps: number;
  readonly size: number;
}

interface Attention {
  readonly heap: Heap;
  readonly sizes: AttentionSizes;
  readonly batch: number;
  readonly query: Heads;
  readonly key: Heads;
  readonly value: Heads;
  readonly weights: number;
  readonly scale: number;
}

function open(call: Call): Attention {
  const { query, key, value, weights } = call.inputs as Named;
  const heap = heapOf(call.backend);
  const sizes = call.attrs as unknown as AttentionSizes;
  const heads = (tensor: tf.TensorInfo, size: number): Heads => ({ address: heap.address(tensor), steps: tensor.shape[1]!, size });
  return {
    heap,
    sizes,
    batch: query!.shape[0]!,
    query: heads(query!, sizes.keyDim),
    key: heads(key!, sizes.keyDim),
    value: heads(value!, sizes.valueDim),
    weights: heap.address(weights!),
    scale: Math.fround(1 / Math.sqrt(sizes.keyDim)),
  };
}

/** Calls `visit` for each head of each example, with where its scores lie in [batch, heads, queries, keys], counted from 0. */
function eachHead({ batch, sizes, query, key }: Attention, visit: (example: number, head: number, scores: number) => void): void {
  const bytes = query.steps * key.steps * FLOAT;
  for (let i = 0; i < batch * sizes.heads; i++) visit(Math.floor(i / sizes.heads), i % sizes.heads, i * bytes);
}

const placeOf = ({ address, steps, size }: Heads, heads: number, example: number, head: number): number =>
  address + (example * steps * heads + head) * size * FLOAT;

function attendForward(call: Call): tf.TensorInfo {
  const attention = open(call);
  const { heap, sizes, batch, query, key, value, weights, scale } = attention;
  const { heads } = sizes;
  const out = heap.output([batch, query.steps, heads * value.size]);
  const seen: Heads = { address: heap.address(out), steps: query.steps, size: value.size };
  eachHead(attention, (example, head, at) => {
    const place = (one: Heads): number => placeOf(one, heads, example, head);
    multiply(heap, {
      a: place(query),
      b: place(key),
      c: weights + at,
      transposeB: true,
      m: query.steps,
      n: key.steps,
      k: key.size,
      strides: { a: heads * key.size, b: heads * key.size, c: key.steps },
    });
    heap.kernels.softmaxRows(weights + at, query.steps, key.steps, scale, sizes.isCausal ? 1 : 0);
    multiply(heap, {
      a: weights + at,
      b: place(value),
      c: place(seen),
      m: query.steps,
      n: value.size,
      k: key.steps,
      strides: { a: key.steps, b: heads * value.size, c: heads * value.size },
    });
  });
  return out;
}

function attendBackward(call: Call): tf.TensorInfo[] {
  const attention = open(call);
  const { heap, sizes, batch, query, key, value, weights, scale } = attention;
  const { heads } = sizes;
  const { dy } = call.inputs as Named;
  const outputs = [query, key, value].map(({ steps, size }) => heap.output([batch, steps, heads * size]));
  const scores = heap.scratch('scores', query.steps * key.steps * FLOAT);
  const [dQuery, dKey, dValue] = [query, key, value].map((one, i) => ({ ...one, address: heap.address(outputs[i]!) })) as [
    Heads,
    Heads,
    Heads,
  ];
  const back: Heads = { address: heap.address(dy!), steps: query.steps, size: value.size };
  const [keyRow, valueRow] = [heads * key.size, heads * value.size];
  eachHead(attention, (example, head, at) => {
    const place = (one: Heads): number => placeOf(one, heads, example, head);
    multiply(heap, {
      a: place(back),
      b: place(value),
      c: scores,
      transposeB: true,
      m: query.steps,
      n: key.steps,
      k: value.size,
      strides: { a: valueRow, b: valueRow, c: key.steps },
    });
    heap.kernels.softmaxRowsGradient(weights + at, scores, query.steps, key.steps, scale, sizes.isCausal ? 1 : 0);
    multiply(heap, {
      a: scores,
      b: place(key),
      c: place(dQuery),
      m: query.steps,
      n: key.size,
      k: key.steps,
      strides: { a: key.steps, b: keyRow, c: keyRow },
    });
    multiply(heap, {
      a: scores,
      b: place(query),
      c: place(dKey),
      transposeA: true,
      m: key.steps,
      n: key.size,
      k: query.steps,
      strides: { a: key.steps, b: keyRow, c: keyRow },
    });
    multiply(heap, {
      a: weights + at,
      b: place(back),
      c: place(dValue),
      transposeA: true,
      m: key.steps,
      n: value.size,
      k: query.steps,
      strides: { a: key.steps, b: valueRow, c: valueRow },
    });
  });
  return outputs;
}

/** In place of the operations of `layers/attention.ts`. */
export const attendInKernel: Attend = ({ query, key, value }: Projected, sizes) => {
  const weights = empty([query.shape[0], sizes.heads, query.shape[1], key.shape[1]]);
  return tf.engine().runKernel(ATTENTION, { query, key, value, weights }, asAttrs(sizes));
};

const attentionGradient: tf.GradConfig = {
  kernelName: ATTENTION,
  inputsToSave: ['query', 'key', 'value', 'weights'],
  gradFunc: (dy, saved, attrs) => {
    const [query, key, value, weights] = saved as [tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor];
    const inputs = { dy: dy as tf.Tensor, query, key, value, weights };
    const [dQuery, dKey, dValue] = tf.engine().runKernel(ATTENTION_GRADIENT, inputs, attrs) as unknown as [tf.Tensor, tf.Tensor, tf.Tensor];
    return { query: () => dQuery, key: () => dKey, value: () => dValue };
  },
};

/** Over the last axis. */
export function layerNorm(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, epsilon: number): tf.Tensor {
  const moments = empty([tf.util.sizeFromShape(x.shape.slice(0, -1)), 2]);
  return tf.engine().runKernel(LAYER_NORM, { x, gamma, beta, moments }, { epsilon });
}

function normForward(call: Call): tf.TensorInfo {
  const { x, gamma, beta, moments } = call.inputs as Named;
  const heap = heapOf(call.backend);
  const out = heap.output(x!.shape);
  const [atX, atGamma, atBeta, atMoments] = [x, gamma, beta, moments].map((tensor) => heap.address(tensor!)) as [
    number,
    number,
    number,
    number,
  ];
  const [rows, width] = [moments!.shape[0]!, x!.shape.at(-1)!];
  heap.kernels.layerNorm(atX, heap.address(out), rows, width, atGamma, atBeta, call.attrs!['epsilon'] as number, atMoments);
  return out;
}

function normBackward(call: Call): tf.TensorInfo[] {
  const { x, dy, gamma, moments } = call.inputs as Named;
  const heap = heapOf(call.backend);
  const width = x!.shape.at(-1)!;
  const [dx, dGamma, dBeta] = [heap.output(x!.shape), heap.output([width]), heap.output([width])];
  const run = heap.scratch('run', width * FLOAT);
  const at = (tensor: tf.TensorInfo | undefined): number => heap.address(tensor!);
  heap.kernels.layerNormGradient(at(x), at(dy), at(dx), moments!.shape[0]!, width, at(gamma), at(moments), at(dGamma), at(dBeta), run);
  return [dx, dGamma, dBeta];
}

const normGradient: tf.GradConfig = {
  kernelName: LAYER_NORM,
  inputsToSave: ['x', 'gamma', 'moments'],
  gradFunc: (dy, saved) => {
    const [x, gamma, moments] = saved as [tf.Tensor, tf.Tensor, tf.Tensor];
    const inputs = { dy: dy as tf.Tensor, x, gamma, moments };
    const [dx, dGamma, dBeta] = tf.engine().runKernel(LAYER_NORM_GRADIENT, inputs) as unknown as [tf.Tensor, tf.Tensor, tf.Tensor];
    return { x: () => dx, gamma: () => dGamma, beta: () => dBeta };
  },
};

export const gelu = (x: tf.Tensor): tf.Tensor => tf.engine().runKernel(GELU, { x });

function geluForward({ inputs, backend }: Call): tf.TensorInfo {
  const { x } = inputs as Named;
  const heap = heapOf(backend);
  const out = heap.output(x!.shape);
  heap.kernels.gelu(heap.address(x!), heap.address(out), tf.util.sizeFromShape(x!.shape));
  return out;
}

function geluBackward({ inputs, backend }: Call): tf.TensorInfo {
  const { x, dy } = inputs as Named;
  const heap = heapOf(backend);
  const dx = heap.output(x!.shape);
  heap.kernels.geluGradient(heap.address(x!), heap.address(dy!), heap.address(dx), tf.util.sizeFromShape(x!.shape));
  return dx;
}

const geluGradient: tf.GradConfig = {
  kernelName: GELU,
  inputsToSave: ['x'],
  gradFunc: (dy, [x]) => ({ x: () => tf.engine().runKernel(GELU_GRADIENT, { x: x!, dy: dy as tf.Tensor }) as tf.Tensor }),
};

export const transformerKernels: readonly tf.KernelConfig[] = (
  [
    [ATTENTION, attendForward],
    [ATTENTION_GRADIENT, attendBackward],
    [LAYER_NORM, normForward],
    [LAYER_NORM_GRADIENT, normBackward],
    [GELU, geluForward],
    [GELU_GRADIENT, geluBackward],
  ] as const
).map(([kernelName, kernelFunc]) => ({ kernelName, backendName: 'wasm', kernelFunc }));

export const transformerGradients: readonly tf.GradConfig[] = [attentionGradient, normGradient, geluGradient];
