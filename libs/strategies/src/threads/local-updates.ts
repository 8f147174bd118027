/**
 * Steps that replicas take alone, between averages: local SGD (Stich, arXiv:1805.09767), and with an outer Nesterov step DiLoCo (Douillard et al.,
 * arXiv:2311.08105). The common parameters and slots stand still meanwhile:
 *
 *     common values -> copied by every replica -> local steps, each replica with its own values and gradient -> the mean -> common values
 *
 * Where replicas keep their slots, as DiLoCo has it, the parameters alone are averaged, and each replica goes on with the common ones and its own slots.
 *
 * With elastic averaging (EASGD; Zhang, Choromanska and LeCun, arXiv:1412.6651) every replica keeps its values, and the common ones are their centre: an average
 * pulls both towards each other, and the slots stay with their replica.
 *
 * With fragments (fragments.ts) the parameters are averaged in parts, each in a place of its own, so that replicas may take steps meanwhile; slots stay with their replica.
 *
 * An average goes vector by vector, the parameters with their state first and then each slot: what the replicas have is copied to where their gradients
 * are (`collect`) and added up there as these are, over processes too; `take` divides the sum and makes common values of it. So bits are those of the reduction tree, whatever
 * the number of threads and processes.
 */
import type { Arena } from '@paceline/kernels';
import type { OuterRule } from '../update-rule.js';
import type { FragmentRange } from './fragments.js';
import type { LocalMemory, ModelMemory } from './protocol.js';
import type { Update } from './updates.js';
import type { Range } from './ranges.js';

/** A part of the flat vector that is trained, or that is state. */
export interface UpdatedRange extends Range {
  readonly isState: boolean;
}

/** Of one local step of one replica. */
interface LocalStep {
  /** The replica's examples. */
  readonly count: number;
  readonly step: number;
  readonly rate: number;
}

/** The vectors of an average: this one, with the state, and from 1 on the slots. */
export const PARAMETERS = 0;
const FLOAT_BYTES = 4;

export class LocalUpdates {
  constructor(
    private readonly arena: Arena,
    private readonly memory: ModelMemory,
    private readonly local: LocalMemory,
    private readonly outer: OuterRule,
    private readonly lengths: { readonly total: number; readonly trainable: number },
    /** Over all processes. */
    private readonly replicas: number,
  ) {}

  /** The replica's own parameters and state. */
  parameters(replica: number): Float32Array {
    return this.arena.f32(this.local.parameters[replica]!, this.lengths.total);
  }

  /** The replica takes the common values over. */
  begin(replica: number): void {
    this.takeParameters(replica);
    this.takeSlots(replica);
  }

  /** The same of parameters and state alone. */
  takeParameters(replica: number): void {
    const { memory, local, lengths } = this;
    this.arena.kernels.copy(local.parameters[replica]!, memory.parameters, lengths.total);
  }

  /** The same of the slots alone. */
  takeSlots(replica: number): void {
    const { memory, local, lengths } = this;
    const { kernels } = this.arena;
    memory.slots.forEach((slot, s) => kernels.copy(local.slots[replica]![s]!, slot, lengths.trainable));
  }

  /** The optimizer of one replica, by the gradient in its place. */
  step(replica: number, ranges: readonly UpdatedRange[], update: Update, { count, step, rate }: LocalStep): void {
    const gradScale = 1 / count;
    for (const { offset, length, isState, keepsWeight } of ranges) {
      const [params, grad] = [this.local.parameters[replica]!, this.memory.gradients[replica]!].map((at) => at + offset * FLOAT_BYTES) as [
        number,
        number,
      ];
      if (isState) this.arena.kernels.scaleInto(params, grad, length, gradScale);
      else {
        const slots = this.local.slots[replica]!.map((slot) => slot + offset * FLOAT_BYTES);
        update(this.arena, { params, grad, slots, count: length, step, rate, gradScale, keepsWeight });
      }
    }
  }

