/** What strategies are as runs of the service: kinds of their names, which the spec takes, and what becomes of each option. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { GivenResolver } from '@paceline/collectives';
import { parseRunSpec } from '@paceline/spec';
import { afterEach, describe, expect, it } from 'vitest';
import { LocalUpdateStrategy } from './local-update.js';
import { ModelParallelStrategy } from './model-parallel.js';
import { MultiWorkerMirroredStrategy } from './multi-worker.js';
import { HybridStrategy, ParameterServerStrategy } from './parameter-server.js';
import { RUN_OPTIONS, type RunOption, type RunStrategy } from './run-options.js';
import type { Strategy } from './strategy.js';
import { CentralStorageStrategy, MirroredStrategy, OneDeviceStrategy } from './thread-strategies.js';

type Name = keyof typeof RUN_OPTIONS;
const NAMES = Object.keys(RUN_OPTIONS) as Name[];

const alone = new GivenResolver({ worker: ['127.0.0.1:1'] }, { type: 'worker', index: 0 });
const pair = new GivenResolver({ worker: ['127.0.0.1:1', '127.0.0.1:2'] }, { type: 'worker', index: 0 });
const served = new GivenResolver(
  { chief: ['127.0.0.1:1'], worker: ['127.0.0.1:2'], ps: ['127.0.0.1:3', '127.0.0.1:4'] },
  { type: 'chief', index: 0 },
);
const servedPair = new GivenResolver(
  { chief: ['127.0.0.1:1'], worker: ['127.0.0.1:2', '127.0.0.1:5'], ps: ['127.0.0.1:3', '127.0.0.1:4'] },
  { type: 'chief', index: 0 },
);
const SECRET = 'not to be read by anybody';

const made: Strategy[] = [];
afterEach(async () => {
  for (const strategy of made.splice(0)) await strategy.dispose();
});

/** No process is started for it, and none is dialled: a strategy that only says what it is needs none. */
function strategyOf(name: Name, options: object): Strategy {
  const before = process.env['PACELINE_CLUSTER_SECRET'];
  process.env['PACELINE_CLUSTER_SECRET'] = SECRET;
  try {
    const [threaded, member] = [
      { replicas: 4, ...options },
      { cluster: alone, replicas: 4, ...options },
    ];
    const makers: Record<Name, () => Strategy> = {
      OneDeviceStrategy: () => new OneDeviceStrategy(options),
      MirroredStrategy: () => new MirroredStrategy(threaded),
      CentralStorageStrategy: () => new CentralStorageStrategy(threaded),
      MultiWorkerMirroredStrategy: () => new MultiWorkerMirroredStrategy(member),
      LocalUpdateStrategy: () => new LocalUpdateStrategy(member),
      ParameterServerStrategy: () => new ParameterServerStrategy(served, options),
      HybridStrategy: () => new HybridStrategy('workersPerGroup' in options ? servedPair : served, options),
      ModelParallelStrategy: () => new ModelParallelStrategy(options),
    };
    const strategy = makers[name]();
    made.push(strategy);
    return strategy;
  } finally {
    if (before === undefined) delete process.env['PACELINE_CLUSTER_SECRET'];
    else process.env['PACELINE_CLUSTER_SECRET'] = before;
  }
}

function runOf(name: Name, options: object = {}): RunStrategy {
  const run = strategyOf(name, options).toRun();
  const parsed = parseRunSpec(run);
  expect(parsed.ok, JSON.stringify(parsed)).toBe(true);
  return run;
}

/** What the run of each strategy is where no option says more. */
const PLAIN: Record<Name, RunStrategy> = {
  OneDeviceStrategy: { strategy: { kind: 'one-device' }, replicas: 1 },
  MirroredStrategy: { strategy: { kind: 'mirrored' }, replicas: 4 },
  CentralStorageStrategy: { strategy: { kind: 'mirrored' }, replicas: 4 },
  MultiWorkerMirroredStrategy: { strategy: { kind: 'multi-worker-mirrored', workers: 1 }, replicas: 4 },
  LocalUpdateStrategy: { strategy: { kind: 'local-update', localSteps: 8, innerState: 'keep', outerOptimizer: 'sgd' }, replicas: 4 },
  ParameterServerStrategy: { strategy: { kind: 'parameter-server', servers: 2 }, replicas: 1 },
  HybridStrategy: { strategy: { kind: 'hybrid', servers: 2, threads: 2 }, replicas: 2 },
  ModelParallelStrategy: { strategy: { kind: 'model-parallel', stages: 2, workers: 1 }, replicas: 4 },
};

/** Options with a value that is no default, what must be given beside it, and what the run has of it. */
interface Sample {
  readonly value: unknown;
  readonly beside?: object;
  readonly becomes?: unknown;
}
const SAMPLES: Readonly<Record<string, Sample>> = {
  seed: { value: 7 },
  deadlineMs: { value: 5000 },
  threads: { value: 2 },
  replicas: { value: 3 },
  cluster: { value: pair, becomes: 2 },
  secret: { value: SECRET },
  joinDeadlineMs: { value: 5000 },
  transport: { value: 'tcp' },
  listenHost: { value: '0.0.0.0' },
  communication: { value: 'ring' },
  hosts: { value: ['here'] },
  optimizerSharding: { value: 'replicated' },
  codec: { value: 'int8', becomes: { kind: 'int8' } },
  codecRank: { value: 2, beside: { codec: 'power-sgd' }, becomes: { kind: 'power-sgd', rank: 2 } },
  onMemberLoss: { value: 'stop' },
  localSteps: { value: 6 },
  syncSteps: { value: 10 },
  outer: { value: 'nesterov' },
  innerState: { value: 'keep' },
  fragments: { value: 4 },
  delay: { value: 1 },
  mixing: { value: 0.3, beside: { delay: 1 } },
  outerLearningRate: { value: 0.5, beside: { outer: 'nesterov' } },
  outerMomentum: { value: 0.8, beside: { outer: 'nesterov' } },
  movingRate: { value: 0.2, beside: { outer: 'elastic' } },
  replicasPerWorker: { value: 3 },
  workersPerGroup: { value: 2 },
  stages: { value: 3 },
  pipelines: { value: 2 },
  microBatches: { value: 5 },
  cutAfter: { value: ['dense_1'] },
  engine: { value: 'wasm' },
  devices: { value: ['cpu:0'] },
};

