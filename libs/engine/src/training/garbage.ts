/**
 * Collects what the gradient tape leaves behind. tf.js frees the tensors of a step itself, but the small JavaScript objects of its tape (6 KB in a step of the
 * MLP) outlive V8's collections of the young generation and are taken back only by a full one, for which a growing heap waits: 50 MB in 10,000 steps.
 *
 * A full collection has a price beside its 10 ms. V8 throws away optimized code that names an object which has died, and the closures of tf.js die with each step: it
 * compiles some hundred functions anew (`node --trace-opt --trace-deopt` shows them), which takes longer than the collection. So the heap may grow for a while between two.
 */
import { getHeapStatistics, setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

const STEPS_BETWEEN_LOOKS = 250;
const GROWTH_BYTES = 64 * 2 ** 20;

export class Housekeeping {
  private steps = 0;
  /** The smallest size of the heap that was seen since the last collection. */
  private lowestBytes = Infinity;

  /** @param usedBytes of this thread's heap */
  constructor(
    private readonly usedBytes: () => number = () => getHeapStatistics().used_heap_size,
    private readonly collect: () => void = collectGarbage,
  ) {}

  /** Call once a step. */
  afterStep(): void {
    if (++this.steps % STEPS_BETWEEN_LOOKS !== 0) return;
    const bytes = this.usedBytes();
    this.lowestBytes = Math.min(this.lowestBytes, bytes);
    if (bytes - this.lowestBytes < GROWTH_BYTES) return;
    this.lowestBytes = Infinity;
    this.collect();
  }
}

let collect: (() => void) | undefined;

/** A full collection of this thread's JavaScript heap, by V8's own function, which Node shows only with a flag. */
export function collectGarbage(): void {
  if (!collect) {
    setFlagsFromString('--expose-gc');
    collect = runInNewContext('gc') as () => void;
  }
  collect();
}
