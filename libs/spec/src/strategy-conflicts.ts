/** What does not go together in the strategy of a run, or with it. */
import type { z } from 'zod';
import type { CodecSpec } from './codec-spec.js';
import type { LearningRateSpec } from './learning-rate.js';
import { optimizerSlots } from './optimizer-slots.js';
import { isLayerwise, type OptimizerSpec } from './optimizer-spec.js';
import type { localUpdateSchema, modelParallelSchema, multiWorkerMirroredSchema, parameterServerSchema, StrategySpec } from './strategy.js';

interface Conflicting {
  readonly strategy: StrategySpec;
  readonly gradient: {
    readonly clipNorm?: unknown;
    readonly clipGlobalNorm?: unknown;
    readonly clipValue?: unknown;
    readonly nonFinite: string;
  };
  readonly optimizer: OptimizerSpec;
  readonly learningRate?: LearningRateSpec | undefined;
  readonly validation?: { readonly everyRounds?: number | undefined } | undefined;
  readonly earlyStopping?: object | undefined;
  readonly reduceLROnPlateau?: object | undefined;
  readonly replicas: number;
  readonly engine: string;
  readonly codec?: CodecSpec | undefined;
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
      return [
        ...shardedConflicts(strategy, spec),
        ...ownWorkersConflicts(strategy, spec.replicas),
        ...((strategy.threads ?? 1) > 1 ? threadConflicts(strategy, spec) : []),
      ];
    case 'auto':
      return serverConflicts(Object.assign({ backupReplicas: 0 }, strategy), spec);
    case 'hybrid':
      return [...serverConflicts(Object.assign({ backupReplicas: 0 }, strategy), spec), ...threadConflicts(strategy, spec)];
    case 'mirrored':
      return [...aloneConflicts(strategy, spec), ...threadConflicts(strategy, spec)];
    case 'tpu':
      return [...aloneConflicts(strategy, spec), ...threadConflicts(strategy, spec), ...executionConflicts(spec)];
    case 'one-device':
      return [...aloneConflicts(strategy, spec), ...deviceConflicts(spec)];
    case 'model-parallel':
      return [
        ...shardedConflicts(strategy, spec),
        ...ownWorkersConflicts(strategy, spec.replicas),
        ...stageConflicts(strategy),
        ...threadConflicts(strategy, spec),
      ];
    case 'local-update':
      return [
        ...serverConflicts(strategy, spec),
        ...memberConflicts(strategy, spec),
        ...localConflicts(strategy, spec),
        ...((strategy.threads ?? 1) > 1 ? [...threadConflicts(strategy, spec), ...localThreadConflicts(strategy)] : []),
        ...syncConflicts(strategy, spec),
        ...fragmentConflicts(strategy, spec),
        ...elasticConflicts(strategy, spec),
      ];
  }
}

function shardedConflicts(
  { workers, standby: standbys }: Pick<z.output<typeof multiWorkerMirroredSchema>, 'workers' | 'standby'>,
  { replicas }: Conflicting,
): Conflict[] {
  const conflicts: Conflict[] = [];
  if (workers > replicas)
    conflicts.push(['strategy.workers', `must not exceed replicas (${replicas}): a worker without a replica has no seat`]);
  if (standbys > 0 && workers < 2)
    conflicts.push(['strategy.standby', 'needs two workers at least, as the standby of a shard is on another worker than the shard']);
  return conflicts;
}

/** The fewest and the most workers that a run goes on with by itself. */
function ownWorkersConflicts(
  {
    workers,
    minWorkers,
    maxWorkers,
    standby,
  }: Pick<z.output<typeof multiWorkerMirroredSchema>, 'workers' | 'minWorkers' | 'maxWorkers' | 'standby'>,
  replicas: number,
): Conflict[] {
  const conflicts: Conflict[] = [];
  if (maxWorkers !== undefined && maxWorkers < workers)
    conflicts.push(['strategy.maxWorkers', `must not be below workers (${workers}), with which the run begins`]);
  if (maxWorkers !== undefined && maxWorkers > replicas)
    conflicts.push(['strategy.maxWorkers', `must not exceed replicas (${replicas}): each worker has one at least`]);
  if (maxWorkers !== undefined && minWorkers === undefined)
    conflicts.push(['strategy.maxWorkers', 'needs minWorkers: a run that has taken more workers goes on with fewer when they leave']);
  if (minWorkers !== undefined && minWorkers > workers)
    conflicts.push(['strategy.minWorkers', `must not exceed workers (${workers}), with which the run begins`]);
  if (minWorkers === 1 && standby > 0)
    conflicts.push([
      'strategy.minWorkers',
      'must be 2 at least with a standby, as the standby of a shard is on another worker than the shard',
    ]);
  return conflicts;
}

