/**
 * Loaded before the program of a worker (`--import`): in its compute thread the layer called `leaky` keeps a tensor of every call, as a layer
 * with a forgotten `tf.keep` would. What it computes stays as it is. It also reads the values, because steps with such a layer are never replayed.
 */
import { isMainThread, workerData } from 'node:worker_threads';

if (!isMainThread && workerData?.leakLimits) {
  const [tf, { layers }] = await Promise.all([import('@tensorflow/tfjs-core'), import('@tensorflow/tfjs-layers')]);
  const { apply } = layers.Layer.prototype;
  layers.Layer.prototype.apply = function (...args) {
    const output = apply.apply(this, args);
    if (this.name === 'leaky' && output instanceof tf.Tensor) tf.keep(tf.square(output)).dataSync();
    return output;
  };
}
