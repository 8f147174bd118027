/**
 * What becomes of the options of a strategy in a run of the service: one row for each option, so that none is dropped without a word. The tables have
 * the types of the option interfaces: an option without a row does not compile. docs/library.md has the same tables for people.
 */
import { parseRunSpec, type RunSpecInput } from '@paceline/spec';
import { UnsupportedError } from './errors.js';
import { keepsRest, LOW_RANK, type GradientCodecKind } from './members/packed-sums.js';
import type {
  HybridOptions,
  LocalUpdateOptions,
  MirroredOptions,
  ModelParallelOptions,
  MultiWorkerOptions,
  OneDeviceOptions,
  ParameterServerOptions,
  ThreadStrategyOptions,
} from './strategy-options.js';
import { LOCAL_STEPS } from './update-rule.js';

type StrategyInput = NonNullable<RunSpecInput['strategy']>;
type KeyOf<T> = T extends unknown ? keyof T & string : never;

/** The strategy of a run, its replicas, and what else of the run spec a strategy of the library says. */
export interface RunStrategy {
  readonly strategy: StrategyInput;
  readonly replicas: number;
  readonly seed?: number;
  readonly stepDeadlineMs?: number;
  readonly codec?: NonNullable<RunSpecInput['codec']>;
  readonly engine?: NonNullable<RunSpecInput['engine']>;
}

/** Where an option goes: a key of the run spec. */
export type RunKey = Exclude<keyof RunStrategy, 'strategy'> | `strategy.${KeyOf<StrategyInput>}`;

/**
 * One option. `carried`: its value, or what `value` makes of it, is written to a key of the run spec. `counted`: the strategy itself says the key, as the
 * option alone does not say the value. `refused`: the service cannot do it; `why` says the reason and what to do, and undefined for a value that asks for
 * nothing else than the service does.
 */
export type RunOption<V = unknown, O = unknown> =
  | {
      readonly kind: 'carried';
      readonly to: RunKey;
      readonly value?: (value: V, options: O) => unknown;
      readonly why?: (value: V, options: O) => string | undefined;
    }
  | { readonly kind: 'counted'; readonly to: RunKey }
  | { readonly kind: 'refused'; readonly why: (value: V, options: O) => string | undefined };

/** A row for every option of an interface. */
export type RunOptions<O> = { readonly [K in keyof O]-?: RunOption<NonNullable<O[K]>, O> };

const ONE_DEVICE: RunOptions<OneDeviceOptions> = {
  seed: { kind: 'carried', to: 'seed' },
  deadlineMs: { kind: 'carried', to: 'stepDeadlineMs' },
};

const THREADS: RunOptions<ThreadStrategyOptions> = {
  ...ONE_DEVICE,
  threads: { kind: 'carried', to: 'strategy.threads' },
  replicas: { kind: 'counted', to: 'replicas' },
};

const MIRRORED: RunOptions<MirroredOptions> = {
  ...THREADS,
  engine: {
    kind: 'carried',
    to: 'engine',
    value: (engine) => (engine === 'wasm' ? engine : undefined),
    why: (engine) =>
      engine === 'tensorflow'
        ? 'the threads of a worker compute with wasm, and with tensorflow a worker has one device: leave engine out, or train with a MultiWorkerMirroredStrategy and the key engine of the run'
        : undefined,
  },
  devices: {
    kind: 'refused',
    why: () =>
      'each worker of the service has one device, and the fleet says which: leave devices out, or train with a MultiWorkerMirroredStrategy',
  },
};

const SECRET: RunOption = {
  kind: 'refused',
  why: () => 'workers and servers of a run have access tokens of the control plane, and no secret in common: leave secret out',
};
const JOIN_DEADLINE: RunOption = {
  kind: 'refused',
  why: () =>
    'a run waits for its workers until they come, and says what it waits for: leave joinDeadlineMs out, and cancel a run that waits too long',
};
const TRANSPORT: RunOption<'auto' | 'tcp' | 'unix'> = {
  kind: 'refused',
  why: (transport) =>
    transport === 'auto'
      ? undefined
      : 'PACELINE_TRANSPORT of the workers and servers says how they reach each other, for all runs: leave transport out',
};

