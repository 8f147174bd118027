/** A recorded training as plain data for who trains it with tf.js: the topology that stock tf.js loads, the weights by their paths, and the rows in their order. */
import { openBuiltIn } from '@paceline/data';
import { outputActivations, planModel } from '@paceline/engine/planning';
import { fieldLength, type RunSpec, type VariableSpec } from '@paceline/spec';
import { ExportError } from './export-error.js';
import type { TrainingRecording } from './recording.js';
import { stockTopology } from './stock-topology.js';

export interface RecordedProgram {
  /** As tf.js writes it. */
  readonly topology: Readonly<Record<string, unknown>>;
  readonly layers: readonly string[];
  readonly weights: readonly { readonly path: string; readonly shape: readonly number[]; readonly initial: Float32Array }[];
  /** Rows that the steps take, one after the other; after the last one they begin again. */
  readonly rows: { readonly count: number; readonly inputs: Float32Array; readonly targets: Float32Array };
  /** Number of classes where the target is one; undefined where it is values. */
  readonly classes: number | undefined;
  readonly loss: { readonly name: string; readonly fromLogits: boolean };
  readonly optimizer: RunSpec['optimizer'];
  readonly globalBatch: number;
  readonly replicas: number;
  readonly steps: number;
}

/**
 * @param variables the paths of the recorded tensors, in their order
 * @throws ExportError LAYER_NOT_EXPORTABLE for a layer that tf.js does not have
 */
export async function recordedProgram(
  recording: TrainingRecording,
  spec: RunSpec,
  variables: readonly VariableSpec[],
): Promise<RecordedProgram> {
  const { plan } = planModel({ model: spec.model }, undefined);
  const topology = stockTopology(plan, 'recorded');
  const { globalBatch, steps, replicas } = recording;
  const opened = await openBuiltIn(spec);
  try {
    const { inputs, targets } = opened.format;
    if (inputs.length !== 1 || targets.length !== 1)
      throw new ExportError(
        'LAYER_NOT_EXPORTABLE',
        `${spec.dataset} has ${inputs.length} inputs and ${targets.length} targets; one of each is replayed`,
      );
    const count = Math.min(opened.train.count, globalBatch * steps);
    const [input, target] = [new Float32Array(count * fieldLength(inputs[0]!)), new Float32Array(count * fieldLength(targets[0]!))];
    const order = Int32Array.from({ length: count }, (_, row) => row);
    await opened.train.gather(order, 0, count, { inputs: [input], targets: [target], weights: undefined });
    return {
      topology,
      layers: plan.layers.map(({ className }) => className),
      weights: variables.map(({ path, shape }, i) => ({ path, shape, initial: recording.tensors[i]!.initial })),
      rows: { count, inputs: input, targets: target },
      classes: targets[0]!.kind === 'classes' ? targets[0]!.classes : undefined,
      loss: { name: spec.loss ?? '', fromLogits: spec.lossFromLogits ?? !/^(?:softmax|sigmoid)$/.test(outputActivations(plan)[0] ?? '') },
      optimizer: spec.optimizer,
      globalBatch,
      replicas,
      steps,
    };
  } finally {
    await opened.close();
  }
}
