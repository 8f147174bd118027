/**
 * The state of the user's optimizer and the slots of the trainer. As with the weights (weights.ts), training leaves the tf.js variables alone: getters
 * in place of the optimizer's fields write the values back when tf.js or somebody else reads them (getWeights, a step of tf.js itself, save with
 * includeOptimizer), and what was written there since (setWeights) is taken up before the next step.
 */
import * as tfc from '@tensorflow/tfjs-core';
import type * as tfl from '@tensorflow/tfjs-layers';
import { UnsupportedError } from '../errors.js';
import type { Trainer } from '../exchange.js';
import type { UpdateRule } from '../update-rule.js';
import { countedFields, slotFields, type SlotField, type TfOptimizer, type TfSlot } from './optimizer-fields.js';
import { valuesOf } from './tensors.js';

/** A trained weight of tf.js, and where its values lie in a slot. */
export interface TrainedWeight {
  readonly name: string;
  readonly shape: number[];
  readonly offset: number;
  readonly length: number;
}

const ITERATIONS = 'iterations_';
/** Optimizers whose fields are watched. */
const LINKED = new WeakSet<object>();

export class OptimizerLink {
  private readonly fields: readonly SlotField[];
  /** What the fields hold behind the getters. */
  private readonly held = new Map<string, unknown>();
  /** Steps of the optimizer so far, with those that tf.js itself took. */
  private steps = 0;
  /** Steps of which the fields show the values. */
  private shown = -1;
  private dataIds: readonly (object | undefined)[] = [];

  constructor(
    private readonly optimizer: TfOptimizer,
    private readonly rule: UpdateRule,
    private readonly trainer: Trainer,
    /** In the order in which tf.js hands their gradients to the optimizer. */
    private readonly weights: readonly TrainedWeight[],
  ) {
    if (LINKED.has(optimizer))
      throw new UnsupportedError('optimizer', 'two distributed models share it, and would overwrite its state: give each model its own');
    LINKED.add(optimizer);
    this.fields = slotFields(rule);
    for (const field of this.names()) this.watch(field);
    this.takeUpAll();
  }

  /** Number of the next step, from 1, after what was written to the optimizer was taken up. */
  nextStep(): number {
    if (this.isForeign()) this.takeUpAll();
    return this.steps + 1;
  }

  /** A step was taken. */
  stepped(): void {
    this.steps++;
  }

  /** The optimizer gets the present values, and is an ordinary one again. */
  leave(): void {
    this.show();
    LINKED.delete(this.optimizer);
    for (const field of this.names()) {
      const value = this.held.get(field);
      Object.defineProperty(this.optimizer, field, { configurable: true, enumerable: true, writable: true, value });
    }
  }

  private names(): string[] {
    return [...this.fields.map(([field]) => field), ...countedFields(this.rule).map(([field]) => field), ITERATIONS];
  }

  private watch(field: string): void {
    this.held.set(field, (this.optimizer as Record<string, unknown>)[field]);
    Object.defineProperty(this.optimizer, field, {
      configurable: true,
      enumerable: true,
      get: () => {
        this.show();
        return this.held.get(field);
      },
      set: (value: unknown) => {
        this.show();
        this.held.set(field, value);
      },
    });
  }

  private slotsOf(field: string): (TfSlot | undefined)[] {
    return (this.held.get(field) as (TfSlot | undefined)[] | undefined) ?? [];
  }

  private variables(): (tfc.Variable | undefined)[] {
    return this.fields.flatMap(([field]) => this.weights.map((_, i) => this.slotsOf(field)[i]?.variable));
  }

  private ids(): (object | undefined)[] {
    return this.variables().map((variable) => variable?.dataId);
  }

  /** Whether tf.js or somebody else has written to the fields since they were last shown or taken up. */
  private isForeign(): boolean {
    if (((this.held.get(ITERATIONS) as number | undefined) ?? 0) !== Math.max(this.shown, 0)) return true;
    const ids = this.ids();
    return ids.some((id, i) => id !== this.dataIds[i]);
  }

  private takeUpAll(): void {
    this.steps = (this.held.get(ITERATIONS) as number | undefined) ?? 0;
    for (const [s, [field]] of this.fields.entries()) {
      const slots = this.slotsOf(field);
      for (const [i, { offset, length }] of this.weights.entries()) {
        const variable = slots[i]?.variable;
        // A slot that tf.js has not made yet begins as the trainer's does.
        if (variable && !variable.isDisposed && variable.size === length) this.trainer.slots[s]!.set(valuesOf(variable), offset);
      }
    }
    this.shown = this.steps;
    this.dataIds = this.ids();
  }

  /** Writes the present values to the fields. */
  private show(): void {
    if (this.shown === this.steps || this.isForeign()) return;
    this.shown = this.steps;
    this.held.set(ITERATIONS, this.steps);
    for (const [s, [field, suffix]] of this.fields.entries()) {
      const slots = this.slotsOf(field);
      for (const [i, weight] of this.weights.entries()) slots[i] = this.written(slots[i], weight, s, suffix);
      this.held.set(field, slots);
    }
    for (const [field, valueAfter] of countedFields(this.rule))
      assign(this.held.get(field) as tfc.Variable, [Math.fround(valueAfter(this.steps))], []);
    this.dataIds = this.ids();
  }

  private written(slot: TfSlot | undefined, { name, shape, offset, length }: TrainedWeight, s: number, suffix: string): TfSlot {
    const values = this.trainer.slots[s]!.slice(offset, offset + length);
    if (slot && !slot.variable.isDisposed) {
      assign(slot.variable, values, shape);
      return slot;
    }
    const made = tfc.tidy(() => tfc.variable(tfc.tensor(values, shape, 'float32'), false));
    return { originalName: `${name}/${suffix}`, variable: made };
  }
}

function assign(variable: tfc.Variable, values: Float32Array | number[], shape: number[]): void {
  if (variable.isDisposed) return;
  const tensor = tfc.tensor(values, shape, 'float32');
  variable.assign(tensor as never);
  tensor.dispose();
}

/** @param byWeight where the layout has a weight */
export const trainedWeights = (
  weights: readonly tfl.LayerVariable[],
  byWeight: ReadonlyMap<tfl.LayerVariable, { readonly offset: number; readonly length: number }>,
): TrainedWeight[] =>
  weights.map((weight) => {
    const { offset, length } = byWeight.get(weight)!;
    return { name: weight.name, shape: weight.shape as number[], offset, length };
  });
