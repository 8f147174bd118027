/** GELU by its error function, forward and backward, one pass each. */
import * as tf from '@tensorflow/tfjs-core';
import { heapOf } from '../../backends/wasm/heap.js';

const GELU = 'PacelineGelu';
const GELU_GRADIENT = 'PacelineGeluGradient';

type Call = Parameters<tf.KernelFunc>[0];
type Named = Readonly<Record<string, tf.TensorInfo>>;

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

export const geluGradient: tf.GradConfig = {
  kernelName: GELU,
  inputsToSave: ['x'],
  gradFunc: (dy, [x]) => ({ x: () => tf.engine().runKernel(GELU_GRADIENT, { x: x!, dy: dy as tf.Tensor }) as tf.Tensor }),
};

export const geluKernels: readonly tf.KernelConfig[] = [
  { kernelName: GELU, backendName: 'wasm', kernelFunc: geluForward },
  { kernelName: GELU_GRADIENT, backendName: 'wasm', kernelFunc: geluBackward },
];