const sampleOf = (option: string): { readonly options: object; readonly becomes: unknown } => {
  const { value, beside, becomes = value } = SAMPLES[option]!;
  return { options: { ...beside, [option]: value }, becomes };
};
const rowsOf = (name: Name): [string, RunOption][] => Object.entries(RUN_OPTIONS[name]) as [string, RunOption][];
const valueAt = (run: RunStrategy, path: string): unknown =>
  path.split('.').reduce<unknown>((value, key) => (value as Record<string, unknown>)[key], run);

describe.each(NAMES)('%s', (name) => {
  it('is a run of a kind that the spec takes', () => expect(runOf(name)).toEqual(PLAIN[name]));

  const rows = rowsOf(name);
  it.each(rows.filter(([, { kind }]) => kind !== 'refused'))('%s is in the run', (option, row) => {
    const { options, becomes } = sampleOf(option);
    expect(valueAt(runOf(name, options), (row as { readonly to: string }).to)).toEqual(becomes);
  });

  it.each(rows.filter(([, { kind }]) => kind === 'refused'))('%s is refused, with its name and what to do', (option) => {
    const strategy = strategyOf(name, sampleOf(option).options);
    const refused = expect.objectContaining({
      code: 'STRATEGY_UNSUPPORTED',
      message: expect.stringMatching(
        new RegExp(String.raw`^${name} with .*\b${option}\b.*, as a run of the service: (.*\. )?${option}: .*(leave ${option} out|set )`),
      ) as string,
    }) as Error;
    expect(() => strategy.toRun()).toThrow(refused);
    expect(() => strategy.toRun()).not.toThrow(SECRET);
  });
});

describe('refused', () => {
  it('names all options at once, in the order in which they were given', () => {
    const options = { communication: 'tree', hosts: ['here'], seed: 1, optimizerSharding: 'replicated' } as const;
    expect(() => strategyOf('MultiWorkerMirroredStrategy', options).toRun()).toThrow(
      /^MultiWorkerMirroredStrategy with communication, hosts, optimizerSharding, as a run of the service: communication: .*\. hosts: .*\. optimizerSharding: /,
    );
  });

  it('leaves alone what asks for nothing else than a run does', () => {
    const members = { transport: 'auto', communication: 'direct', optimizerSharding: 'sharded', codec: 'none', secret: undefined } as const;
    expect(runOf('MultiWorkerMirroredStrategy', members)).toEqual(PLAIN.MultiWorkerMirroredStrategy);
    const local = { communication: 'auto', delay: 0, syncSteps: 0, fragments: 1, outer: 'average' } as const;
    expect(runOf('LocalUpdateStrategy', local)).toEqual(PLAIN.LocalUpdateStrategy);
    expect(runOf('HybridStrategy', { replicasPerWorker: 1 })).toEqual(PLAIN.ParameterServerStrategy); // one replica is no sum
  });

  it('an engine that is chosen here is not chosen for a run', () =>
    expect(runOf('MirroredStrategy', { engine: 'auto' })).toEqual(PLAIN.MirroredStrategy));

  it.each([
    ['MirroredStrategy', { deadlineMs: 500 }, /deadlineMs: stepDeadlineMs of a run must be at least 1000, not 500/],
    ['LocalUpdateStrategy', { localSteps: 1_000_000 }, /localSteps: strategy\.localSteps of a run must be at most/],
    [
      'LocalUpdateStrategy',
      { localSteps: 4, fragments: 3 },
      /with fragments, as .* and 4 cannot be divided so: set localSteps to a multiple/,
    ],
    ['LocalUpdateStrategy', { innerState: 'average' }, /innerState: replicas of a run keep .* set it to keep/],
    ['LocalUpdateStrategy', { fragments: 3 }, /and 8 cannot be divided so/],
    ['ModelParallelStrategy', { pipelines: 100 }, /pipelines: strategy\.workers of a run must be at most 64, not 100/],
    ['LocalUpdateStrategy', { fragments: 2, syncSteps: 3 }, /syncSteps: strategy\.syncSteps of a run does not go with fragments/],
  ] as const)('%s with a value that the run spec does not have: %j', (name, options, message) => {
    expect(() => strategyOf(name, options).toRun()).toThrow(message);
  });
});

it('the page has a row for each option, with where it goes', () => {
  const page = readFileSync(join(import.meta.dirname, '../../../docs/library.md'), 'utf8');
  const [, section] = /\n### Options in a run\n([\s\S]*?)\n##/.exec(page)!;
  const lines = section!.split('\n').filter((line) => line.startsWith('| `'));
  const missing = NAMES.flatMap((name) =>
    rowsOf(name).flatMap(([option, row]) => {
      const says = row.kind === 'refused' ? 'refused' : `\`${row.to}\``;
      const isSaid = lines.some((line) => line.split('|')[1]!.includes(`\`${option}\``) && line.toLowerCase().includes(says.toLowerCase()));
      return isSaid ? [] : [`${name}: ${option}: ${says}`];
    }),
  );
  expect(missing).toEqual([]);
});