/** Local updates of workers that hold the shards themselves: their rounds are an all-reduce. */
function memberConflicts(strategy: z.output<typeof localUpdateSchema>, spec: Conflicting): Conflict[] {
  const { workers, servers, startWorkers, backupReplicas, standby } = strategy;
  if (workers === undefined) return [];
  const conflicts = shardedConflicts({ workers, standby }, spec);
  if (servers > 1)
    conflicts.push(['strategy.servers', 'does not go with workers, which hold the shards in place of parameter servers: give one of both']);
  if (startWorkers !== undefined && startWorkers !== workers)
    conflicts.push(['strategy.startWorkers', `does not go with workers: the first round waits for all ${workers} of them; leave it out`]);
  if (backupReplicas > 0)
    conflicts.push([
      'strategy.backupReplicas',
      'does not go with workers: each of them holds a shard, so a round needs all of them; set it to 0',
    ]);
  return conflicts;
}

/** Where a model is cut, as far as that is known without the model. */
function stageConflicts({ stages, cutAfter, accumulate }: z.output<typeof modelParallelSchema>): Conflict[] {
  const conflicts: Conflict[] = [];
  if (cutAfter && stages !== undefined && cutAfter.length !== stages - 1)
    conflicts.push([
      'strategy.cutAfter',
      `names ${cutAfter.length} ${cutAfter.length === 1 ? 'layer' : 'layers'}, but ${stages} stages have ${stages - 1} ${stages === 2 ? 'cut' : 'cuts'} between them: name ${stages - 1}, or set stages to ${cutAfter.length + 1}`,
    ]);
  if (accumulate > 1)
    conflicts.push([
      'strategy.accumulate',
      'must be 1 with model-parallel: each replica is a micro-batch of the pipeline already; take more replicas',
    ]);
  return conflicts;
}

function threadConflicts(
  strategy: Extract<StrategySpec, { threads?: unknown } | { kind: 'model-parallel' }>,
  { replicas, engine, codec }: Conflicting,
): Conflict[] {
  const { kind } = strategy;
  const wanted = ('threads' in strategy ? strategy.threads : undefined) ?? 1;
  const conflicts: Conflict[] = [];
  if (wanted > replicas)
    conflicts.push(['strategy.threads', `must not exceed replicas (${replicas}): a thread without a replica would have nothing to do`]);
  if (kind === 'hybrid' && replicas === 1)
    conflicts.push(['strategy.kind', 'hybrid needs two replicas at least, of which a worker adds the gradients up: take parameter-server']);
  if (engine === 'tensorflow' || engine === 'webgpu')
    conflicts.push([
      'engine',
      `${engine} does not go with ${kind}: its native code is used from one compute thread of a process; take wasm, or another strategy`,
    ]);
  if (codec !== undefined && codec.kind !== 'none')
    conflicts.push([
      'codec.kind',
      `${codec.kind} does not go with ${kind}: a codec encodes the gradient of each replica, and here the sum of several is sent; take none, or another strategy`,
    ]);
  return conflicts;
}

/** Conflicts of a run that one worker holds. */
function aloneConflicts(
  { kind, standby: standbys }: Extract<StrategySpec, { kind: 'mirrored' | 'one-device' | 'tpu' }>,
  { codec }: Conflicting,
): Conflict[] {
  const conflicts: Conflict[] = [];
  if (standbys > 0)
    conflicts.push([
      'strategy.standby',
      `does not go with ${kind}: the run is on one worker, and a standby would be on another; set it to 0`,
    ]);
  if (codec?.parameters !== undefined && codec.parameters !== 'float32')
    conflicts.push([
      'codec.parameters',
      `${codec.parameters} does not go with ${kind}: the run is on one worker, and no parameters are sent; leave it out, or take another strategy`,
    ]);
  return conflicts;
}

/** Where the threads of a worker apply the optimizer in each of several steps. */
function executionConflicts({ optimizer, reduceLROnPlateau }: Conflicting): Conflict[] {
  const conflicts: Conflict[] = [];
  if (isLayerwise(optimizer))
    conflicts.push([
      'optimizer.name',
      `${optimizer.name} does not go with tpu, whose threads apply optimizers that work element by element: take another optimizer, or mirrored`,
    ]);
  if (optimizer.emaMomentum !== undefined)
    conflicts.push([
      'optimizer.emaMomentum',
      'does not go with tpu, whose threads keep no average of the weights: leave it out, or take mirrored',
    ]);
  if (reduceLROnPlateau)
    conflicts.push([
      'reduceLROnPlateau',
      'does not go with tpu: the threads apply the learning rate, and they do not hear what a validation has decided; give a schedule in learningRate, or take mirrored',
    ]);
  return conflicts;
}

