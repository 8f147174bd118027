/**
 * A forward pass whose gradients are taken later, when other passes have been made meanwhile. tf.js has one tape at a time: `tf.grads` and its like record a function and
 * go back over it at once. Here the tape of a pass is taken away from tf.js 4.22 after the pass, and is given back when its gradients are due.
 */
import * as tf from '@tensorflow/tfjs-core';
import { disposeTape, tapes, withTape, type TapeNode } from '../training/tape.js';

export class KeptForward {
  private constructor(
    /** Its values are gone when the caller's tidy ends. */
    readonly output: tf.Tensor,
    private tape: TapeNode[],
  ) {}

  /** Runs a function, and keeps what its gradients need. */
  static of(forward: () => tf.Tensor): KeptForward {
    const engine = tapes();
    engine.startTape();
    try {
      return withTape(() => new KeptForward(tf.tidy(forward), engine.state.activeTape!));
    } finally {
      engine.endTape();
      engine.state.activeTape = null;
    }
  }

  /**
   * The gradients of what a function makes of the output, once. Tensors by which nothing changes have none.
   * @param xs that the pass has read
   */
  gradients(xs: tf.Tensor[], of: (output: tf.Tensor) => tf.Scalar): (tf.Tensor | undefined)[] {
    const resumed = (): tf.Scalar => {
      tapes().state.activeTape = this.tape;
      return of(this.output);
    };
    const { grads } = withTape(() => tf.engine().gradients(resumed, xs, undefined, true));
    this.tape = []; // tf.js has disposed of it
    return grads as (tf.Tensor | undefined)[];
  }

  /** Frees what it keeps, where its gradients were not taken. */
  dispose(): void {
    disposeTape(this.tape);
    this.tape = [];
  }
}
