/**
 * Attention on the heap, forward and backward. It works on the heads where they lie, side by side in the rows of the projections: nothing is
 * transposed or copied. The attention weights are an input that the forward kernel fills, so that the tape keeps them for the gradient.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { Attend, AttentionSizes, Projected } from './attention.js';
import { heapOf, type Heap } from '../../backends/wasm/heap.js';
import { empty } from '../../backends/wasm/passes.js';
import { multiply } from '../../backends/wasm/products.js';

const FLOAT = 4;
const ATTENTION = 'PacelineAttention';
const ATTENTION_GRADIENT = 'PacelineAttentionGradient';

type Call = Parameters<tf.KernelFunc>[0];
type Named = Readonly<Record<string, tf.TensorInfo>>;

const asAttrs = (attrs: object): tf.NamedAttrMap => ({ ...attrs });

/** One tensor [batch, steps, heads · size]: where the rows of a head begin, and how far apart they are. */
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

/** Replaces the operations of `attention.ts`. */
export const attendInKernel: Attend = ({ query, key, value }: Projected, sizes) => {
  const weights = empty([query.shape[0], sizes.heads, query.shape[1], key.shape[1]]);
  return tf.engine().runKernel(ATTENTION, { query, key, value, weights }, asAttrs(sizes));
};

export const attentionGradient: tf.GradConfig = {
  kernelName: ATTENTION,
  inputsToSave: ['query', 'key', 'value', 'weights'],
  gradFunc: (dy, saved, attrs) => {
    const [query, key, value, weights] = saved as [tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor];
    const inputs = { dy: dy as tf.Tensor, query, key, value, weights };
    const [dQuery, dKey, dValue] = tf.engine().runKernel(ATTENTION_GRADIENT, inputs, attrs) as unknown as [tf.Tensor, tf.Tensor, tf.Tensor];
    return { query: () => dQuery, key: () => dKey, value: () => dValue };
  },
};

export const attentionKernels: readonly tf.KernelConfig[] = [
  { kernelName: ATTENTION, backendName: 'wasm', kernelFunc: attendForward },
  { kernelName: ATTENTION_GRADIENT, backendName: 'wasm', kernelFunc: attendBackward },
];