  /** Copies a vector of each replica of this process to the place of its gradient. */
  collect(vector: number, ranges: readonly Range[]): void {
    const { memory, local, lengths } = this;
    for (const [r, gradient] of memory.gradients.entries()) {
      const from = vector === PARAMETERS ? local.parameters[r]! : local.slots[r]![vector - 1]!;
      for (const { offset, length } of ranges) {
        const end = vector === PARAMETERS ? lengths.total : lengths.trainable;
        if (offset < end) this.arena.kernels.copy(gradient + offset * FLOAT_BYTES, from + offset * FLOAT_BYTES, length);
      }
    }
  }

  /** Makes common values of the sum over all replicas, which is where the first one's gradient was. */
  take(vector: number, ranges: readonly UpdatedRange[]): void {
    const { memory, outer, replicas } = this;
    const { kernels } = this.arena;
    for (const { offset, length, isState } of ranges) {
      if (isState && vector !== PARAMETERS) continue;
      const at = (pointer: number): number => pointer + offset * FLOAT_BYTES;
      const mean = at(memory.gradients[0]!);
      if (replicas > 1) kernels.scaleInto(mean, mean, length, 1 / replicas);
      const common = at(vector === PARAMETERS ? memory.parameters : memory.slots[vector - 1]!);
      if (vector !== PARAMETERS) kernels.copy(common, mean, length);
      else if (outer.name === 'elastic') this.pull(common, mean, { offset, length, isState }, outer.movingRate);
      else this.outerStep(common, mean, { offset, length, isState });
    }
  }

  /** The common parameters take over the mean, or take a step towards it; state is the mean. */
  private outerStep(common: number, mean: number, { offset, length, isState }: UpdatedRange): void {
    const { kernels } = this.arena;
    const { outer } = this;
    if (isState || outer.name !== 'nesterov') return kernels.copy(common, mean, length);
    const velocity = this.local.velocity + offset * FLOAT_BYTES;
    kernels.sgd(common, mean, mean, length, 1, 1); // how far the replicas have gone, as a gradient
    kernels.momentum(common, common, velocity, mean, length, outer.learningRate, outer.momentum, true, 1);
  }

  /** Copies a fragment of each replica of this process to where it is added up while they go on. */
  collectFragment(ranges: readonly FragmentRange[]): void {
    for (const [r, parameters] of this.local.parameters.entries())
      for (const { offset, length, packed } of ranges)
        this.arena.kernels.copy(this.local.fragments[r]! + packed * FLOAT_BYTES, parameters + offset * FLOAT_BYTES, length);
  }

  /** Makes common values of a fragment's sum, and each replica takes them: x = mixing · x + (1 − mixing) · common. */
  takeFragment(ranges: readonly (UpdatedRange & FragmentRange)[], mixing: number): void {
    const { memory, local, replicas } = this;
    const { kernels } = this.arena;
    for (const { offset, length, isState, packed } of ranges) {
      const mean = local.fragments[0]! + packed * FLOAT_BYTES;
      const common = memory.parameters + offset * FLOAT_BYTES;
      if (replicas > 1) kernels.scaleInto(mean, mean, length, 1 / replicas);
      this.outerStep(common, mean, { offset, length, isState });
      for (const parameters of local.parameters) {
        const own = parameters + offset * FLOAT_BYTES;
        if (mixing === 0) kernels.copy(own, common, length);
        else {
          kernels.scaleInto(own, own, length, mixing);
          kernels.sgd(own, own, common, length, 1 - mixing, -1);
        }
      }
    }
  }

  /** x += α · (c − x) for each replica of this process, c += α · n · (mean − c) with the c of before. State is the mean for all. */
  private pull(centre: number, mean: number, { offset, length, isState }: UpdatedRange, rate: number): void {
    const { kernels } = this.arena;
    for (const parameters of this.local.parameters) {
      const own = parameters + offset * FLOAT_BYTES;
      if (isState) kernels.copy(own, mean, length);
      else {
        const away = this.local.velocity + offset * FLOAT_BYTES; // there is no other use of it here
        kernels.sgd(own, away, centre, length, 1, 1);
        kernels.sgd(own, own, away, length, rate, 1);
      }
    }
    if (isState) return kernels.copy(centre, mean, length);
    kernels.sgd(mean, mean, centre, length, 1, 1);
    kernels.sgd(centre, centre, mean, length, rate * this.replicas, -1);
  }
}
