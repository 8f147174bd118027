/**
 * The engine on a GPU, as it is in its own thread: the same step as that of the other engines (engine.ts), but asynchronous, because what a GPU
 * computed can only be waited for. Operations are queued at once, in one piece of JavaScript per micro-batch; then everything that is wanted of
 * it is read together.
 */
import type { Layout } from '@paceline/learning';
import type { ModelDescription } from '@paceline/spec';
import * as tf from '@tensorflow/tfjs-core';
import type { Batch, StepRequest, Sums } from '../engine.js';
import { Housekeeping } from '../housekeeping.js';
import { traceKeptMeanwhile, type Kept } from '../leaks/leak-trace.js';
import { evaluateLoss, lossInOperations, type Scored } from '../loss.js';
import type { StepKey } from '../randomness.js';
import { TrainingModel, type TrainedPart } from '../training-model.js';
import { VariableStore } from '../variable-store.js';
import type { StartedGpu } from './start.js';

export class GpuEngine {
  readonly metricNames: readonly string[];
  private readonly housekeeping = new Housekeeping();
  private readonly variables: VariableStore;
  private readonly model: TrainingModel;

  /** @throws ModelError */
  constructor(
    private readonly spec: TrainedPart,
    description: ModelDescription,
    layout: Layout,
    private readonly gpu: StartedGpu,
  ) {
    this.model = TrainingModel.build(spec, description, gpu);
    this.metricNames = this.model.metricNames;
    this.variables = new VariableStore(layout, this.model.weights, gpu.memory);
  }

  load(flat: Float32Array): void {
    this.variables.load(flat);
  }

  async step({ round, replica, batches, out }: StepRequest): Promise<Sums> {
    const { model, variables } = this;
    variables.checkLength(out);
    variables.restoreState();
    const total = { count: 0, lossSum: 0, correct: 0 };
    let isFirst = true;
    for (const [microBatch, batch] of batches.entries()) {
      model.checkBatch(batch);
      if (batch.count === 0) continue;
      const key = { seed: this.spec.seed, round, replica, microBatch };
      const scored = await this.gpu.checked(() => this.microBatch(key, batch, out, isFirst));
      isFirst = false;
      total.count += batch.count;
      total.lossSum += scored.lossSum;
      total.correct += scored.correct;
    }
    if (total.count === 0) out.fill(0);
    else variables.writeState(out, total.count);
    this.housekeeping.afterStep();
    return model.sums(total.count, total);
  }

  async evaluate(batch: Batch): Promise<Sums> {
    const { model, gpu } = this;
    model.checkBatch(batch);
    if (batch.count === 0) return model.sums(0, { lossSum: 0, correct: 0 });
    this.variables.restoreState();
    const scored = await gpu.checked(() =>
      reading(
        () => ({ outputs: model.outputs(batch), penalties: model.penalties() }),
        async ({ outputs, penalties }) => {
          await gpu.memory.fetch([outputs, ...penalties]);
          return this.scored(batch, outputs, penalties);
        },
      ),
    );
    return model.sums(batch.count, scored);
  }

  trace(request: StepRequest): Promise<{ result: Sums; kept: Kept[] }> {
    return traceKeptMeanwhile(this.model.layers, () => this.step(request));
  }

  memory(): { tensors: number; buffers: number; bytes: number } {
    const { numTensors, numBytes } = tf.memory();
    return { tensors: numTensors, buffers: tf.backend().numDataIds(), bytes: numBytes };
  }

  /** Of the model; the device stays. */
  dispose(): void {
    this.model.dispose();
  }

  /** Gradients of one micro-batch, copied or added into `out`; what the state has become can be looked at afterwards. */
  private microBatch(key: StepKey, batch: Batch, out: Float32Array, isFirst: boolean): Promise<Scored> {
    const { model, variables, gpu } = this;
    const compute = (): { grads: tf.NamedTensorMap; outputs: tf.Tensor; penalties: tf.Scalar[] } => {
      let outputs: tf.Tensor | undefined;
      try {
        const grads = model.gradients(batch, variables.trainable, (of) => {
          outputs = tf.keep(of.clone());
          return lossInOperations(this.spec.loss, of, batch.y);
        });
        return { grads, outputs: outputs!, penalties: model.penalties() };
      } catch (error) {
        outputs?.dispose();
        throw error;
      }
    };
    return reading(
      () => model.randomness.during(key, compute),
      async ({ grads, outputs, penalties }) => {
        await gpu.memory.fetch([...Object.values(grads), outputs, ...penalties, ...variables.state]);
        variables.takeGradients(grads, out, isFirst);
        const scored = this.scored(batch, outputs, penalties);
        // WebGPU promises neither NaN nor infinity: the gradient of such a loss may look finite.
        if (!Number.isFinite(scored.lossSum)) out[0] = Number.NaN;
        return scored;
      },
    );
  }

  /** From what was fetched. */
  private scored(batch: Batch, outputs: tf.Tensor, penalties: readonly tf.Scalar[]): Scored {
    const { memory } = this.gpu;
    const { lossSum, correct } = evaluateLoss(this.spec.loss, memory, outputs, batch.y);
    return { lossSum: penalties.reduce((sum, penalty) => sum + memory.values(penalty)[0]! * batch.count, lossSum), correct };
  }
}

/** Tensors that are made in one piece of JavaScript, read, and disposed of whatever happens. */
async function reading<T extends tf.TensorContainer, R>(make: () => T, read: (made: T) => Promise<R>): Promise<R> {
  const made = tf.tidy(make);
  try {
    return await read(made);
  } finally {
    tf.dispose(made);
  }
}
