/**
 * The engine on a GPU, as it is in its own thread: the same step as that of the other engines (create-engine.ts), but asynchronous, because what a GPU
 * computed can only be waited for. Operations are queued at once, in one piece of JavaScript per micro-batch; then everything that is wanted of
 * it is read together.
 */
import type { Layout } from '@paceline/learning';
import type { ModelDescription, RowFormat } from '@paceline/spec';
import * as tf from '@tensorflow/tfjs-core';
import type { Batch, StepRequest, Sums, TrainedPart } from '../../engine.js';
import { Housekeeping } from '../../training/garbage.js';
import { traceKeptMeanwhile, type Kept } from '../../leaks/leak-trace.js';
import type { OutputMasks } from '../../loss/output-masks.js';
import type { StepKey } from '../../training/randomness.js';
import { TrainingModel } from '../../training/training-model.js';
import { VariableStore } from '../../training/variable-store.js';
import { lossInOperations } from './loss-operations.js';
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
    format: RowFormat,
    layout: Layout,
    private readonly gpu: StartedGpu,
  ) {
    this.model = TrainingModel.build(spec, description, format, gpu);
    this.metricNames = this.model.metricNames;
    this.variables = new VariableStore(layout, this.model.weights, gpu.memory, this.model.freeze);
  }

  load(flat: Float32Array): void {
    this.variables.load(flat);
  }

  async step({ round, replica, batches, out }: StepRequest): Promise<Sums> {
    const { model, variables } = this;
    const pieces = variables.checked(out);
    variables.restoreState();
    const metricSums = model.zeros();
    let count = 0;
    for (const [microBatch, batch] of batches.entries()) {
      model.checkBatch(batch);
      if (batch.count === 0) continue;
      const key = { seed: this.spec.seed, round, replica, microBatch };
      const isFirst = count === 0;
      const sums = await this.gpu.checked(() => this.microBatch(key, batch, pieces, isFirst));
      count += batch.count;
      sums.forEach((sum, i) => (metricSums[i]! += sum));
    }
    if (count === 0) for (const piece of pieces) piece.fill(0);
    else variables.writeState(pieces, count);
    this.housekeeping.afterStep();
    return { count, metricSums: [...metricSums] };
  }

  async evaluate(batch: Batch): Promise<Sums> {
    const { model, gpu } = this;
    model.checkBatch(batch);
    if (batch.count === 0) return { count: 0, metricSums: [...model.zeros()] };
    this.variables.restoreState();
    const metricSums = await gpu.checked(() =>
      reading(
        () => Object.assign(model.outputs(batch), { penalties: model.penalties() }),
        async ({ outputs, masks, penalties }) => {
          await gpu.memory.fetch([...outputs, ...penalties, ...Object.values(masks)]);
          return model.scored(batch, gpu.memory, outputs, penalties, masks);
        },
      ),
    );
    return { count: batch.count, metricSums: [...metricSums] };
  }

  trace(request: StepRequest): Promise<{ result: Sums; kept: Kept[] }> {
    return traceKeptMeanwhile(this.model.layers, () => this.step(request));
  }

  memory(): { tensors: number; buffers: number; bytes: number } {
    const { numTensors, numBytes } = tf.memory();
    return { tensors: numTensors, buffers: tf.backend().numDataIds(), bytes: numBytes };
  }

  /** Disposes of the model; the device stays. */
  dispose(): void {
    this.model.dispose();
  }

  /** Gradients of one micro-batch, copied or added into `out`; what the state has become can be looked at afterwards. */
  private microBatch(key: StepKey, batch: Batch, out: readonly Float32Array[], isFirst: boolean): Promise<Float64Array> {
    const { model, variables, gpu } = this;
    const compute = (): Computed => {
      const outputs: tf.Tensor[] = [];
      const logits: Logits = {};
      const masks: OutputMasks = {};
      try {
        const grads = model.gradients(batch, variables.trainable, (of, scoring, before, mask) => {
          outputs.push(tf.keep(of.clone()));
          if (before) logits[outputs.length - 1] = tf.keep(before.clone());
          if (mask) masks[outputs.length - 1] = tf.keep(mask.clone());
          return lossInOperations(scoring, of, before, mask);
        });
        return { grads, outputs, penalties: model.penalties(), logits, masks };
      } catch (error) {
        tf.dispose([outputs, logits, masks]);
        throw error;
      }
    };
    return reading(
      () => model.randomness.during(key, compute),
      async ({ grads, outputs, penalties, logits, masks }) => {
        const beside = [...Object.values(logits), ...Object.values(masks)];
        await gpu.memory.fetch([...Object.values(grads), ...outputs, ...penalties, ...beside, ...variables.state]);
        variables.takeGradients(grads, out, isFirst);
        const sums = model.scored(
          batch,
          gpu.memory,
          outputs,
          penalties,
          masks,
          outputs.map((_, i) => logits[i]),
        );
        // WebGPU promises neither NaN nor infinity: the gradient of such a loss may look finite.
        if (!Number.isFinite(sums[0])) out[0]![0] = Number.NaN;
        return sums;
      },
    );
  }
}

/** By the number of the output, of those that have some. */
type Logits = Record<string, tf.Tensor>;

/** A type, not an interface: what a tidy gives back is looked through by its keys. */
type Computed = {
  grads: tf.NamedTensorMap;
  outputs: tf.Tensor[];
  penalties: tf.Scalar[];
  logits: Logits;
  masks: OutputMasks;
};

/** Tensors that are made in one piece of JavaScript, read, and disposed of whatever happens. */
async function reading<T extends tf.TensorContainer, R>(make: () => T, read: (made: T) => Promise<R>): Promise<R> {
  const made = tf.tidy(make);
  try {
    return await read(made);
  } finally {
    tf.dispose(made);
  }
}
