/**
 * The gradient that tf.js lacks for Conv3DTranspose. Its forward pass is the gradient of a convolution with respect to its
 * input, which is linear in both operands: y = Aᵀ(filter) dy. So the gradient of dy is the convolution of what comes back,
 * and the gradient of the filter is that of the convolution, with the two images in each other's place.
 */
import * as tf from '@tensorflow/tfjs-core';

export function registerConv3dTransposeGradient(): void {
  tf.registerGradient({
    kernelName: tf.Conv3DBackpropInputV2,
    inputsToSave: ['dy', 'filter'],
    gradFunc: (dOutput, [dy, filter], attrs) => {
      const { strides, pad } = attrs as unknown as tf.Conv3DBackpropInputV2Attrs;
      const back = dOutput as tf.Tensor5D;
      return {
        dy: () => tf.conv3d(back, filter as tf.Tensor5D, strides, pad),
        filter: () =>
          tf.engine().runKernel(tf.Conv3DBackpropFilterV2, { x: back, dy: dy! }, { strides, pad, filterShape: filter!.shape }) as tf.Tensor,
      };
    },
  });
}
