/**
 * How a run is distributed: one schema per kind of strategy, in a list. Every kind says its `mode`, `accumulate` and `standby`; what else the
 * processes of a run ask of a strategy they ask through the functions at the end, so that a kind names only the fields that mean something in it.
 *
 *     parameter-server        servers hold the shards, workers compute
 *     multi-worker-mirrored   the workers hold the shards themselves: reduce-scatter to the owner of a range, all-gather of what it has updated
 *     auto                    parameter servers at first; what the first rounds have measured decides between the two above (auto-strategy.ts)
 *     local-update            servers and workers as above; a round is several steps of each replica by itself, and what they changed is sent
 */
import { z } from 'zod';
import { LIMITS } from './limits.js';
import { isLayerwise, positiveRate, type OptimizerSpec } from './optimizer-spec.js';

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
    .default(4),
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
  workers: z
    .int()
    .min(1)
    .max(LIMITS.servers)
    .describe('Workers that hold the run, each with a shard of the parameters; at most `replicas`.')
    .default(2),
  accumulate,
  standby,
});

export const OUTER_OPTIMIZERS = ['sgd', 'momentum', 'nesterov', 'elastic'] as const;
export const INNER_STATES = ['reset', 'keep'] as const;

export const localUpdateSchema = z.strictObject({
  kind: z.literal('local-update'),
  mode: z.literal('sync').describe('A round ends when all replicas have taken their local steps.').default('sync'),
  servers,
  accumulate,
  localSteps: z
    .int()
    .min(1)
    .max(LIMITS.localSteps)
    .describe(
      'Batches that a replica trains on by itself in a round, with `optimizer`, before its weights are averaged with the others (H).',
    )
    .default(20),
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
  startWorkers,
  standby,
});

/** A kind that is added here is on every surface. */
export const STRATEGY_KINDS = [parameterServerSchema, multiWorkerMirroredSchema, localUpdateSchema, autoSchema] as const;

export const strategySchema = z.discriminatedUnion('kind', STRATEGY_KINDS);

export type StrategySpec = z.output<typeof strategySchema>;

/** Shards that the parameters are cut into, each on a process of its own. */
export const shardCount = (
  strategy:
    | Pick<Extract<StrategySpec, { kind: 'multi-worker-mirrored' }>, 'kind' | 'workers'>
    | Pick<Exclude<StrategySpec, { kind: 'multi-worker-mirrored' }>, 'kind' | 'servers'>,
): number => (strategy.kind === 'multi-worker-mirrored' ? strategy.workers : strategy.servers);

/** Which processes hold the shards. */
export const shardHosts = ({ kind }: Pick<StrategySpec, 'kind'>): 'servers' | 'workers' =>
  kind === 'multi-worker-mirrored' ? 'workers' : 'servers';

export const backupReplicasOf = (strategy: { readonly mode: string; readonly backupReplicas?: number | undefined }): number =>
  strategy.backupReplicas ?? 0;

/** Workers that must have joined before the first round; undefined where one is enough. */
export const startWorkersOf = (strategy: StrategySpec): number | undefined =>
  strategy.kind === 'multi-worker-mirrored' ? strategy.workers : strategy.startWorkers;

interface Conflicting {
  readonly strategy: StrategySpec;
  readonly gradient: {
    readonly clipNorm?: unknown;
    readonly clipGlobalNorm?: unknown;
    readonly clipValue?: unknown;
    readonly nonFinite: string;
  };
  readonly optimizer: OptimizerSpec;
  readonly reduceLROnPlateau?: object | undefined;
  readonly replicas: number;
}

type Conflict = [field: string, message: string];

/** Options that have no effect, or cannot be kept, with the kind and mode of the run. */
export function strategyConflicts(spec: Conflicting): Conflict[] {
  const { strategy, gradient } = spec;
  const conflicts = kindConflicts(strategy, spec);
  if (gradient.clipValue !== undefined && (gradient.clipNorm !== undefined || gradient.clipGlobalNorm !== undefined))
    conflicts.push(['gradient.clipValue', 'does not go with clipNorm or clipGlobalNorm: give one of the three']);
  return conflicts;
}

function kindConflicts(strategy: StrategySpec, spec: Conflicting): Conflict[] {
  switch (strategy.kind) {
    case 'parameter-server':
      return [...serverConflicts(strategy, spec), ...modeConflicts(strategy, spec)];
    case 'multi-worker-mirrored':
      return mirroredConflicts(strategy, spec);
    case 'auto':
      return serverConflicts(Object.assign({ backupReplicas: 0 }, strategy), spec);
    case 'local-update':
      return [...serverConflicts(strategy, spec), ...localConflicts(strategy, spec), ...elasticConflicts(strategy, spec)];
  }
}

function mirroredConflicts(
  { workers, standby: standbys }: z.output<typeof multiWorkerMirroredSchema>,
  { replicas }: Conflicting,
): Conflict[] {
  const conflicts: Conflict[] = [];
  if (workers > replicas)
    conflicts.push(['strategy.workers', `must not exceed replicas (${replicas}): a worker without a replica has no seat`]);
  if (standbys > 0 && workers < 2)
    conflicts.push(['strategy.standby', 'needs two workers at least, as the standby of a shard is on another worker than the shard']);
  return conflicts;
}