function deviceConflicts({ replicas, codec }: Conflicting): Conflict[] {
  const conflicts: Conflict[] = [];
  if (replicas !== 1)
    conflicts.push(['replicas', `must be 1 with one-device, not ${replicas}: take mirrored for several replicas on one worker`]);
  if (codec !== undefined && codec.kind !== 'none')
    conflicts.push([
      'codec.kind',
      `${codec.kind} does not go with one-device: no gradient is sent, and the codec would only make it less exact; take none, or another strategy`,
    ]);
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

/** Threads add up what their replicas have come to, and a round with backup replicas chooses among these. */
const localThreadConflicts = ({ backupReplicas }: z.output<typeof localUpdateSchema>): Conflict[] =>
  backupReplicas > 0
    ? [
        [
          'strategy.threads',
          'does not go with backupReplicas: threads add their replicas up, and a round chooses among them; set one of both to its default',
        ],
      ]
    : [];

/** The first rounds of post-local SGD are synchronous steps, and epochs have other numbers of rounds there. */
function syncConflicts(
  { syncSteps, outerOptimizer, outerLearningRate = 1, innerState }: z.output<typeof localUpdateSchema>,
  { optimizer, learningRate, validation, earlyStopping }: Conflicting,
): Conflict[] {
  if (syncSteps === undefined) return [];
  const conflicts: Conflict[] = [];
  if (outerOptimizer !== 'sgd' || outerLearningRate !== 1)
    conflicts.push([
      'strategy.syncSteps',
      'needs the outer optimizer sgd at rate 1: a synchronous step averages the replicas, and another outer step is one over several local steps',
    ]);
  if (innerState === 'reset' && optimizerSlots(optimizer).length > 0)
    conflicts.push([
      'strategy.innerState',
      `must be keep with syncSteps and ${optimizer.name}: reset would begin each synchronous step with new slots; only sgd has none`,
    ]);
  for (const [field, rounds] of [
    ['warmupEpochs', 'warmupRounds'],
    ['decayEpochs', 'decayRounds'],
  ] as const)
    if (learningRate?.[field] !== undefined)
      conflicts.push([
        `learningRate.${field}`,
        `does not go with syncSteps, where epochs have different numbers of rounds: give ${rounds}`,
      ]);
  if ((validation ?? earlyStopping) && validation?.everyRounds === undefined)
    conflicts.push([
      'validation.everyRounds',
      'is needed with syncSteps, where epochs have different numbers of rounds: give it in place of everyEpochs',
    ]);
  return conflicts;
}

/** Where each round exchanges a part: servers and workers carry the others over from one generation to the next. */
function fragmentConflicts(
  { fragments, syncSteps, outerOptimizer, backupReplicas, standby: standbys }: z.output<typeof localUpdateSchema>,
  { gradient, codec }: Conflicting,
): Conflict[] {
  if (fragments === undefined) return [];
  const conflicts: Conflict[] = [];
  const refuse = (field: string, why: string): void => void conflicts.push([field, why]);
  if (outerOptimizer === 'elastic')
    refuse(
      'strategy.fragments',
      'does not go with elastic, with which a replica never takes the weights of the servers: take another outer optimizer',
    );
  if (syncSteps !== undefined)
    refuse(
      'strategy.syncSteps',
      'does not go with fragments: a synchronous step averages all weights, and a round of fragments a part of them',
    );
  if (backupReplicas > 0)
    refuse(
      'strategy.backupReplicas',
      'does not go with fragments: a replica that is left out would begin again with the weights of the servers; set it to 0',
    );
  if (standbys > 0)
    refuse(
      'strategy.standby',
      'does not go with fragments: a standby follows the sums of its primary, and chunks that are carried over have none; set it to 0',
    );
  if (gradient.nonFinite === 'skip')
    refuse(
      'gradient.nonFinite',
      'skip does not go with fragments: weights of a replica that have become NaN in a round that is left out would stay so; take fail or rollback',
    );
  if (codec && (codec.kind !== 'none' || codec.parameters !== undefined))
    refuse(
      'codec.kind',
      'a codec does not go with fragments: it encodes all chunks of a round, and what it keeps of those that are not sent would be lost; leave codec out',
    );
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
