/**
 * How a run is distributed: one schema per kind of strategy, in a list. Every kind says its `mode`, `accumulate` and `standby`; what else the
 * processes of a run ask of a strategy they ask through the functions at the end, so that a kind names only the fields that mean something in it.
 *
 *     parameter-server        servers hold the shards, workers compute
 *     multi-worker-mirrored   the workers hold the shards themselves: reduce-scatter to the owner of a range, all-gather of what it has updated
 *     auto                    parameter servers at first; what the first rounds have measured decides (auto-strategy.ts)
 *     local-update            servers or workers hold the shards; a round is several steps of each replica by itself, and what they changed is sent
 *     hybrid                  servers hold the shards; each worker computes in several threads, adds their gradients up, and sends the sum
 *     mirrored                one worker holds the run, and computes in several threads: nothing goes over sockets
 *     one-device              one worker holds the run, and computes its one replica in one thread
 *     model-parallel          the workers hold the shards; each cuts the model into stages, and its replicas go through them as micro-batches
 *     tpu                     one worker holds the run, and computes in several threads, which take several steps together before anybody hears of them
 */
import { z } from 'zod';
import { LIMITS } from './limits.js';
import { positiveRate } from './optimizer-spec.js';
import { shardHolders } from './shard-holders.js';
import { DEFAULT_STALENESS_BOUND } from './unused-options.js';

/** Also by default: how many are of use depends on the model, and not on the cores alone. */
const FEWEST_STAGES = 2;
/** With the names of the models that it is nested in. */
const LAYER_NAME_CHARACTERS = 300;

export const MODES = ['sync', 'async', 'ssp'] as const;

const accumulate = z
  .int()
  .min(1)
  .max(LIMITS.accumulateMicroBatches)
  .describe('Micro-batches per replica and round; their gradients add up before anything is sent.')
  .default(1);

const standby = z
  .int()
  .min(0)
  .max(1)
  .describe('Standby servers per shard: 1 lets a lost server be replaced without redoing a round.')
  .default(0);

const servers = z.int().min(1).max(LIMITS.servers).describe('Parameter-server processes that share the parameters.').default(1);

const backupReplicas = z
  .int()
  .min(0)
  .max(LIMITS.replicas - 1)
  .describe('With mode sync: replicas that a round does not wait for (Chen et al. 2016); above 0 no equal bits are promised.')
  .default(0);

const startWorkers = z
  .int()
  .min(1)
  .max(LIMITS.replicas)
  .describe('With mode sync: workers that must have joined before the first round; at most `replicas`. Left out: one.')
  .optional();

const workers = z
  .int()
  .min(1)
  .max(LIMITS.servers)
  .describe(
    'Workers that hold the run, each with a shard of the parameters; at most `replicas`. `scaleRun` changes it from the next attempt on. Left out: 2 with multi-worker-mirrored, 1 with model-parallel; with local-update, parameter servers hold the shards.',
  );

const minWorkers = z
  .int()
  .min(1)
  .max(LIMITS.servers)
  .describe(
    'With multi-worker-mirrored and model-parallel: the run goes on with fewer workers by itself, but not with fewer than this, when fewer than `workers` have been connected for 15 s; at most `workers`. Left out: it waits for all of them.',
  )
  .optional();

const maxWorkers = z
  .int()
  .min(1)
  .max(LIMITS.servers)
  .describe(
    'With multi-worker-mirrored and model-parallel: the run takes idle workers by itself, up to this many, and keeps them to its end. From `workers` to `replicas`; needs `minWorkers`. It does so in attempt n after n minutes of training, where rounds take less than 4 s, no other run waits, and the workers have been idle for 15 s. Each change costs a checkpoint and an attempt. Every worker that may connect must be able to hold a part: the same folder, engine and memory. `scaleRun` ends it. Left out: the run takes no more by itself.',
  )
  .optional();

const threads = z
  .int()
  .min(1)
  .max(LIMITS.threads)
  .describe(
    'Compute threads of each worker, which share its replicas; at most `replicas`. Left out: one per core of the worker, at most one per replica; 1 with multi-worker-mirrored and local-update. With tpu they stand for the cores of a TPU.',
  )
  .optional();

export const parameterServerSchema = z.strictObject({
  kind: z.literal('parameter-server'),
  mode: z
    .enum(MODES)
    .describe(
      'When gradients are applied: sync applies all replicas at once; async applies each as it comes; ssp is async within a bound on staleness.',
    )
    .default('sync'),
  servers,
  accumulate,
  stalenessBound: z
    .int()
    .min(0)
    .max(LIMITS.stalenessBound)
    .describe('With mode ssp: rounds that the fastest replica may be ahead of the slowest (Ho et al. 2013).')
    .default(DEFAULT_STALENESS_BOUND),
  stalenessScaledRate: z
    .boolean()
    .describe('With mode async or ssp: divide the step size of an update by 1 + its staleness (Zhang et al. 2016).')
    .default(false),
  delayCompensation: z
    .number()
    .min(0)
    .max(10)
    .describe('With mode async or ssp: lambda of DC-ASGD (Zheng et al. 2017); 0 is off.')
    .default(0),
  backupReplicas,
  startWorkers,
  standby,
});

