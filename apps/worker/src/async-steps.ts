/**
 * The step of one work item (modes async and ssp): one replica batch, one gradient, checked before anybody sees it. The rows of the work item that
 * follows are prepared meanwhile.
 *
 * Memory: one flat vector for the work item in progress, plus one for each that is pushed and not yet counted.
 */
import type { Engine } from '@paceline/engine';
import type { WorkItem } from '@paceline/exchange';
import type { Arena } from '@paceline/kernels';
import { stateChange, type Layout } from '@paceline/learning';
import type { BatchLoader } from './batch-loader.js';
import type { StepOutputs } from './replica-steps.js';

export interface AsyncOutputs extends Pick<StepOutputs, 'contribution' | 'node' | 'progress'> {
  nonFinite(round: number, replica: number): void;
}

export class AsyncSteps {
  constructor(
    private readonly engine: Pick<Engine, 'step' | 'metricNames'>,
    private readonly loader: BatchLoader,
    private readonly gradients: Arena,
    private readonly layout: Layout,
    /** The parameters that the engine has loaded. */
    private readonly parameters: Float32Array,
    private readonly outputs: AsyncOutputs,
  ) {}

  run({ round, replica }: WorkItem, next: WorkItem | undefined): void {
    const { engine, loader, gradients, outputs } = this;
    const { trainableLength, totalLength } = this.layout;
    loader.forget(Math.min(round, next?.round ?? round));
    if (next) loader.prefetch(next.round, [next.replica]);
    const pointer = gradients.alloc(totalLength * 4);
    const out = gradients.f32(pointer, totalLength);
    const { count, metricSums } = engine.step({ round, replica, batches: loader.take(round, replica), out });
    loader.release(round, replica);
    stateChange(out.subarray(trainableLength), this.parameters.subarray(trainableLength), count);
    outputs.progress();
    if (!gradients.kernels.allFinite(pointer, totalLength)) {
      gradients.free(pointer);
      return outputs.nonFinite(round, replica);
    }
    outputs.contribution(round, replica, count, metricSums, true);
    outputs.node(round, replica, replica + 1, pointer);
  }
}
