/**
 * The state of the user's optimizer and the slots of the trainer. As with the weights (weights.ts), training leaves the tf.js variables alone: getters
 * in place of the optimizer's fields write the values back when tf.js or somebody else reads them (getWeights, a step of tf.js itself, save with
 * includeOptimizer), and what was written there since (setWeights) is taken up before the next step.
 */
import * as tfc from '@tensorflow/tfjs-core';
import type * as tfl from '@tensorflow/tfjs-layers';
import { StrategyError, UnsupportedError } from '../errors.js';
import type { FlatValues, Trainer } from '../exchange.js';
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
  /** Steps of which the counted fields do. */
  private counted = -1;
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
    this.catchUp();
    return this.stepsNow() + 1;
  }

  /** Steps so far, as this process knows them, after what was written to the optimizer was taken up. */
  stepsNow(): number {
    if (this.isForeign()) this.takeUpAll();
    return this.steps;
  }

  /** Where others have taken steps meanwhile, they count from now on. */
  catchUp(): void {
    this.steps = this.trainer.takeUp?.() ?? this.steps;
  }

  /** A step was taken, or so many have been by now. */
  stepped(steps = this.steps + 1): void {
    this.steps = steps;
  }

  /** The optimizer gets the present values, and is an ordinary one again. Where other processes have some of them, and are gone, it keeps those of before. */
  leave(): void {
    try {
      this.catchUp();
      this.show();
    } catch (error) {
      if (!(error instanceof StrategyError)) throw error;
      const code = 'OPTIMIZER_STATE';
      process.emitWarning(`the optimizer keeps its state of step ${Math.max(0, this.shown)} of ${this.steps}: ${error.message}`, { code });
      this.count(Math.max(0, this.shown));
    } finally {
      LINKED.delete(this.optimizer);
      for (const field of this.names()) {
        const value = this.held.get(field);
        Object.defineProperty(this.optimizer, field, { configurable: true, enumerable: true, writable: true, value });
      }
    }
  }

  private names(): string[] {
    return [...this.fields.map(([field]) => field), ...countedFields(this.rule).map(([field]) => field), ITERATIONS];
  }

  private watch(field: string): void {
    this.held.set(field, (this.optimizer as Record<string, unknown>)[field]);
    const hasSlots = this.fields.some(([name]) => name === field);
    Object.defineProperty(this.optimizer, field, {
      configurable: true,
      enumerable: true,
      get: () => {
        this.catchUp();
        // Other processes may have parts of the slots, and of nothing else: counts are shown without asking them.
        if (hasSlots) this.show();
        else if (this.isBehind()) {
          this.count(this.steps);
          if (field === ITERATIONS) return this.steps;
        }
        return this.held.get(field);
      },
      set: (value: unknown) => {
        this.catchUp();
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
    return this.haveForeignSlots();
  }

  private haveForeignSlots(): boolean {
    return this.ids().some((id, i) => id !== this.dataIds[i]);
  }

  private takeUpAll(): void {
    this.steps = (this.held.get(ITERATIONS) as number | undefined) ?? 0;
    const areForeign = this.haveForeignSlots();
    let isTouched = false;
    for (const [s, [field]] of this.fields.entries()) {
      const slots = this.slotsOf(field);
      for (const [i, { offset, shape }] of this.weights.entries()) {
        const variable = slots[i]?.variable;
        // A slot that tf.js has not made yet begins as the trainer's does.
        if (!variable || variable.isDisposed || !isShape(variable, shape)) continue;
        if (areForeign && !isTouched) this.trainer.touchSlots?.();
        isTouched = true;
        this.trainer.slots[s]!.set(valuesOf(variable), offset);
      }
    }
    this.shown = this.counted = this.steps;
    this.dataIds = this.ids();
  }

  /** Whether the fields show the values of an earlier step. */
  private isBehind(): boolean {
    return this.shown !== this.steps && !this.isForeign();
  }

  /** Writes the present values to the fields. */
  private show(): void {
    if (!this.isBehind()) return;
    const values = this.fields.length > 0 ? this.trainer.slots : []; // it may throw: nothing has changed yet
    this.shown = this.steps;
    this.held.set(ITERATIONS, this.steps);
    for (const [s, [field, suffix]] of this.fields.entries()) {
      const slots = this.slotsOf(field);
      for (const [i, weight] of this.weights.entries()) slots[i] = this.written(slots[i], weight, values[s]!, suffix);
      // Slots of weights that are frozen now have no place any more: tf.js finds slots by their position.
      for (const left of slots.splice(this.weights.length)) left?.variable.dispose();
      this.held.set(field, slots);
    }
    this.count(this.steps);
    this.dataIds = this.ids();
  }

  /** Writes what follows from the number of steps. */
  private count(steps: number): void {
    if (this.counted === steps) return;
    this.counted = steps;
    for (const [field, valueAfter] of countedFields(this.rule))
      assign(this.held.get(field) as tfc.Variable, [Math.fround(valueAfter(steps))], []);
  }

  private written(slot: TfSlot | undefined, { name, shape, offset, length }: TrainedWeight, all: FlatValues, suffix: string): TfSlot {
    const values = all.slice(offset, offset + length);
    if (slot && !slot.variable.isDisposed) {
      if (isShape(slot.variable, shape)) {
        assign(slot.variable, values, shape);
        return slot;
      }
      // It was made for other weights, before the optimizer was compiled again with some frozen.
      slot.variable.dispose();
    }
    const made = tfc.tidy(() => tfc.variable(tfc.tensor(values, shape, 'float32'), false));
    return { originalName: `${name}/${suffix}`, variable: made };
  }
}

const isShape = (variable: tfc.Variable, shape: readonly number[]): boolean => variable.shape.join() === shape.join();

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
