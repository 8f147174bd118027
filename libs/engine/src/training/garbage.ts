/**
 * Collects what the gradient tape leaves behind. tf.js frees the tensors of a step itself, but the small JavaScript objects of
 * its tape (6 KB in a step of the MLP) outlive V8's collections of the young generation and are taken back only by a full
 * one, for which a growing heap waits: 50 MB in 10,000 steps. A full collection in time costs 10 ms each 1000 steps.
 */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

const STEPS_BETWEEN = 1000;

export class Housekeeping {
  private steps = 0;

  /** Call once a step. */
  afterStep(): void {
    if (++this.steps % STEPS_BETWEEN === 0) collectGarbage();
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
