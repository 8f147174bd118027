/** A recorded training as a run: its spec, the file that it begins with, and what came of it against what was recorded. */
import { createHash } from 'node:crypto';
import type { PacelineClient, RunSummary } from '@paceline/client';
import { UserError } from '@paceline/runtime/user-error';
import type { TrainingRecording } from '@paceline/models';
import type { RunSpec, RunSpecInput, VariableSpec } from '@paceline/spec';
import { differenceOf, larger, NONE, type Difference } from './difference.js';

/** Rounds of one query of metrics. */
const ROUNDS_ASKED = 1000;

export type StrategyInput = NonNullable<RunSpecInput['strategy']>;

export interface TrainingOptions {
  readonly workers?: number | undefined;
  readonly servers: number;
  readonly dataset?: string;
  readonly engine?: string;
}

export interface PlannedTraining {
  readonly recording: TrainingRecording;
  readonly spec: RunSpec;
  /** The paths of our variables, in the order of the recorded tensors. */
  readonly variables: readonly VariableSpec[];
  /** Why the model cannot be cut into stages. */
  readonly uncut: string | undefined;
}

export interface TensorResult extends Difference {
  /** As Keras calls it. */
  readonly path: string;
}

/** What a replay ended with, against what was recorded. */
export interface Compared {
  readonly ok: boolean;
  readonly steps: number;
  readonly replicas: number;
  /** Largest differences of the losses; the absolute and the relative one may come from different steps. */
  readonly loss: Difference & { readonly step: number };
  readonly weights: Difference;
  readonly tensors: readonly TensorResult[];
}

export interface TrainingResult extends Compared {
  readonly runId: string;
  readonly weightsSha256: string;
}

const refuse = (recording: TrainingRecording, field: string, message: string): never => {
  throw new UserError('RECORDING_UNUSABLE', `${recording.file}: ${field}: ${message}`, {
    exit: 'badSpec',
    hint: 'docs/verify.md has the fields of a recording.',
  });
};

/** @throws UserError RECORDING_UNUSABLE, naming the field */
export async function planTraining(recording: TrainingRecording, options: TrainingOptions): Promise<PlannedTraining> {
  const [{ parseRunSpec, optimizerOfKeras }, { uncutReason, variablesInKerasOrder }, { RECORDED_STAGES }] = await Promise.all([
    import('@paceline/spec'),
    import('@paceline/models'),
    import('@paceline/strategies/recorded'),
  ]);
  const optimizer = optimizerOfKeras(recording.optimizer);
  if (!optimizer.ok)
    return refuse(recording, `optimizer.${optimizer.issues[0]!.path}`, optimizer.issues.map(({ message }) => message).join('; '));
  const input = {
    name: 'verify',
    model: { topology: withFloatInputs(recording.topology) },
    dataset: options.dataset ?? (await datasetOf(recording)),
    ...(await lossOf(recording)),
    optimizer: optimizer.optimizer,
    gradient: optimizer.gradient,
    globalBatch: recording.globalBatch,
    replicas: recording.replicas,
    shuffle: false,
    strategy: { kind: 'parameter-server', servers: options.servers, startWorkers: Math.min(options.workers ?? 1, recording.replicas) },
    length: { rounds: recording.steps },
    checkpoint: { everySeconds: 0 },
    ...(options.engine === undefined ? {} : { engine: options.engine }),
  };
  const parsed = parseRunSpec(input);
  if (!parsed.ok) {
    const [first] = parsed.issues;
    return refuse(recording, first!.path.replace(/^model\.topology/, 'topology'), first!.message);
  }
  let variables: readonly VariableSpec[];
  try {
    variables = variablesInKerasOrder(parsed.spec.model);
  } catch (error) {
    return refuse(recording, ((error as { path?: string }).path ?? 'topology').replace(/^model\./, ''), (error as Error).message);
  }
  const { tensors } = recording;
  if (variables.length !== tensors.length)
    refuse(recording, 'weights', `lists ${tensors.length} weights, the model of the topology has ${variables.length}`);
  for (const [i, { path, shape }] of tensors.entries())
    if (variables[i]!.shape.join() !== shape.join())
      refuse(
        recording,
        `weights.${i}`,
        `${path} is [${shape.join(', ')}], weight ${i} of the topology is ${variables[i]!.path} [${variables[i]!.shape.join(', ')}]`,
      );
  return { recording, spec: parsed.spec, variables, uncut: uncutReason(parsed.spec, { stages: RECORDED_STAGES }) };
}

/**
 * Keras says that whole numbers go into an Embedding, which takes them from numbers of any kind here: examples come as float32. Into any other layer they
 * would go as they are, and the engine refuses them.
 */
function withFloatInputs(topology: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  const { layers, ...rest } = (topology['config'] ?? {}) as { readonly layers?: unknown };
  if (!Array.isArray(layers)) return topology;
  const classes = layers.map((layer: { readonly class_name?: unknown } | null) => layer?.class_name);
  const afterInput = topology['class_name'] === 'Sequential' ? classes[1] : classes.find((name) => name === 'Embedding');
  if (afterInput !== 'Embedding') return topology;
  const floats = layers.map((layer: { readonly class_name?: unknown; readonly config?: { readonly dtype?: unknown } } | null) => {
    if (layer?.class_name !== 'InputLayer' || !/^u?int(8|16|32|64)$/.test(String(layer.config?.dtype))) return layer;
    return { ...layer, config: { ...layer.config, dtype: 'float32' } };
  });
  return { ...topology, config: { ...rest, layers: floats } };
}

