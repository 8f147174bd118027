/** Puts our kernels and gradients in place of what the stock wasm backend is slow at or lacks. Once per thread. */
import * as tf from '@tensorflow/tfjs-core';
import type { TrainingVariant } from '@paceline/kernels';
import '@tensorflow/tfjs-backend-cpu';
import '@tensorflow/tfjs-backend-wasm';
import { convBackpropFilter, convBackpropInput, convGradient, convKernel } from './conv-kernels.js';
import { conv3dKernels } from './conv3d-kernels.js';
import { convPoolGradient, convPoolKernels } from './conv-pool-kernels.js';
import { denseGradient, denseKernel } from './dense-kernel.js';
import { chooseVariant } from './heap.js';
import { batchMatMul, explicitTranspose } from './matmul-kernel.js';
import { depthwiseKernels, unsortedSegmentSum } from './missing-kernels.js';
import { normGradient, normKernels } from './norm-kernels.js';
import { passKernels, shareClone } from './passes.js';
import { recurrentGradients, recurrentKernels } from './recurrent-kernels.js';
import { averagePool3dGradient, maxPool3d, maxPool3dGradient } from './pool3d-kernels.js';
import { averagePoolGradient, maxPoolGradient } from './pool-kernels.js';
import { transformerGradients, transformerKernels } from './transformer-kernels.js';

let isInstalled = false;

export function installTrainingKernels(variant: TrainingVariant): void {
  chooseVariant(variant);
  if (isInstalled) return;
  isInstalled = true;
  replaceKernel(tf.BatchMatMul, batchMatMul);
  replaceKernel(tf._FusedMatMul, explicitTranspose);
  replaceKernel(tf.Conv2DBackpropInput, convBackpropInput);
  replaceKernel(tf.Identity, () => shareClone);
  replaceKernel(tf.MaxPoolGrad, () => maxPoolGradient);
  replaceKernel(tf.AvgPoolGrad, () => averagePoolGradient);
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
    ...transformerKernels,
    denseKernel,
    convKernel,
    ...convPoolKernels,
  ])
    tf.registerKernel(kernel);
  for (const gradient of [denseGradient, convGradient, convPoolGradient, normGradient, ...recurrentGradients, ...transformerGradients])
    tf.registerGradient(gradient);
}

/** The stock set-up runs as before, it binds the C++ function. */
function replaceKernel(kernelName: string, replacement: (stock: tf.KernelFunc) => tf.KernelFunc): void {
  const stock = tf.getKernel(kernelName, 'wasm');
  if (!stock) throw new Error(`the wasm backend has no kernel ${kernelName}: it is not the version that this library was written for`);
  tf.unregisterKernel(kernelName, 'wasm');
  tf.registerKernel({ ...stock, kernelFunc: replacement(stock.kernelFunc) });
}
