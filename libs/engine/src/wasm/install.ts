/** Puts our kernels and gradients in place of what the stock wasm backend is slow at or lacks. Once per thread. */
import * as tf from '@tensorflow/tfjs-core';
import '@tensorflow/tfjs-backend-cpu';
import '@tensorflow/tfjs-backend-wasm';
import { convBackpropFilter, convBackpropInput } from './conv-kernels.js';
import { denseGradient, denseKernel } from './dense-kernel.js';
import { explicitTranspose } from './matmul-kernel.js';
import { maxPoolGradient } from './max-pool-grad.js';
import { borrowed, unsortedSegmentSum } from './missing-kernels.js';

let isInstalled = false;

export function installTrainingKernels(): void {
  if (isInstalled) return;
  isInstalled = true;
  const stockMatMul = stockKernel(tf.BatchMatMul);
  const stockFusedMatMul = stockKernel(tf._FusedMatMul);
  replaceKernel(stockMatMul, explicitTranspose(stockMatMul.kernelFunc));
  replaceKernel(stockFusedMatMul, explicitTranspose(stockFusedMatMul.kernelFunc));
  const stockConvInput = stockKernel(tf.Conv2DBackpropInput);
  replaceKernel(stockConvInput, convBackpropInput(stockConvInput.kernelFunc));
  replaceKernel(stockKernel(tf.MaxPoolGrad), maxPoolGradient);
  tf.registerKernel(convBackpropFilter);
  tf.registerKernel(unsortedSegmentSum);
  for (const name of [tf.DepthwiseConv2dNativeBackpropFilter, tf.DepthwiseConv2dNativeBackpropInput]) tf.registerKernel(borrowed(name));
  tf.registerKernel(denseKernel(stockFusedMatMul.kernelFunc));
  tf.registerGradient(denseGradient);
}

function stockKernel(kernelName: string): tf.KernelConfig {
  const kernel = tf.getKernel(kernelName, 'wasm');
  if (!kernel) throw new Error(`the wasm backend has no kernel ${kernelName}: it is not the version that this library was written for`);
  return kernel;
}

/** The stock set-up runs as before, it binds the C++ function. */
function replaceKernel(stock: tf.KernelConfig, kernelFunc: tf.KernelFunc): void {
  tf.unregisterKernel(stock.kernelName, 'wasm');
  tf.registerKernel({ ...stock, kernelFunc });
}