async function datasetOf(recording: TrainingRecording): Promise<string> {
  const { BUILT_IN_DATASETS } = await import('@paceline/spec');
  const said = (recording.dataset ?? recording.data ?? '').toLowerCase();
  const found = BUILT_IN_DATASETS.find((name) => said === name || (recording.dataset === undefined && said.startsWith(name)));
  if (found === undefined)
    refuse(
      recording,
      recording.dataset === undefined ? 'data' : 'dataset',
      `${JSON.stringify(said.slice(0, 100))} begins with no dataset that is known here: ${BUILT_IN_DATASETS.join(', ')}; --dataset names one`,
    );
  return found!;
}

/** "SparseCategoricalCrossentropy(from_logits=True), mean over the global batch". */
async function lossOf(recording: TrainingRecording): Promise<{ loss: string; lossFromLogits?: boolean }> {
  const { lossName, LOSSES } = await import('@paceline/spec');
  const said = /^\s*(\w+)\s*(?:\(([^)]*)\))?\s*(?:$|,\s*(.*)$)/s.exec(recording.loss);
  const name = lossName(said?.[1] ?? '');
  if (!said || !(LOSSES as readonly string[]).includes(name))
    return refuse(recording, 'loss', `${JSON.stringify(recording.loss.slice(0, 100))} is not among ${LOSSES.join(', ')}`);
  const reduction = said[3] ?? 'mean';
  if (!/^mean\b/.test(reduction))
    refuse(recording, 'loss', `${JSON.stringify(reduction.slice(0, 100))}: only the mean over the global batch is minimised here`);
  let lossFromLogits: boolean | undefined;
  for (const argument of (said[2] ?? '').split(',').filter((text) => text.trim() !== '')) {
    const [key, value] = argument.split('=').map((text) => text.trim());
    if (key === 'from_logits' && (value === 'True' || value === 'False')) lossFromLogits = value === 'True';
    else refuse(recording, 'loss', `${argument.trim().slice(0, 100)} is not known here; from_logits=True or False is`);
  }
  return lossFromLogits === undefined ? { loss: name } : { loss: name, lossFromLogits };
}

/** Uploads the initial weights and makes the run. @param strategy of the run, where it is not that of the plan @returns its id */
export async function startTraining(
  client: PacelineClient,
  { recording, spec, variables }: PlannedTraining,
  strategy: StrategyInput = spec.strategy,
): Promise<string> {
  const { safetensorsFile } = await import('@paceline/models');
  const file = safetensorsFile(variables.map(({ path, shape }, i) => ({ name: path, shape, values: recording.tensors[i]!.initial })));
  const { sha256 } = await client.models.upload(file);
  return (await client.createRun({ ...spec, strategy, weights: { upload: sha256 } })).id;
}

/** @throws UserError WEIGHTS_DIFFER when what came is not what the run says */
export async function compareTraining(
  client: PacelineClient,
  run: RunSummary,
  { recording, variables }: PlannedTraining,
  tolerance: number,
): Promise<TrainingResult> {
  const losses = await lossesOf(client, run.id, recording.steps);
  const trained = await weightsOf(client, run);
  const values = variables.map(({ path }) => trained.get(path) ?? new Float32Array());
  return { ...compareNumbers(recording, losses, values, tolerance), runId: run.id, weightsSha256: run.result?.weightsSha256 ?? '' };
}

/** @param weights in the order of the recorded tensors */
export function compareNumbers(
  recording: TrainingRecording,
  losses: readonly (number | undefined)[],
  weights: readonly Float32Array[],
  tolerance: number,
): Compared {
  let step = 0;
  let loss: Difference = NONE;
  for (const [i, recorded] of recording.losses.entries()) {
    const one = differenceOf([losses[i] ?? Number.NaN], [recorded]);
    if (one.relative > loss.relative) step = i + 1;
    loss = larger(loss, one);
  }
  const tensors = recording.tensors.map(({ path, final }, i): TensorResult => ({ path, ...differenceOf(weights[i]!, final) }));
  const most = tensors.reduce<Difference>(larger, NONE);
  return {
    ok: loss.relative <= tolerance && most.relative <= tolerance,
    steps: recording.steps,
    replicas: recording.replicas,
    loss: { ...loss, step },
    weights: most,
    tensors,
  };
}

/** The loss of every round, by its number. */
async function lossesOf(client: PacelineClient, runId: string, steps: number): Promise<(number | undefined)[]> {
  const losses: (number | undefined)[] = Array.from({ length: steps }, () => undefined);
  for (let from = 0; from < steps; from += ROUNDS_ASKED) {
    const asked = { names: ['loss'], fromRound: from, toRound: Math.min(steps, from + ROUNDS_ASKED) - 1, maxPoints: ROUNDS_ASKED };
    const [series] = await client.metrics(runId, asked);
    // A point over several rounds is the mean of them, and says nothing of one.
    for (const { round, rounds, value } of series?.points ?? []) if (rounds === 1) losses[round] = value;
  }
  return losses;
}

async function weightsOf(client: PacelineClient, run: RunSummary): Promise<Map<string, Float32Array>> {
  const { safetensorsTensors } = await import('@paceline/models');
  const parts: Uint8Array[] = [];
  for await (const part of (await client.weights(run.id)).body) parts.push(part);
  const bytes = Buffer.concat(parts);
  const found = createHash('sha256')
    .update(bytes.subarray(8 + Number(bytes.readBigUInt64LE(0))))
    .digest('hex');
  if (found !== run.result?.weightsSha256)
    throw new UserError('WEIGHTS_DIFFER', `The download has the SHA-256 ${found}, and the run says ${run.result?.weightsSha256}.`, {
      exit: 'unsuccessful',
    });
  return safetensorsTensors(bytes);
}