const MEMBERS: RunOptions<
  Omit<MultiWorkerOptions, keyof ThreadStrategyOptions | 'optimizerSharding' | 'onMemberLoss' | 'codec' | 'codecRank'>
> = {
  cluster: { kind: 'counted', to: 'strategy.workers' },
  secret: SECRET,
  joinDeadlineMs: JOIN_DEADLINE,
  transport: TRANSPORT,
  listenHost: {
    kind: 'refused',
    why: () => 'PACELINE_DATA_BIND and PACELINE_DATA_HOST of the workers and servers say where they listen: leave listenHost out',
  },
  communication: {
    kind: 'refused',
    why: (communication) =>
      communication === 'direct' || communication === 'auto'
        ? undefined
        : 'the service has direct exchange only, whose bits do not depend on the number of workers, and which standbys, checkpoints and codecs go with: leave communication out, or train with the library over several processes',
  },
  hosts: {
    kind: 'refused',
    why: () =>
      'the service has direct exchange only, which takes the same way whatever the hosts are: leave hosts out, or train with the library over several processes',
  },
};

/** What comes back in a run are parameters. Rounding these is another thing than rounding a sum, so codec.parameters is left out. */
const CODEC: RunOption<GradientCodecKind | 'none'> = {
  kind: 'carried',
  to: 'codec',
  value: (kind) => (kind === 'none' ? undefined : { kind, ...(keepsRest(kind) ? { errorFeedback: true } : {}) }),
};

const MULTI_WORKER: RunOptions<MultiWorkerOptions> = {
  ...THREADS,
  ...MEMBERS,
  optimizerSharding: {
    kind: 'refused',
    why: (sharding) =>
      sharding === 'sharded'
        ? undefined
        : 'each worker of a run keeps the state of the optimizer for its shard alone: leave optimizerSharding out, or set it to sharded',
  },
  codec: {
    kind: 'carried',
    to: 'codec',
    value: (kind, { codecRank }) =>
      kind === 'none' ? undefined : { kind, ...(kind === LOW_RANK && codecRank !== undefined ? { rank: codecRank } : {}) },
  },
  codecRank: { kind: 'counted', to: 'codec' },
  onMemberLoss: {
    kind: 'refused',
    why: (loss) =>
      loss === 'continue'
        ? undefined
        : 'a run goes on by itself when a worker is lost, from its standbys or its last checkpoint: leave onMemberLoss out',
  },
};

const OUTER = { average: 'sgd', nesterov: 'nesterov', elastic: 'elastic' } as const;

const LOCAL_UPDATE: RunOptions<LocalUpdateOptions> = {
  ...MEMBERS,
  ...THREADS,
  localSteps: { kind: 'counted', to: 'strategy.localSteps' },
  syncSteps: { kind: 'carried', to: 'strategy.syncSteps', value: (steps) => (steps > 0 ? steps : undefined) },
  outer: { kind: 'carried', to: 'strategy.outerOptimizer', value: (outer) => OUTER[outer] },
  innerState: {
    kind: 'carried',
    to: 'strategy.innerState',
    why: (state) =>
      state === 'keep'
        ? undefined
        : 'replicas of a run keep the state of their optimizers, or begin each round with a new one: leave innerState out, or set it to keep',
  },
  fragments: {
    kind: 'carried',
    to: 'strategy.fragments',
    value: (fragments) => (fragments > 1 ? fragments : undefined),
    why: (fragments, { localSteps = LOCAL_STEPS }) =>
      localSteps % fragments === 0
        ? undefined
        : `each round of a run exchanges a fragment after as many local steps, and ${localSteps} cannot be divided so: set localSteps to a multiple of fragments`,
  },
  delay: {
    kind: 'refused',
    why: (delay) =>
      delay === 0
        ? undefined
        : 'a round of a run waits for what it exchanges: leave delay out, or train with the library over several processes',
  },
  mixing: {
    kind: 'refused',
    why: () => 'a replica of a run takes what is common when its exchange is over: leave mixing out, with delay',
  },
  outerLearningRate: { kind: 'carried', to: 'strategy.outerLearningRate' },
  outerMomentum: { kind: 'carried', to: 'strategy.outerMomentum' },
  movingRate: { kind: 'carried', to: 'strategy.movingRate' },
};

