/** The strategy that cuts a model into stages, for models that are too large for one thread. */
import { LIMITS } from '@paceline/spec';
import type * as tfl from '@tensorflow/tfjs-layers';
import { ArgumentError, UnsupportedError } from './errors.js';
import { checkKeys } from './known-options.js';
import type { ReplicaFunction } from './replicas/replica-function.js';
import { asRun, type RunStrategy } from './run-options.js';
import { Strategy } from './strategy.js';
import type { ModelParallelOptions } from './strategy-options.js';
import { countsOf, THREADS_MAX } from './thread-strategies.js';
import type { Pipeline } from './threads/protocol.js';
import { ThreadExchange } from './threads/thread-exchange.js';

const NAME = 'ModelParallelStrategy';
/** A model seldom has as many layers that can be told apart as a machine has cores. */
const STAGES = 2;
const KNOWN = ['stages', 'pipelines', 'microBatches', 'cutAfter', 'seed', 'deadlineMs'];
/**
 * Stages wait for each other for (stages − 1) / (microBatches + stages − 1) of a step (GPipe, arXiv:1811.06965, section 2.3): a fifth for two stages. With more
 * micro-batches they wait less, but each micro-batch writes a gradient of all weights, and products of few rows are slower.
 */
const MICRO_BATCHES_PER_STAGE = 2;

/**
 * Cuts each model into stages. A compute thread trains the variables of one stage; the micro-batches of each batch
 * go through the stages one after the other (pipeline parallelism: GPipe, arXiv:1811.06965, with the order of PipeDream-Flush, arXiv:2104.04473). Several such
 * pipelines may stand side by side (data parallelism over them: arXiv:2104.04473, section 3): each is a replica.
 */
export class ModelParallelStrategy extends Strategy {
  private readonly pipeline: Pipeline;

  /** @throws ArgumentError for an option that has no meaning */
  constructor(options: ModelParallelOptions = {}) {
    checkKeys(NAME, options, KNOWN);
    const pipeline = pipelineOf(options);
    const { stages, pipelines } = pipeline;
    const counts = countsOf(options, NAME, KNOWN, { threads: stages * pipelines, replicas: pipelines });
    super(new ThreadExchange({ ...counts, updaters: counts.threads, loadsEarly: true, pipeline }), options);
    this.pipeline = pipeline;
  }

  /** A worker for each pipeline, and a replica for each micro-batch. */
  override toRun(): RunStrategy {
    const { stages, pipelines, microBatches } = this.pipeline;
    const strategy = { kind: 'model-parallel', stages, workers: pipelines } as const;
    return asRun('ModelParallelStrategy', this.options, { strategy, replicas: pipelines * microBatches });
  }

  /**
   * The stages of a model of this strategy: the names of their layers, in order.
   * @throws UnsupportedError for a model that cannot be cut into so many stages
   */
  stagesOf(model: tfl.LayersModel): readonly (readonly string[])[] {
    this.check();
    const distributed = this.distributedModel(model);
    if (!distributed)
      throw new ArgumentError('stagesOf takes a model that this strategy distributes: give it to distribute, or compile it in scope');
    return distributed.stages();
  }

  /** A function is not cut into stages. @throws UnsupportedError */
  override async run(_: ReplicaFunction, __: readonly unknown[] = []): Promise<unknown> {
    this.check();
    throw new UnsupportedError(
      `run of ${NAME}`,
      'a function is not cut into stages: train a model with fit, or call the function in MirroredStrategy',
    );
  }
}

function pipelineOf(options: ModelParallelOptions): Pipeline {
  const { cutAfter } = options;
  const isNames = (names: unknown): boolean => Array.isArray(names) && names.every((name) => typeof name === 'string');
  if (cutAfter !== undefined && !(isNames(cutAfter) && cutAfter.length > 0 && cutAfter.length < THREADS_MAX))
    throw new ArgumentError(`${NAME}: cutAfter must be an array of 1 to ${THREADS_MAX - 1} names of layers`);
  const whole = (key: 'stages' | 'pipelines' | 'microBatches', least: number, most: number, otherwise: number, why = ''): number => {
    const value: unknown = options[key] ?? otherwise;
    if (Number.isInteger(value) && Number(value) >= least && Number(value) <= most) return Number(value);
    throw new ArgumentError(`${NAME}: ${key} must be a whole number from ${least} to ${most}${why}, not ${String(value)}`);
  };
  const stages = whole('stages', 2, THREADS_MAX, cutAfter ? cutAfter.length + 1 : STAGES);
  if (cutAfter && cutAfter.length !== stages - 1)
    throw new ArgumentError(
      `${NAME}: ${stages} stages end after ${stages - 1} layers and the last one, and cutAfter names ${cutAfter.length}`,
    );
  const pipelines = whole(
    'pipelines',
    1,
    Math.floor(THREADS_MAX / stages),
    1,
    ` with ${stages} stages, as there are at most ${THREADS_MAX} threads`,
  );
  const most = Math.floor(LIMITS.replicas / pipelines);
  const why = pipelines > 1 ? `, ${LIMITS.replicas} in all pipelines` : '';
  return {
    stages,
    pipelines,
    microBatches: whole('microBatches', 1, most, Math.min(most, stages * MICRO_BATCHES_PER_STAGE), why),
    cutAfter,
  };
}
