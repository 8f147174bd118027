/**
 * The step of one work item (modes async and ssp): one replica batch, one gradient, checked before anybody sees it. The rows of the work item that
 * follows are prepared meanwhile.
 *
 * Memory: one flat vector for the work item in progress, plus one for each that is pushed and not yet counted.
 */
import type { Engine } from '@paceline/engine';
import type { WorkItem } from '@paceline/exchange';
import { stateChange, type Layout } from '@paceline/learning';
import type { BatchLoader } from './batch-loader.js';
import type { GradientMemory } from './gradient-memory.js';
import type { StepOutputs } from './replica-steps.js';

export interface AsyncOutputs extends Pick<StepOutputs, 'contribution' | 'node' | 'progress'> {
  nonFinite(round: number, replica: number): void;
}

export class AsyncSteps {
  constructor(
    private readonly engine: Pick<Engine, 'step' | 'metricNames'>,
    private readonly loader: BatchLoader,
    private readonly gradients: Pick<GradientMemory, 'alloc' | 'free' | 'pieces' | 'allFinite'>,
    private readonly layout: Layout,
    /** The parameters that the engine has loaded. */
    private readonly parameters: Float32Array,
    private readonly outputs: AsyncOutputs,
  ) {}

  run({ round, replica }: WorkItem, next: WorkItem | undefined): void {
    const { engine, loader, gradients, outputs } = this;
    loader.forget(Math.min(round, next?.round ?? round));
    if (next) loader.prefetch(next.round, [next.replica]);
    const vector = gradients.alloc();
    const out = gradients.pieces(vector);
    const { count, metricSums } = engine.step({ round, replica, batches: loader.take(round, replica), out });
    loader.release(round, replica);
    this.toChange(out, count);
    outputs.progress();
    if (!gradients.allFinite(vector)) {
      gradients.free(vector);
      return outputs.nonFinite(round, replica);
    }
    outputs.contribution(round, replica, count, metricSums, true);
    outputs.node(round, replica, replica + 1, vector);
  }

  /** Makes a change of the new state, which follows the gradients in the pieces. */
  private toChange(pieces: readonly Float32Array[], count: number): void {
    const { trainableLength } = this.layout;
    let first = 0;
    for (const piece of pieces) {
      const from = Math.max(trainableLength, first);
      const end = first + piece.length;
      if (from < end) stateChange(piece.subarray(from - first), this.parameters.subarray(from, end), count);
      first = end;
    }
  }
}
