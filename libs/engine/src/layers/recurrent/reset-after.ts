/**
 * The GRU of Keras' default, reset_after=true (as in cuDNN: the reset gate acts on the product with the state, and the
 * state has a bias of its own), which tf.js refuses. Registered in place of tf.js's GRU and GRUCell, whose behaviour without
 * reset_after stays.
 */
import * as tf from '@tensorflow/tfjs-core';
import type * as tfl from '@tensorflow/tfjs-layers';
import { replaceClass, type Args, type LayerClass } from '../replace-class.js';

type Cell = tfl.layers.Layer & CellInternals;

interface CellInternals {
  units: number;
  useBias: boolean;
  kernel: tfl.LayerVariable;
  recurrentKernel: tfl.LayerVariable;
  bias: tfl.LayerVariable | null;
  kernelInitializer: unknown;
  recurrentInitializer: unknown;
  biasInitializer: unknown;
  kernelRegularizer: unknown;
  recurrentRegularizer: unknown;
  biasRegularizer: unknown;
  activation: { apply(x: tf.Tensor): tf.Tensor };
  recurrentActivation: { apply(x: tf.Tensor): tf.Tensor };
  dropout: number;
  recurrentDropout: number;
  dropoutMask: tf.Tensor | tf.Tensor[] | null;
  recurrentDropoutMask: tf.Tensor | tf.Tensor[] | null;
}

interface AddWeight {
  addWeight(name: string, shape: number[], dtype: null, initializer: unknown, regularizer: unknown, trainable: boolean): tfl.LayerVariable;
}

/** Builds and calls an instance of tf.js's GRUCell the other way. */
function resetAfter(cell: Cell): void {
  const self = cell as unknown as Omit<tfl.layers.Layer, 'build' | 'call' | 'built'> & AddWeight & CellInternals & Record<string, unknown>;
  const { units } = self;
  self['resetAfter'] = true;
  self['build'] = (inputShape: number[]): void => {
    const width = inputShape.at(-1)!;
    self.kernel = self.addWeight('kernel', [width, 3 * units], null, self.kernelInitializer, self.kernelRegularizer, true);
    self.recurrentKernel = self.addWeight(
      'recurrent_kernel',
      [units, 3 * units],
      null,
      self.recurrentInitializer,
      self.recurrentRegularizer,
      true,
    );
    self.bias = self.useBias ? self.addWeight('bias', [2, 3 * units], null, self.biasInitializer, self.biasRegularizer, true) : null;
    self['built'] = true;
  };
  self['call'] = ([x, h]: [tf.Tensor2D, tf.Tensor2D], { training }: { training?: boolean }): tf.Tensor[] =>
    tf.tidy(() => step(self, x, h, training === true));
}

function step(cell: CellInternals, x: tf.Tensor2D, before: tf.Tensor2D, training: boolean): tf.Tensor[] {
  const [dx, dh] = training ? masksOf(cell, x, before) : [undefined, undefined];
  const h = dh ? tf.mul(before, dh) : before;
  const ofInput = product(dx ? tf.mul(x, dx) : x, cell.kernel, cell.bias, 0);
  const ofState = product(h, cell.recurrentKernel, cell.bias, 1);
  const [xz, xr, xh] = tf.split(ofInput, 3, 1) as [tf.Tensor, tf.Tensor, tf.Tensor];
  const [hz, hr, hh] = tf.split(ofState, 3, 1) as [tf.Tensor, tf.Tensor, tf.Tensor];
  const z = cell.recurrentActivation.apply(tf.add(xz, hz));
  const r = cell.recurrentActivation.apply(tf.add(xr, hr));
  const candidate = cell.activation.apply(tf.add(xh, tf.mul(r, hh)));
  const next = tf.add(tf.mul(z, h), tf.mul(tf.sub(1, z), candidate));
  return [next, next];
}

function product(x: tf.Tensor, weight: tfl.LayerVariable, bias: tfl.LayerVariable | null, row: number): tf.Tensor {
  const plain = tf.matMul(x as tf.Tensor2D, weight.read() as tf.Tensor2D);
  if (!bias) return plain;
  const width = plain.shape[1]!;
  return tf.add(plain, tf.reshape(tf.slice(bias.read(), [row, 0], [1, width]), [width]));
}

/** One mask per sequence, as in tf.js: the layer throws it away before the next one. */
function masksOf(cell: CellInternals, x: tf.Tensor, h: tf.Tensor): [tf.Tensor | undefined, tf.Tensor | undefined] {
  const mask = (like: tf.Tensor, rate: number): tf.Tensor => tf.keep(tf.dropout(tf.onesLike(like), rate));
  if (cell.dropout > 0) cell.dropoutMask ??= mask(x, cell.dropout);
  if (cell.recurrentDropout > 0) cell.recurrentDropoutMask ??= mask(h, cell.recurrentDropout);
  return [cell.dropoutMask as tf.Tensor | undefined, cell.recurrentDropoutMask as tf.Tensor | undefined];
}

/** GRU, and GRUCell where it stands in an RNN. */
export function registerResetAfter(): void {
  replaceClass('GRUCell', (stock) => {
    class GruCell extends (stock as LayerClass) {
      static override readonly className = 'GRUCell';
      constructor(args: Args) {
        super({ ...args, resetAfter: false });
        if (args['resetAfter'] === true) resetAfter(this as unknown as Cell);
      }
      override getConfig(): tf.serialization.ConfigDict {
        return { ...super.getConfig(), resetAfter: 'resetAfter' in this };
      }
    }
    return GruCell;
  });
  replaceClass('GRU', (stock) => {
    class Gru extends (stock as LayerClass) {
      static override readonly className = 'GRU';
      constructor(args: Args) {
        super({ ...args, resetAfter: false });
        if (args['resetAfter'] === true) resetAfter((this as unknown as GruInternals).cell);
      }
      override getConfig(): tf.serialization.ConfigDict {
        const { cell } = this as unknown as GruInternals;
        // A wrapper makes its layers anew from this.
        return { ...super.getConfig(), resetAfter: 'resetAfter' in cell };
      }
    }
    return Gru;
  });
}

interface GruInternals {
  readonly cell: Cell;
}
