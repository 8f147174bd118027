/**
 * The user's weights and the trainer's parameters. Training leaves the tf.js variables alone; getters in place of `LayerVariable.val` and of the
 * variable's `dataId`, by which every operation finds the values, write them back when somebody reads them (evaluate, predict, save, a callback, a
 * tensor of getWeights that was kept). What somebody wrote there, such as setWeights or
 * loadWeights, is taken up before the next step: tf.js gives a variable another data id when it is assigned to.
 */
import * as tfc from '@tensorflow/tfjs-core';
import type * as tfl from '@tensorflow/tfjs-layers';
import { UnsupportedError } from '../errors.js';
import type { Trainer } from '../exchange.js';
import type { NamedWeight } from './tf-model.js';
import { valuesOf } from './tensors.js';

/** Where the present values of a variable are; of a layer that several models share, in one of them. */
class SyncedVariable {
  private source: { readonly trainer: Trainer; readonly offset: number } | undefined;
  /** The version that the tf.js variable holds, and its data id then. */
  private written = -1;
  private dataId: object | undefined;
  /** The data id of the tf.js variable, behind its getter. */
  private heldId: tfc.DataId;

  private constructor(readonly raw: tfc.Variable) {
    this.heldId = raw.dataId;
    Object.defineProperty(raw, 'dataId', {
      configurable: true,
      enumerable: true,
      get: () => {
        this.read();
        return this.heldId;
      },
      set: (id: tfc.DataId) => {
        this.heldId = id;
      },
    });
  }

  private static readonly all = new WeakMap<tfl.LayerVariable, SyncedVariable>();

  static of(weight: tfl.LayerVariable): SyncedVariable {
    const known = SyncedVariable.all.get(weight);
    if (known) return known;
    const made = new SyncedVariable((weight as unknown as { val: tfc.Variable }).val);
    SyncedVariable.all.set(weight, made);
    Object.defineProperty(weight, 'val', { configurable: true, enumerable: true, get: () => made.read() });
    return made;
  }

  /** The tf.js variable with the present values. */
  read(): tfc.Variable {
    const { raw, source } = this;
    if (!source || this.written === source.trainer.version || raw.isDisposed || this.heldId !== this.dataId) return raw;
    const { trainer, offset } = source;
    const tensor = tfc.tensor(trainer.parameters.slice(offset, offset + raw.size), raw.shape, 'float32');
    // First: the assignment looks at the data id itself.
    this.written = trainer.version;
    raw.assign(tensor as never);
    tensor.dispose();
    this.dataId = this.heldId;
    return raw;
  }

  /** Whether the trainer has the present values. */
  isIn(trainer: Trainer): boolean {
    return this.source?.trainer === trainer && this.heldId === this.dataId;
  }

  /** The trainer takes the values over, and has the present ones from now on. */
  moveTo(trainer: Trainer, offset: number): void {
    const raw = this.read();
    if (raw.isDisposed) throw new UnsupportedError(`weight ${raw.name}`, 'it is disposed');
    trainer.parameters.set(valuesOf(raw), offset);
    this.source = { trainer, offset };
    this.written = trainer.version;
    this.dataId = this.heldId;
  }

  /** Writes what is newer back, and forgets the trainer. */
  leave(trainer: Trainer): void {
    if (this.source?.trainer !== trainer) return;
    this.read();
    this.source = undefined;
  }
}

interface Placed {
  readonly variable: SyncedVariable;
  readonly offset: number;
}

export class ModelWeights {
  private readonly placed: readonly Placed[];

  /** @throws UnsupportedError where the engine's model has other variables than the user's */
  constructor(
    private readonly trainer: Trainer,
    weights: readonly NamedWeight[],
  ) {
    const byPath = new Map(weights.map(({ path, weight }) => [path, weight]));
    const { variables } = trainer.layout;
    this.placed = variables.map(({ path, shape, offset }) => {
      const weight = byPath.get(path);
      if (!weight || weight.shape.join() !== shape.join())
        throw new UnsupportedError(`weight ${path}`, 'the engine has it, and the model of tf.js has none of that name and shape');
      return { variable: SyncedVariable.of(weight), offset };
    });
    const extra = weights.find(({ path }) => !variables.some((variable) => variable.path === path));
    if (extra) throw new UnsupportedError(`weight ${extra.path}`, 'the model of tf.js has it, and the engine has not');
  }

  /** Takes up what was written to the tf.js variables since the last step. */
  takeUp(): void {
    const { trainer } = this;
    const changed = this.placed.filter(({ variable }) => !variable.isIn(trainer));
    if (changed.length === 0) return;
    trainer.touch();
    for (const { variable, offset } of changed) variable.moveTo(trainer, offset);
  }

  /** The tf.js variables get the present values, and are ordinary ones again. */
  leave(): void {
    for (const { variable } of this.placed) variable.leave(this.trainer);
  }
}
