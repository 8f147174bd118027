/** Puts our kernels and gradients in place of what the stock wasm backend is slow at or lacks. Once per thread. */
import * as tf from '@tensorflow/tfjs-core';
import type { TrainingVariant } from '@paceline/kernels';
import '@tensorflow/tfjs-backend-cpu';
import '@tensorflow/tfjs-backend-wasm';
import { convBackpropFilter, convBackpropInput, convGradient, convKernel } from '../../layers/convolution/conv-wasm.js';
import { conv3dKernels } from '../../layers/convolution/conv3d-wasm.js';
import { cutToReach } from '../../layers/convolution/under-run.js';
import { convPoolGradient, convPoolKernels } from '../../layers/pooling/conv-pool-wasm.js';
import { denseGradient, denseKernel } from '../../layers/dense/dense-wasm.js';
import { chooseVariant } from './heap.js';
import { batchMatMul, explicitTranspose } from '../../layers/dense/matmul-wasm.js';
import { depthwiseKernels } from '../../layers/convolution/depthwise-wasm.js';
import { unsortedSegmentSum } from '../../layers/embedding/segment-sum-wasm.js';
import { geluGradient, geluKernels } from '../../layers/activations/gelu-wasm.js';
import { layerNormGradient, layerNormKernels } from '../../layers/normalisation/layer-norm-wasm.js';
import { normGradient, normKernels } from '../../layers/normalisation/batch-norm-wasm.js';
import { nanKeeping } from './nan-keeping.js';
import { passKernels, shareClone } from './passes.js';
import { recurrentGradients, recurrentKernels } from '../../layers/recurrent/recurrent-wasm.js';
import { averagePool3d, averagePool3dGradient, maxPool3d, maxPool3dGradient } from '../../layers/pooling/pool3d.js';
import { averagePoolGradient, maxPoolGradient } from '../../layers/pooling/pool-wasm.js';
import { attentionGradient, attentionKernels } from '../../layers/attention/attention-wasm.js';

let isInstalled = false;

export function installTrainingKernels(variant: TrainingVariant): void {
  chooseVariant(variant);
  if (isInstalled) return;
  isInstalled = true;
  replaceKernel(tf.BatchMatMul, batchMatMul);
  replaceKernel(tf._FusedMatMul, explicitTranspose);
  replaceKernel(tf.Conv2DBackpropInput, convBackpropInput);
  for (const name of [tf.Conv2D, tf.FusedConv2D, tf.DepthwiseConv2dNative, tf.FusedDepthwiseConv2D]) replaceKernel(name, cutToReach);
  for (const [name, replacement] of Object.entries(nanKeeping)) replaceKernel(name, replacement);
  replaceKernel(tf.Identity, () => shareClone);
  replaceKernel(tf.MaxPoolGrad, () => maxPoolGradient);
  replaceKernel(tf.AvgPoolGrad, () => averagePoolGradient);
  replaceKernel(tf.AvgPool3D, averagePool3d);
  replaceKernel(tf.MaxPool3D, () => maxPool3d);
  replaceKernel(tf.MaxPool3DGrad, () => maxPool3dGradient);
  replaceKernel(tf.AvgPool3DGrad, () => averagePool3dGradient);
  for (const kernel of conv3dKernels) replaceKernel(kernel.kernelName, () => kernel.kernelFunc);
  for (const kernel of [
    convBackpropFilter,
    unsortedSegmentSum,
    ...depthwiseKernels(),
    ...passKernels,
    ...normKernels,
    ...recurrentKernels,
    ...attentionKernels,
    ...layerNormKernels,
    ...geluKernels,
    denseKernel,
    convKernel,
    ...convPoolKernels,
  ])
    tf.registerKernel(kernel);
  for (const gradient of [
    denseGradient,
    convGradient,
    convPoolGradient,
    normGradient,
    ...recurrentGradients,
    attentionGradient,
    layerNormGradient,
    geluGradient,
  ])
    tf.registerGradient(gradient);
}

/** The stock set-up runs as before, it binds the C++ function. */
function replaceKernel(kernelName: string, replacement: (stock: tf.KernelFunc) => tf.KernelFunc): void {
  const stock = tf.getKernel(kernelName, 'wasm');
  if (!stock) throw new Error(`the wasm backend has no kernel ${kernelName}: it is not the version that this library was written for`);
  tf.unregisterKernel(kernelName, 'wasm');
  tf.registerKernel({ ...stock, kernelFunc: replacement(stock.kernelFunc) });
}