export const multiWorkerMirroredSchema = z.strictObject({
  kind: z.literal('multi-worker-mirrored'),
  mode: z.literal('sync').default('sync'),
  workers: workers.default(2),
  minWorkers,
  maxWorkers,
  threads,
  accumulate,
  standby,
});

export const OUTER_OPTIMIZERS = ['sgd', 'momentum', 'nesterov', 'elastic'] as const;
export const INNER_STATES = ['reset', 'keep'] as const;

export const localUpdateSchema = z.strictObject({
  kind: z.literal('local-update'),
  mode: z.literal('sync').describe('A round ends when all replicas have taken their local steps.').default('sync'),
  servers,
  workers: workers.optional(),
  threads,
  accumulate,
  localSteps: z
    .int()
    .min(1)
    .max(LIMITS.localSteps)
    .describe(
      'Batches that a replica trains on by itself in a round, with `optimizer`, before its weights are averaged with the others (H).',
    )
    .default(20),
  syncSteps: z
    .int()
    .min(1)
    .max(LIMITS.rounds)
    .describe(
      'Rounds at the beginning of the run that have one local step each, before those of `localSteps` (post-local SGD, Lin et al. 2018); with sgd at rate 1 as the outer optimizer. Left out: none.',
    )
    .optional(),
  fragments: z
    .int()
    .min(2)
    .max(LIMITS.fragments)
    .describe(
      'Parts that the parameters are cut into, of which each round exchanges one, in turn (Streaming DiLoCo, Douillard et al. 2025); replicas go on with their own weights in the others. Left out: each round exchanges all.',
    )
    .optional(),
  outerOptimizer: z
    .enum(OUTER_OPTIMIZERS)
    .describe(
      'What the servers do with the mean difference of the weights in a round: sgd at rate 1 averages the weights (Stich 2018); nesterov is that of DiLoCo (Douillard et al. 2023); with elastic they move towards the mean, and each replica keeps weights of its own (EASGD, Zhang et al. 2015).',
    )
    .default('sgd'),
  outerLearningRate: positiveRate('Step size of the outer optimizer. Left out: 1 with sgd, 0.7 with momentum and nesterov.').optional(),
  outerMomentum: z
    .number()
    .min(0)
    .lt(1)
    .describe('With outerOptimizer momentum and nesterov: velocity kept per round. Left out: 0.9.')
    .optional(),
  movingRate: z
    .number()
    .gt(0)
    .max(1)
    .describe(
      'With outerOptimizer elastic: the part of the difference by which a replica and the weights of the servers go towards each other in a round (alpha of Zhang et al. 2015); at most 1 / `replicas`. Left out: 0.9 / `replicas`.',
    )
    .optional(),
  innerState: z
    .enum(INNER_STATES)
    .describe(
      'What a replica keeps of its optimizer between rounds: reset begins each round with slots as at the start; keep goes on with them, and equal bits then need replicas that stay where they are.',
    )
    .default('reset'),
  backupReplicas,
  startWorkers,
  standby,
});

export const autoSchema = z.strictObject({
  kind: z.literal('auto'),
  mode: z.literal('sync').default('sync'),
  servers,
  accumulate,
  allowedLocalSteps: z
    .int()
    .min(2)
    .max(LIMITS.localSteps)
    .describe(
      'Lets auto pick local-update too, with so many local steps, where that saves 30 % of the time of a step: it changes what is trained. With `codec: auto` its gradients are then sparse, with error feedback. What the spec counts in rounds is taken as steps then. Left out: auto picks strategies with equal bits alone.',
    )
    .optional(),
  startWorkers,
  standby,
});

export const hybridSchema = z.strictObject({
  kind: z.literal('hybrid'),
  mode: z.literal('sync').default('sync'),
  servers,
  threads,
  accumulate,
  startWorkers,
  standby,
});

export const mirroredSchema = z.strictObject({
  kind: z.literal('mirrored'),
  mode: z.literal('sync').default('sync'),
  threads,
  accumulate,
  standby,
});

export const oneDeviceSchema = z.strictObject({
  kind: z.literal('one-device'),
  mode: z.literal('sync').default('sync'),
  accumulate,
  standby,
});

export const modelParallelSchema = z.strictObject({
  kind: z.literal('model-parallel'),
  mode: z.literal('sync').default('sync'),
  workers: workers.default(1),
  minWorkers,
  maxWorkers,
  stages: z
    .int()
    .min(FEWEST_STAGES)
    .max(LIMITS.threads)
    .describe(
      'Parts that the model is cut into between layers, each with a compute thread in every worker. The replicas of a worker go through them one after the other, as micro-batches (GPipe, Huang et al. 2019; PipeDream-Flush, Narayanan et al. 2021). Left out: as many as `cutAfter` makes, else 2.',
    )
    .optional(),
  cutAfter: z
    .array(z.string().min(1).max(LAYER_NAME_CHARACTERS))
    .min(1)
    .max(LIMITS.threads - 1)
    .describe(
      'Layers that end a stage, without the last one, in the order of the model; a layer of a nested model is called `model/layer`. Left out: the cuts that balance the multiplications of the stages.',
    )
    .optional(),
  accumulate,
  standby,
});

