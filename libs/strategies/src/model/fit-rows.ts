/** Which rows the batches of `fit` take. tf.js hands the train function places of the epoch, in order: what lies there follows from how the epoch was shuffled. */
import * as tfl from '@tensorflow/tfjs-layers';

export class FitRows {
  private readonly order: Int32Array;

  /**
   * @param shuffle puts the rows of the next epoch in order; left out, they stay in theirs
   */
  constructor(
    count: number,
    private readonly batchSize: number,
    private readonly shuffle: ((order: Int32Array) => void) | undefined,
  ) {
    this.order = Int32Array.from({ length: count }, (_, row) => row);
  }

  /** The rows of a batch, by the place of its first one and its size. */
  of(from: number, size: number): Int32Array {
    if (from === 0) this.shuffle?.(this.order);
    return this.order.slice(from, from + size);
  }

  /** In the epoch, the place and size of the batch that follows the one at `from`. @returns undefined after the last one */
  after(from: number): { readonly from: number; readonly size: number } | undefined {
    const next = from + this.batchSize;
    return next < this.order.length ? { from: next, size: Math.min(this.batchSize, this.order.length - next) } : undefined;
  }
}

interface WithHooks {
  readonly batchBegin?: unknown;
  readonly batchEnd?: unknown;
  readonly yield?: unknown;
  readonly onBatchBegin?: unknown;
  readonly onBatchEnd?: unknown;
}

/** Whether a callback of `fit` comes between batches: it may read weights, or set a learning rate. */
export function looksAtBatches(callbacks: unknown): boolean {
  const { onBatchBegin, onBatchEnd } = tfl.Callback.prototype as WithHooks;
  return [callbacks].flat().some((each) => {
    const callback = (each ?? {}) as WithHooks;
    // tf.js makes one of these of what is no Callback; its own methods call what was given, if there is something.
    if (callback instanceof tfl.CustomCallback)
      return [callback.batchBegin, callback.batchEnd, callback.yield].some((hook) => typeof hook === 'function');
    return callback.onBatchBegin !== onBatchBegin || callback.onBatchEnd !== onBatchEnd;
  });
}
