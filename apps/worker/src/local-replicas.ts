/**
 * Replicas that take local steps (strategy local-update): the batches of each from the loader, its gradients from the engine at weights of its own, and
 * the inner optimizer of libs/learning over both. A round sums loss and metrics over all local steps.
 *
 * Random layers draw by (seed, local steps before, replica): with one local step as without local updates.
 */
import type { Engine, Sums } from '@paceline/engine';
import { spans } from '@paceline/exchange';
import type { LocalUpdates } from '@paceline/learning';
import type { BatchLoader } from './batch-loader.js';
import type { GradientMemory, LentVectors, Vector } from './gradient-memory.js';
import type { ReplicaRounds, StepOutputs } from './replica-steps.js';

export interface LocalReplicasOptions {
  readonly engine: Pick<Engine, 'step' | 'metricNames'>;
  /** Gives the engine the weights of a local step. */
  load(weights: Float32Array): void;
  readonly loader: BatchLoader;
  readonly updates: LocalUpdates;
  /** Local steps of whole rounds before this one. */
  stepsBefore(round: number): number;
  /** The parameters of a round. */
  generation(round: number): Float32Array;
  readonly outputs: Pick<StepOutputs, 'progress' | 'isObsolete'>;
}

interface Place {
  readonly round: number;
  readonly replica: number;
  readonly localStep: number;
  /** The local step that follows in the round. */
  readonly next: number | undefined;
}

/** Rounds whose outer gradients are computed in a vector of `own`, and copied to the one that is asked for. */
export function handingOn(
  rounds: ReplicaRounds,
  own: Pick<GradientMemory, 'alloc' | 'onlyArena'>,
  lent: Pick<LentVectors, 'pieces' | 'parts'>,
): ReplicaRounds {
  let vector: Vector | undefined;
  return {
    run(round, replica, out) {
      vector ??= own.alloc();
      const sums = rounds.run(round, replica, vector);
      if (sums === undefined) return undefined;
      const pieces = lent.pieces(out);
      for (const [i, { offset, length }] of lent.parts.entries())
        pieces[i]!.set(own.onlyArena.f32(vector[0]! + offset * Float32Array.BYTES_PER_ELEMENT, length));
      return sums;
    },
  };
}

export class LocalReplicas implements ReplicaRounds {
  constructor(private readonly options: LocalReplicasOptions) {}

  /** @returns examples and metrics of the whole round, undefined when it is committed already; the outer gradient is at `out` */
  run(round: number, replica: number, [out]: Vector): Sums | undefined {
    const { engine, loader, updates, generation, outputs } = this.options;
    const metricSums = engine.metricNames.map(() => 0);
    const steps = loader.plan.localSteps(round);
    const start = generation(round);
    const count = updates.run({ round, replica, steps, start, out: out! }, (localStep, weights, gradient) => {
      if (localStep > 0 && outputs.isObsolete(round)) return undefined;
      const next = localStep + 1 < steps ? localStep + 1 : undefined;
      const sums = this.step({ round, replica, localStep, next }, weights, gradient);
      if (next !== undefined) loader.prefetch(round, [replica], next); // what had no free slot
      sums.metricSums.forEach((value, i) => (metricSums[i]! += value));
      outputs.progress();
      return sums.count;
    });
    return count === undefined ? undefined : { count, metricSums };
  }

  private step({ round, replica, localStep, next }: Place, weights: Float32Array, out: Float32Array): Sums {
    const { engine, load, loader, stepsBefore } = this.options;
    let sinceMs = spans.now();
    const batches = loader.take(round, replica, localStep);
    spans.add('take rows', sinceMs);
    if (next !== undefined) loader.prefetch(round, [replica], next); // it is loaded while this step is computed
    try {
      if (batches.length === 0) return { count: 0, metricSums: [] };
      sinceMs = spans.now();
      load(weights);
      spans.add('load parameters', sinceMs);
      sinceMs = spans.now();
      const onComputed = (): void => {
        spans.add('compute', sinceMs);
        sinceMs = spans.now();
      };
      const sums = engine.step({ round: stepsBefore(round) + localStep, replica, batches, out, onComputed });
      spans.add('take gradient', sinceMs);
      return sums;
    } finally {
      loader.release(round, replica, localStep);
    }
  }
}
