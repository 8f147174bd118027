/**
 * Examples of the training split that a run measures and does not train on: a function of the seed and of how many there are, the same on every worker.
 * The others keep their order. Memory: 4 bytes for each that is held out.
 */
import { fillPermutation } from './sampler.js';

/** Epochs count from 0: the draw is that of none of them. */
const DRAW = -1;

export class HeldOut {
  /** Ascending, as rows of the whole split. */
  readonly rows: Int32Array;

  /** @param examples of the whole split @param count of them that are held out, fewer */
  constructor(seed: number, examples: number, count: number) {
    if (!(count >= 0 && count < examples)) throw new RangeError(`${count} of ${examples} examples cannot be held out`);
    this.rows = new Int32Array(count);
    if (count > 0) fillPermutation(seed, DRAW, examples, this.rows);
    this.rows.sort();
  }

  /** The row in the whole split of a training example, counted without those that are held out. */
  trainingRow(index: number): number {
    const { rows } = this;
    let [low, high] = [0, rows.length];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (rows[middle]! - middle <= index) low = middle + 1;
      else high = middle;
    }
    return index + low;
  }
}
