/**
 * Batch normalisation while training, over all dimensions but the last: one pass for the moments, one to normalise, and two for
 * the gradient. The moments are inputs, which the forward kernel fills, so that the tape keeps them for the gradient.
 */
import * as tf from '@tensorflow/tfjs-core';
import { heapOf, type Heap } from '../../backends/wasm/heap.js';
import { empty } from '../../backends/wasm/passes.js';

const NORM = 'PacelineBatchNorm';
const NORM_GRADIENT = 'PacelineBatchNormGradient';

export interface Normalised {
  readonly y: tf.Tensor;
  /** Per channel; variance is the population's. */
  readonly mean: tf.Tensor;
  readonly variance: tf.Tensor;
}

/** y = gamma · (x − mean) / √(variance + epsilon) + beta over the last axis of x. */
export function batchNorm(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, epsilon: number): Normalised {
  const channels = x.shape.at(-1)!;
  const [mean, variance, scale] = [0, 1, 2].map(() => empty([channels])) as [tf.Tensor, tf.Tensor, tf.Tensor];
  const y: tf.Tensor = tf.engine().runKernel(NORM, { x, gamma, beta, mean, variance, scale }, { epsilon });
  return { y, mean, variance };
}

type Named = Readonly<Record<string, tf.TensorInfo>>;

function open(call: Parameters<tf.KernelFunc>[0]): {
  heap: Heap;
  inputs: Named;
  at: (name: string) => number;
  rows: number;
  channels: number;
} {
  const inputs = call.inputs as Named;
  const heap = heapOf(call.backend);
  const { shape } = inputs['x']!;
  const rows = tf.util.sizeFromShape(shape.slice(0, -1));
  return { heap, inputs, at: (name) => heap.address(inputs[name]!), rows, channels: shape.at(-1)! };
}

function forward(call: Parameters<tf.KernelFunc>[0]): tf.TensorInfo {
  const { heap, inputs, at, rows, channels } = open(call);
  const out = heap.output(inputs['x']!.shape);
  heap.kernels.moments(at('x'), rows, channels, at('mean'), at('variance'));
  const [variance, scale] = [heap.floats(inputs['variance']!), heap.floats(inputs['scale']!)];
  const epsilon = call.attrs!['epsilon'] as number;
  for (let c = 0; c < channels; c++) scale[c] = 1 / Math.sqrt(variance[c]! + epsilon);
  heap.kernels.normalise(at('x'), heap.address(out), rows, channels, at('mean'), at('scale'), at('gamma'), at('beta'));
  return out;
}

function backward(call: Parameters<tf.KernelFunc>[0]): tf.TensorInfo[] {
  const { heap, inputs, at, rows, channels } = open(call);
  const dx = heap.output(inputs['x']!.shape);
  const [dGamma, dBeta] = [heap.output([channels]), heap.output([channels])];
  const [toGamma, toBeta] = [heap.address(dGamma), heap.address(dBeta)];
  heap.kernels.normaliseSums(at('x'), at('dy'), rows, channels, at('mean'), at('scale'), toGamma, toBeta);
  const [x, dy, mean, scale, gamma] = ['x', 'dy', 'mean', 'scale', 'gamma'].map(at) as [number, number, number, number, number];
  heap.kernels.normaliseGradient(x, dy, heap.address(dx), rows, channels, mean, scale, gamma, toGamma, toBeta);
  return [dx, dGamma, dBeta];
}

export const normKernels: readonly tf.KernelConfig[] = [
  { kernelName: NORM, backendName: 'wasm', kernelFunc: forward },
  { kernelName: NORM_GRADIENT, backendName: 'wasm', kernelFunc: backward },
];

export const normGradient: tf.GradConfig = {
  kernelName: NORM,
  inputsToSave: ['x', 'gamma', 'mean', 'scale'],
  gradFunc: (dy, saved) => {
    const [x, gamma, mean, scale] = saved as [tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor];
    const inputs = { dy: dy as tf.Tensor, x, gamma, mean, scale };
    const [dx, dGamma, dBeta] = tf.engine().runKernel(NORM_GRADIENT, inputs) as unknown as [tf.Tensor, tf.Tensor, tf.Tensor];
    return { x: () => dx, gamma: () => dGamma, beta: () => dBeta };
  },
};