/** What does not fit the number of replicas, or each other, where servers hold the shards. */
function serverConflicts(
  {
    startWorkers: wanted = 1,
    backupReplicas: backups,
    standby: standbys,
  }: Pick<z.output<typeof parameterServerSchema>, 'startWorkers' | 'backupReplicas' | 'standby'>,
  { replicas }: Conflicting,
): Conflict[] {
  const conflicts: Conflict[] = [];
  if (wanted > replicas)
    conflicts.push(['strategy.startWorkers', `must not exceed replicas (${replicas}): a worker without a replica has no seat`]);
  if (standbys > 0 && backups > 0)
    conflicts.push([
      'strategy.standby',
      'does not go with backupReplicas: what a lost coordinator had decided to leave out of a round is not known to its standby; set one of both to 0',
    ]);
  if (backups >= replicas)
    conflicts.push(['strategy.backupReplicas', `must be below replicas (${replicas}), so that a round waits for somebody`]);
  return conflicts;
}

function modeConflicts(strategy: z.output<typeof parameterServerSchema>, { gradient }: Conflicting): Conflict[] {
  const { mode, stalenessScaledRate, delayCompensation } = strategy;
  const conflicts: Conflict[] = [];
  const needsSync = (field: string, isAsked: boolean): void => {
    if (isAsked && mode !== 'sync') conflicts.push([field, `needs mode sync; the mode is ${mode}`]);
  };
  if (mode === 'sync' && stalenessScaledRate)
    conflicts.push(['strategy.stalenessScaledRate', 'needs mode async or ssp: a synchronous update is never stale']);
  if (mode === 'sync' && delayCompensation > 0)
    conflicts.push(['strategy.delayCompensation', 'needs mode async or ssp: a synchronous update has no delay']);
  needsSync('strategy.backupReplicas', strategy.backupReplicas > 0);
  needsSync('strategy.startWorkers', strategy.startWorkers !== undefined);
  needsSync('gradient.clipNorm', gradient.clipNorm !== undefined);
  needsSync('gradient.clipGlobalNorm', gradient.clipGlobalNorm !== undefined);
  return conflicts;
}

function localConflicts(
  { outerOptimizer, outerMomentum, innerState, backupReplicas }: z.output<typeof localUpdateSchema>,
  { gradient, optimizer, reduceLROnPlateau }: Conflicting,
): Conflict[] {
  const conflicts: Conflict[] = [];
  if (outerMomentum !== undefined && (outerOptimizer === 'sgd' || outerOptimizer === 'elastic'))
    conflicts.push(['strategy.outerMomentum', `belongs to momentum and nesterov; the outer optimizer is ${outerOptimizer}: leave it out`]);
  if (isLayerwise(optimizer))
    conflicts.push([
      'optimizer.name',
      `${optimizer.name} does not go with local-update: its steps depend on norms that the servers take of the gradient of all replicas; take another optimizer`,
    ]);
  if (optimizer.name === 'ftrl')
    conflicts.push([
      'optimizer.name',
      'ftrl does not go with local-update: it makes weights from its sums alone, and would not begin with those of the round; take another optimizer',
    ]);
  if (optimizer.emaMomentum !== undefined)
    conflicts.push([
      'optimizer.emaMomentum',
      'does not go with local-update: the average would be one of a replica, not of the run; leave it out',
    ]);
  if (reduceLROnPlateau)
    conflicts.push([
      'reduceLROnPlateau',
      'does not go with local-update: workers apply the learning rate, and they do not hear what a validation has decided; give a schedule in learningRate',
    ]);
  if (innerState === 'keep' && backupReplicas > 0)
    conflicts.push([
      'strategy.innerState',
      'keep does not go with backupReplicas: a replica that is left out of a round would begin with new slots; set it to reset',
    ]);
  if (innerState === 'keep' && gradient.nonFinite === 'skip')
    conflicts.push([
      'strategy.innerState',
      'keep does not go with nonFinite skip: slots that have become NaN in a round that is left out would stay so; set it to reset',
    ]);
  return conflicts;
}

/** Replicas that keep weights of their own need all of their rounds. What they do not go with of codecs: codecConflicts. */
function elasticConflicts(
  { outerOptimizer, outerLearningRate, movingRate, backupReplicas }: z.output<typeof localUpdateSchema>,
  { gradient, replicas }: Conflicting,
): Conflict[] {
  const conflicts: Conflict[] = [];
  if (outerOptimizer !== 'elastic') {
    if (movingRate !== undefined)
      conflicts.push(['strategy.movingRate', `belongs to elastic; the outer optimizer is ${outerOptimizer}: leave it out`]);
    return conflicts;
  }
  if (outerLearningRate !== undefined)
    conflicts.push(['strategy.outerLearningRate', 'follows from movingRate with elastic, as movingRate times replicas: leave it out']);
  if (movingRate !== undefined && movingRate * replicas > 1 + 1e-9)
    conflicts.push([
      'strategy.movingRate',
      `must be at most 1 / replicas (${1 / replicas}): beyond that the servers would go farther than to the mean of the replicas`,
    ]);
  if (backupReplicas > 0)
    conflicts.push([
      'strategy.outerOptimizer',
      'elastic does not go with backupReplicas: a replica that is left out of a round would begin again with the weights of the servers; set it to 0',
    ]);
  if (gradient.nonFinite === 'skip')
    conflicts.push([
      'strategy.outerOptimizer',
      'elastic does not go with nonFinite skip: weights of a replica that have become NaN in a round that is left out would stay so; take fail or rollback',
    ]);
  return conflicts;
}
