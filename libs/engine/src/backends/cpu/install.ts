/** Mends a kernel of tf.js's JavaScript backend. Once per thread. */
import * as tf from '@tensorflow/tfjs-core';

let isInstalled = false;

/** The gradient of bilinear resizing has the right values under the shape of an image that is turned: of one that is not square it is refused. */
export function mendKernels(): void {
  if (isInstalled) return;
  isInstalled = true;
  const stock = tf.getKernel(tf.ResizeBilinearGrad, 'cpu');
  if (!stock)
    throw new Error('the cpu backend has no gradient of bilinear resizing: it is not the version that this library was written for');
  tf.unregisterKernel(tf.ResizeBilinearGrad, 'cpu');
  tf.registerKernel({
    ...stock,
    kernelFunc: (call) => {
      const { images } = call.inputs as { images: tf.TensorInfo };
      return { ...(stock.kernelFunc(call) as tf.TensorInfo), shape: images.shape };
    },
  });
}
