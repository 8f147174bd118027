/**
 * Layer normalisation over the last axis, forward and backward. The moments are an input that the forward kernel fills, so that the tape keeps
 * them for the gradient.
 */
import * as tf from '@tensorflow/tfjs-core';
import { heapOf } from '../../backends/wasm/heap.js';
import { empty } from '../../backends/wasm/passes.js';

const FLOAT = 4;
const LAYER_NORM = 'PacelineLayerNorm';
const LAYER_NORM_GRADIENT = 'PacelineLayerNormGradient';

type Call = Parameters<tf.KernelFunc>[0];
type Named = Readonly<Record<string, tf.TensorInfo>>;

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

export const layerNormGradient: tf.GradConfig = {
  kernelName: LAYER_NORM,
  inputsToSave: ['x', 'gamma', 'moments'],
  gradFunc: (dy, saved) => {
    const [x, gamma, moments] = saved as [tf.Tensor, tf.Tensor, tf.Tensor];
    const inputs = { dy: dy as tf.Tensor, x, gamma, moments };
    const [dx, dGamma, dBeta] = tf.engine().runKernel(LAYER_NORM_GRADIENT, inputs) as unknown as [tf.Tensor, tf.Tensor, tf.Tensor];
    return { x: () => dx, gamma: () => dGamma, beta: () => dBeta };
  },
};

export const layerNormKernels: readonly tf.KernelConfig[] = [
  { kernelName: LAYER_NORM, backendName: 'wasm', kernelFunc: normForward },
  { kernelName: LAYER_NORM_GRADIENT, backendName: 'wasm', kernelFunc: normBackward },
];
