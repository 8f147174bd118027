/**
 * Steps that replicas take alone, between averages: local SGD (Stich, arXiv:1805.09767), and with an outer Nesterov step DiLoCo (Douillard et al.,
 * arXiv:2311.08105). The common parameters and slots stand still meanwhile:
 *
 *     common values -> copied by every replica -> local steps, each replica with its own values and gradient -> the mean -> common values
 *
 * Means are sums in the order of the reduction tree, divided at the end.
 */
import type { Arena } from '@paceline/kernels';
import { split } from '@paceline/learning';
import type { OuterRule } from '../update-rule.js';
import type { LocalMemory, ModelMemory } from './protocol.js';
import type { Update } from './updates.js';

/** A part of the flat vector that is trained, or that is state. */
export interface UpdatedRange {
  readonly offset: number;
  readonly length: number;
  readonly isState: boolean;
}

/** Of one local step of one replica. */
interface LocalStep {
  /** The replica's examples. */
  readonly count: number;
  readonly step: number;
  readonly rate: number;
}

const FLOAT_BYTES = 4;

export class LocalUpdates {
  constructor(
    private readonly arena: Arena,
    private readonly memory: ModelMemory,
    private readonly local: LocalMemory,
    private readonly outer: OuterRule,
    private readonly lengths: { readonly total: number; readonly trainable: number },
  ) {}

  /** The replica's own parameters and state. */
  parameters(replica: number): Float32Array {
    return this.arena.f32(this.local.parameters[replica]!, this.lengths.total);
  }

  /** The replica takes the common values over. */
  begin(replica: number): void {
    const { memory, local, lengths } = this;
    const { kernels } = this.arena;
    kernels.copy(local.parameters[replica]!, memory.parameters, lengths.total);
    memory.slots.forEach((slot, s) => kernels.copy(local.slots[replica]![s]!, slot, lengths.trainable));
  }

  /** The optimizer of one replica, by the gradient in its place. */
  step(replica: number, ranges: readonly UpdatedRange[], update: Update, { count, step, rate }: LocalStep): void {
    const gradScale = 1 / count;
    for (const { offset, length, isState } of ranges) {
      const [params, grad] = [this.local.parameters[replica]!, this.memory.gradients[replica]!].map((at) => at + offset * FLOAT_BYTES) as [
        number,
        number,
      ];
      if (isState) this.arena.kernels.scaleInto(params, grad, length, gradScale);
      else {
        const slots = this.local.slots[replica]!.map((slot) => slot + offset * FLOAT_BYTES);
        update(this.arena, { params, grad, slots, count: length, step, rate, gradScale });
      }
    }
  }

  /** The means become the common values; those of the replicas are overwritten. */
  average(ranges: readonly UpdatedRange[]): void {
    const { memory, local, outer } = this;
    const { kernels } = this.arena;
    for (const { offset, length, isState } of ranges) {
      const at = (pointer: number): number => pointer + offset * FLOAT_BYTES;
      const params = at(memory.parameters);
      const mean = this.mean(local.parameters.map(at), length);
      if (isState || outer.name === 'average') kernels.copy(params, mean, length);
      else {
        kernels.sgd(params, mean, mean, length, 1, 1); // how far the replicas have gone, as a gradient
        kernels.momentum(params, params, at(local.velocity), mean, length, outer.learningRate, outer.momentum, true, 1);
      }
      if (isState) continue;
      for (const [s, slot] of memory.slots.entries())
        kernels.copy(
          at(slot),
          this.mean(
            local.slots.map((slots) => at(slots[s]!)),
            length,
          ),
          length,
        );
    }
  }

  /** In the first of the vectors. */
  private mean(vectors: readonly number[], length: number): number {
    const { kernels } = this.arena;
    const add = (lo: number, hi: number): number => {
      if (hi - lo === 1) return vectors[lo]!;
      const middle = split(lo, hi);
      const into = add(lo, middle);
      kernels.add(into, add(middle, hi), length);
      return into;
    };
    const sum = add(0, vectors.length);
    if (vectors.length > 1) kernels.scaleInto(sum, sum, length, 1 / vectors.length);
    return sum;
  }
}