const PARAMETER_SERVER: RunOptions<ParameterServerOptions> = {
  ...ONE_DEVICE,
  secret: SECRET,
  joinDeadlineMs: JOIN_DEADLINE,
  transport: TRANSPORT,
  codec: CODEC,
};

const HYBRID: RunOptions<HybridOptions> = {
  ...PARAMETER_SERVER,
  replicasPerWorker: { kind: 'counted', to: 'strategy.threads' },
  workersPerGroup: {
    kind: 'refused',
    why: (workers) =>
      workers === 1
        ? undefined
        : 'a group of a run is one worker with its compute threads, and workers come and go while it trains: leave workersPerGroup out and set replicasPerWorker, or train with the library',
  },
  codec: {
    kind: 'refused',
    why: (codec) =>
      codec === 'none'
        ? undefined
        : 'a codec of a run encodes the gradient of each replica, and hybrid sends the sum of several replicas: leave codec out, or take ParameterServerStrategy',
  },
};

/** A worker is a pipeline, and a micro-batch is a replica. */
const MODEL_PARALLEL: RunOptions<ModelParallelOptions> = {
  ...ONE_DEVICE,
  stages: { kind: 'counted', to: 'strategy.stages' },
  pipelines: { kind: 'counted', to: 'strategy.workers' },
  microBatches: { kind: 'counted', to: 'replicas' },
  cutAfter: { kind: 'carried', to: 'strategy.cutAfter' },
};

/** The tables, by the name of the strategy. */
export const RUN_OPTIONS = {
  OneDeviceStrategy: ONE_DEVICE,
  MirroredStrategy: MIRRORED,
  CentralStorageStrategy: THREADS,
  MultiWorkerMirroredStrategy: MULTI_WORKER,
  LocalUpdateStrategy: LOCAL_UPDATE,
  ParameterServerStrategy: PARAMETER_SERVER,
  HybridStrategy: HYBRID,
  ModelParallelStrategy: MODEL_PARALLEL,
} as const;

/** A row where it does not matter of which option it is. */
type AnyRow = RunOption<unknown, object>;

/**
 * A strategy as a run: what the strategy says itself, and the options that were given, by the table of its name.
 * @throws UnsupportedError naming each option whose value the service cannot take, with what to do
 */
export function asRun(name: keyof typeof RUN_OPTIONS, options: object, own: RunStrategy): RunStrategy {
  const rows = RUN_OPTIONS[name] as Readonly<Record<string, AnyRow>>;
  const given = Object.entries(options).filter(([, value]) => value !== undefined) as [string, unknown][];
  const refused = new Map<string, string>();
  const [run, strategy] = [{ ...own } as Record<string, unknown>, { ...own.strategy } as Record<string, unknown>];
  for (const [option, value] of given) {
    const row = rows[option]!;
    const why = row.kind === 'counted' ? undefined : row.why?.(value, options);
    if (why !== undefined) refused.set(option, why);
    if (row.kind !== 'carried') continue;
    const carried = row.value ? row.value(value, options) : value;
    if (carried === undefined) continue;
    if (row.to.startsWith('strategy.')) strategy[row.to.slice('strategy.'.length)] = carried;
    else run[row.to] = carried;
  }
  run['strategy'] = strategy;
  for (const { path, message } of issuesOf(run)) {
    const option = given.find(([key]) => pathOf(rows[key]!) === path)?.[0];
    if (option !== undefined && !refused.has(option)) refused.set(option, `${path} of a run ${message}`);
  }
  if (refused.size === 0) return run as unknown as RunStrategy;
  const reasons = [...refused].map(([option, why]) => `${option}: ${why}`);
  throw new UnsupportedError(`${name} with ${[...refused.keys()].join(', ')}, as a run of the service`, reasons.join('. '));
}

const pathOf = (row: AnyRow): string | undefined => (row.kind === 'refused' ? undefined : row.to);

/** What the run spec says of these fields: an option may have a wider range than its key. */
function issuesOf(run: Readonly<Record<string, unknown>>): readonly { readonly path: string; readonly message: string }[] {
  const parsed = parseRunSpec({ ...run, globalBatch: run['replicas'] }); // the batch is that of the training
  return parsed.ok ? [] : parsed.issues;
}
