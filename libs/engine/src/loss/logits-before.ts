/**
 * What an output was before its last softmax or sigmoid. A crossentropy of probabilities has no gradient where they are clipped; like Keras
 * (`_get_logits`, keras/src/backend/tensorflow/nn.py), training goes back to the logits of that activation. Outputs and metrics stay probabilities.
 */
import type { LossName } from '@paceline/spec';
import * as tf from '@tensorflow/tfjs-core';
import type * as tfl from '@tensorflow/tfjs-layers';
import type { BoundOutput } from '../model/ends.js';

/** The activation whose logits a loss goes back to. */
const ACTIVATION_OF: Partial<Record<LossName, string>> = {
  sparseCategoricalCrossentropy: 'softmax',
  categoricalCrossentropy: 'softmax',
  binaryCrossentropy: 'sigmoid',
};

interface Activated {
  readonly activation?: { getClassName?(): string; apply?(x: tf.Tensor, ...rest: unknown[]): tf.Tensor };
  readonly axis?: unknown;
  call(inputs: tf.Tensor | tf.Tensor[], kwargs: Record<string, unknown>): tf.Tensor | tf.Tensor[];
}

/** Instances of layers and activations only; no prototypes. */
export class LogitsBefore {
  /** Logits by the id of what the activation has made of them. They outlive the tidy of their layer. */
  private readonly noted = new Map<number, tf.Tensor>();
  private isNoting = false;

  /** @param outputs of the model; none of a stage that computes no loss */
  constructor(model: tfl.LayersModel, outputs: readonly Pick<BoundOutput, 'loss' | 'fromLogits'>[]) {
    const wanted = new Map<tfl.layers.Layer, string>();
    outputs.forEach(({ fromLogits, loss }, i) => {
      const activation = fromLogits ? undefined : ACTIVATION_OF[loss];
      if (activation !== undefined) wanted.set(model.outputs[i]!.sourceLayer, activation);
    });
    for (const [layer, activation] of wanted) this.watch(layer, activation);
  }

  /** @param of given the logits of an output of the model; undefined for one that comes from no such activation */
  during<T>(of: (logitsOf: (output: tf.Tensor) => tf.Tensor | undefined) => T): T {
    this.isNoting = true;
    try {
      return of((output) => this.noted.get(output.id));
    } finally {
      this.isNoting = false;
      for (const logits of this.noted.values()) logits.dispose();
      this.noted.clear();
    }
  }

  private watch(layer: tfl.layers.Layer, name: string): void {
    const activated = layer as unknown as Activated;
    if (layer.getClassName() === 'Softmax' && name === 'softmax') {
      const call = activated.call.bind(activated);
      activated.call = (inputs, kwargs) => {
        const output = call(inputs, kwargs);
        const x = Array.isArray(inputs) ? inputs[0]! : inputs;
        const isLast = activated.axis === -1 || activated.axis === x.rank - 1;
        if (isLast && !Array.isArray(output) && (kwargs['mask'] === undefined || kwargs['mask'] === null)) this.note(x, output);
        return output;
      };
      return;
    }
    const { activation } = activated;
    if (activation?.getClassName?.() !== name || !activation.apply) return;
    const apply = activation.apply.bind(activation);
    activation.apply = (x, ...rest) => {
      const output = apply(x, ...rest);
      this.note(x, output);
      return output;
    };
  }

  private note(logits: tf.Tensor, output: tf.Tensor): void {
    if (this.isNoting) this.noted.set(output.id, tf.keep(logits.clone()));
  }
}
