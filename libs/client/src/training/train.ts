/** `client.train`: a compiled model of tf.js, its data and a strategy become a run; the trained weights come back into the model. */
import type { RunSpecInput } from '@paceline/spec';
import { PacelineApiError } from '../api-error.js';
import type { DatasetsClient } from '../datasets.js';
import type { ModelsClient } from '../models.js';
import { FINAL_STATUSES, type Run, type RunEvent, type RunMetric } from '../types.js';
import { readModel } from './read-model.js';
import { tensorFile, tensorsOf, type NamedValues } from './tensor-file.js';
import { datasetOf, type TensorData } from './training-data.js';
import { namedWeights, writeValues, type ModelLike } from './tf-shapes.js';
import { TrainError } from './train-error.js';
import { checkOptions, type TrainOptions } from './train-options.js';

type StrategyInput = NonNullable<RunSpecInput['strategy']>;

/** The strategy of a run, and what else of its spec comes with it. */
interface Distribution {
  readonly strategy: StrategyInput;
  readonly replicas?: number;
  readonly seed?: number;
  readonly stepDeadlineMs?: number;
}

/** A strategy of the library says what it is as a run. */
export interface StrategyObject {
  toRun(): Distribution & { readonly replicas: number };
}

/** Tensors or arrays of this program; or a dataset by its name, and which columns of it are what. */
export type TrainingSource = TensorData | string | { readonly dataset: string; readonly features?: RunSpecInput['features'] };

export interface TrainedRun {
  readonly run: Run;
  /** The loss over the evaluation split. */
  readonly loss: number | undefined;
}

/** What is asked of the client. */
export interface TrainingApi {
  readonly datasets: DatasetsClient;
  readonly models: ModelsClient;
  createRun(spec: RunSpecInput): Promise<Run>;
  cancelRun(id: string): Promise<Run>;
  run(id: string): Promise<Run | null>;
  runEvents(id: string, options: { readonly signal: AbortSignal | undefined }): AsyncGenerator<RunEvent, void, void>;
  runMetrics(id: string, options: { readonly signal: AbortSignal | undefined }): AsyncGenerator<RunMetric, void, void>;
  weights(id: string): Promise<{ readonly body: AsyncIterable<Uint8Array> }>;
}

/** A run that trains a model of this program. */
export class Training {
  constructor(
    private readonly client: TrainingApi,
    private readonly model: ModelLike,
    readonly runId: string,
    private readonly signal: AbortSignal | undefined,
  ) {}

  /** Loss and metrics of rounds, as they are committed; ends with the run. */
  progress(): AsyncGenerator<RunMetric, void, void> {
    return this.client.runMetrics(this.runId, { signal: this.signal });
  }

  async cancel(): Promise<void> {
    await this.client.cancelRun(this.runId);
  }

  /**
   * Waits for the end of the run, and writes the trained weights into the model.
   * @throws TrainError TRAIN_NOT_SUCCEEDED with the reason of the run; the model is as it was
   */
  async result(): Promise<TrainedRun> {
    const { client, runId, signal } = this;
    for await (const event of client.runEvents(runId, { signal })) void event; // until it is over
    signal?.throwIfAborted();
    const run = await client.run(runId);
    if (!run) throw new TrainError('TRAIN_NOT_SUCCEEDED', `run ${runId}`, 'it was removed');
    if (!FINAL_STATUSES.has(run.status)) return this.result();
    if (run.status !== 'SUCCEEDED')
      throw new TrainError('TRAIN_NOT_SUCCEEDED', `run ${runId}`, `it is ${run.status}: ${run.statusReason ?? 'no reason'}`);
    const parts: Uint8Array<ArrayBuffer>[] = [];
    for await (const part of (await client.weights(runId)).body) parts.push(part as Uint8Array<ArrayBuffer>);
    const tensors = tensorsOf(new Uint8Array(await new Blob(parts).arrayBuffer()));
    const weights = namedWeights(this.model.layers);
    const missing = weights.find(({ path }) => !tensors.has(path));
    if (missing) throw new PacelineApiError('BAD_ANSWER', `The weights of the run have no ${missing.path}.`);
    for (const weight of weights) await writeValues(weight, tensors.get(weight.path)!);
    return { run, loss: run.result?.loss ?? undefined };
  }
}

/** @throws TrainError with what cannot be sent, before anything is sent; PacelineApiError INVALID_INPUT with what the api refuses */
export async function train(
  client: TrainingApi,
  model: ModelLike,
  source: TrainingSource,
  strategy: StrategyInput | StrategyObject,
  options: TrainOptions = {},
): Promise<Training> {
  await checkOptions(options);
  const { epochs = 5, batchSize = 32, validationSplit = 0, shuffle, replicas, name, spec, signal } = options;
  const read = await readModel(model);
  const distribution = distributionOf(strategy);
  const isTensors = typeof source === 'object' && 'xs' in source;
  if (!isTensors && validationSplit !== 0)
    throw new TrainError('TRAIN_DATA', 'validationSplit', 'a prepared dataset has its splits: give --split to its import');
  const initial: NamedValues[] = [];
  for (const { path, weight } of namedWeights(model.layers)) {
    const { shape } = weight.read();
    initial.push({ name: path, shape, values: Float32Array.from(await weight.read().data()) });
  }
  const data = isTensors
    ? {
        dataset: await datasetOf(client.datasets, source, read, validationSplit, signal),
        features: {
          inputs: { inputs: [{ kind: 'array' as const, column: 'inputs' }] },
          targets: { targets: { kind: 'array' as const, column: 'targets' } },
        },
      }
    : typeof source === 'string'
      ? { dataset: source }
      : source;
  signal?.throwIfAborted();
  const { sha256 } = await client.models.upload(tensorFile(initial), { signal });
  const named = {
    name: name ?? model.name,
    length: { epochs },
    globalBatch: batchSize,
    ...distribution,
    ...(replicas === undefined ? {} : { replicas }),
    ...(shuffle === undefined ? {} : { shuffle }),
  } as RunSpecInput;
  const own = (
    isTensors || read.classes === undefined ? read.spec : { ...read.spec, loss: 'sparseCategoricalCrossentropy' }
  ) as RunSpecInput;
  signal?.throwIfAborted();
  const run = await client.createRun({ ...own, ...named, ...spec, ...data, weights: { upload: sha256 } } as RunSpecInput);
  return new Training(client, model, run.id, signal);
}

function distributionOf(strategy: StrategyInput | StrategyObject): Distribution {
  const given = strategy as Partial<StrategyObject> & { readonly kind?: unknown };
  if (typeof given?.toRun === 'function') return given.toRun();
  if (typeof given?.kind === 'string') return { strategy: strategy as StrategyInput };
  throw new TrainError(
    'TRAIN_STRATEGY',
    'strategy',
    "give a strategy of the library, such as new MirroredStrategy(), or that of a run, such as { kind: 'parameter-server', servers: 2 }",
  );
}
