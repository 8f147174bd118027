/** The tape of tf.js 4.22: what operations have left for their gradients, and its tensors, which are freed when a gradient was taken. */
import * as tf from '@tensorflow/tfjs-core';

export interface TapeNode {
  readonly saved?: readonly tf.Tensor[];
}

/** What tf.js calls private. */
interface Tapes {
  readonly state: { activeTape: TapeNode[] | null };
  startTape(): void;
  endTape(): void;
}

export const tapes = (): Tapes => tf.engine() as unknown as Tapes;

export function disposeTape(tape: readonly TapeNode[] | null): void {
  for (const { saved = [] } of tape ?? []) for (const tensor of saved) tensor.dispose();
}

/** Takes gradients. tf.js leaves its tape behind where that fails: here nothing stays. */
export function withTape<T>(gradients: () => T): T {
  try {
    return gradients();
  } catch (error) {
    const { state } = tapes();
    disposeTape(state.activeTape);
    state.activeTape = null;
    throw error;
  }
}