export const tpuSchema = z.strictObject({
  kind: z.literal('tpu'),
  mode: z.literal('sync').default('sync'),
  threads,
  stepsPerExecution: z
    .int()
    .min(1)
    .max(LIMITS.stepsPerExecution)
    .describe(
      'Steps that the threads take together in a round: batches, gradients, sums and updates (steps_per_execution of Keras, on a TPU a loop on the device). The run is committed, reported and stopped between rounds. The last round of an epoch may have fewer.',
    )
    .default(20),
  accumulate,
  standby,
});

/** A kind that is added here is on every surface. */
export const STRATEGY_KINDS = [
  ...([parameterServerSchema, multiWorkerMirroredSchema, localUpdateSchema, autoSchema] as const),
  ...([hybridSchema, mirroredSchema, oneDeviceSchema, modelParallelSchema, tpuSchema] as const),
] as const;

/** Kinds of the library that runs have no use for, and why. */
export const KINDS_LEFT_OUT: Readonly<Record<string, string>> = {
  'central-storage':
    'runs have no central-storage, because a run with mirrored keeps its parameters and its optimizer in one place already, the worker that holds it, and all threads load them from there: take mirrored',
};

const DIRECT_ONLY =
  'runs have direct exchange only: each range of the parameters is added up by the process that holds it, in the order of the replicas, so that the bits do not depend on the number of workers, and standbys, checkpoints and codecs go with it; leave it out, or train with the library, whose processes take other ways';

/** Options of the library that no run has, by their path in a spec, and why. */
export const FIELDS_LEFT_OUT: Readonly<Record<string, string>> = {
  'strategy.communication': DIRECT_ONLY,
  'strategy.topology': DIRECT_ONLY,
  'strategy.workersPerGroup':
    'a group of a run with hybrid is one worker with its compute threads, since workers come and go while a run trains: set strategy.threads, or train with HybridStrategy of the library, whose groups are several processes',
};

export const strategySchema = z.discriminatedUnion('kind', STRATEGY_KINDS);

export type StrategySpec = z.output<typeof strategySchema>;

interface ThreadedStrategy {
  readonly kind?: StrategySpec['kind'] | undefined;
  readonly threads?: number | undefined;
  readonly stages?: number | undefined;
  readonly cutAfter?: readonly string[] | undefined;
}

/** Whether the workers of a run compute in several threads, or in one of a kind that has several: these take engines whose code may be in more than one thread. */
export const isThreaded = ({ strategy, replicas }: { readonly strategy: ThreadedStrategy; readonly replicas: number }): boolean =>
  stagesOf(strategy) !== undefined || strategy.kind === 'tpu' || threadsOf({ strategy, replicas }, LIMITS.threads) > 1;

/** Stages that the model of a run is cut into, each with a compute thread in every worker; undefined where it is not cut. */
export function stagesOf({ kind, stages, cutAfter }: ThreadedStrategy): number | undefined {
  if (kind !== 'model-parallel') return undefined;
  return stages ?? (cutAfter ? cutAfter.length + 1 : FEWEST_STAGES);
}

/** Where it is cut. */
export function stageCutsOf(
  strategy: ThreadedStrategy,
): { readonly stages: number; readonly cutAfter: readonly string[] | undefined } | undefined {
  const stages = stagesOf(strategy);
  return stages === undefined ? undefined : { stages, cutAfter: strategy.cutAfter };
}

/** Kinds whose workers may compute in several threads, and those of them that do when they are told to. */
const THREADED: readonly StrategySpec['kind'][] = ['hybrid', 'mirrored', 'tpu', 'multi-worker-mirrored', 'local-update'];
const ONE_BY_DEFAULT: readonly StrategySpec['kind'][] = ['multi-worker-mirrored', 'local-update'];

/** Compute threads of a worker that have the whole model each. @param cores that it may use */
export function threadsOf(
  { strategy: { kind, threads: wanted }, replicas }: { readonly strategy: ThreadedStrategy; readonly replicas: number },
  cores: number,
): number {
  if (kind === undefined || !THREADED.includes(kind)) return 1;
  const byDefault = ONE_BY_DEFAULT.includes(kind) ? 1 : Math.max(1, cores);
  return Math.min(wanted ?? byDefault, replicas, LIMITS.threads);
}

export const backupReplicasOf = (strategy: { readonly mode: string; readonly backupReplicas?: number | undefined }): number =>
  strategy.backupReplicas ?? 0;

/** Workers that must have joined before the first round; undefined where one is enough. */
export const startWorkersOf = (strategy: StrategySpec): number | undefined =>
  shardHolders(strategy) ?? ('startWorkers' in strategy ? strategy.startWorkers : undefined);
