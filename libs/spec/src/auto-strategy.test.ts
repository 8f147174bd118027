/** What `strategy: auto` picks, by numbers. */
import { expect, test } from 'vitest';
import { allowedLocalUpdates, withLocalRounds } from './auto-local-updates.js';
import { onlyStrategy, pickLocalUpdates, pickStrategy, picksStrategy, type MeasuredExchange } from './auto-strategy.js';
import { comparableConfig } from './comparable-config.js';
import { parseRunSpec, type RunSpec, type RunSpecInput } from './run-spec.js';

function specOf(input: RunSpecInput = {}): RunSpec {
  const result = parseRunSpec({ strategy: { kind: 'auto' }, replicas: 4, ...input });
  if (!result.ok) throw new Error(JSON.stringify(result.issues));
  return result.spec;
}

/** Two workers of one core and a server, over links of ten megabytes a second: four of a megabyte on that of the server. */
const SLOW: MeasuredExchange = {
  stepMs: 50,
  waitMs: 400,
  latencyMs: 0,
  denseBytes: 1e6,
  nodes: 1,
  workers: 2,
  servers: 1,
  cores: 1,
};

test.each<[what: string, more: Partial<MeasuredExchange>, shardWorkers: number, picked: string, why: RegExp]>([
  [
    'a slow link of the server',
    {},
    2,
    'multi-worker-mirrored',
    /round takes 450 ms: 50 ms step.*10\.?0* MB\/s.*150 ms are expected.*saves 67 %/,
  ],
  ['two servers, which share the load', { servers: 2, waitMs: 200 }, 2, 'multi-worker-mirrored', /saves 40 %/],
  ['latency alone', { latencyMs: 400 }, 2, 'parameter-server', /wait is work of the processes/],
  ['a fast link', { waitMs: 4 }, 2, 'parameter-server', /wait is work of the processes/],
  ['a long step', { stepMs: 5000 }, 2, 'parameter-server', /saves less than 30 % and 3 ms/],
  ['one core for a worker, where little is saved', { stepMs: 900 }, 2, 'parameter-server', /saves less than 30 %/],
  [
    'two cores for a worker with one replica',
    { stepMs: 900, cores: 2, workers: 4 },
    4,
    'multi-worker-mirrored',
    /2 cores for each worker: that saves 25 %$/,
  ],
  [
    'cores that two workers share',
    { cores: 2, workersOnMachine: 2 },
    2,
    'multi-worker-mirrored',
    /; 2 cores for 2 workers of one machine:/,
  ],
  ['a worker that takes no shard', {}, 1, 'parameter-server', /1 worker of 2 can hold/],
  ['one worker alone sends nothing then', { workers: 1, waitMs: 200 }, 1, 'multi-worker-mirrored', /for 0\.00 MB.*saves 80 %/],
])('%s', (_, more, shardWorkers, picked, why) => {
  const measured = { ...SLOW, ...more };
  const { strategy, why: said } = pickStrategy(specOf(), measured, shardWorkers);
  expect(strategy).toMatchObject(
    picked === 'parameter-server' ? { kind: picked, servers: 1 } : { kind: picked, workers: measured.workers },
  );
  expect(said).toMatch(why);
});

test.each<[what: string, more: Partial<MeasuredExchange>, input: RunSpecInput, picked: object, why: RegExp]>([
  [
    'a fast link: servers, and a thread for each replica of a worker',
    { waitMs: 4, cores: 16 },
    {},
    { kind: 'hybrid', servers: 1, threads: 2, accumulate: 1 },
    /round takes 54 ms: 50 ms step.*; with hybrid 35 ms are expected, in 2 compute threads of each worker; .*16 cores for each worker: hybrid saves 35 %; the wait is work/,
  ],
  [
    'a slow link: the workers hold the shards, and compute in threads',
    { cores: 2 },
    {},
    { kind: 'multi-worker-mirrored', workers: 2, threads: 2 },
    /with multi-worker-mirrored 131 ms are expected, for 1\.00 MB, in 2 compute threads of each worker; .*: that saves 71 %$/,
  ],
  [
    'one worker alone',
    { workers: 1, waitMs: 200, cores: 8 },
    {},
    { kind: 'mirrored', threads: 4 },
    /with mirrored 22 ms are expected, for 0\.00 MB, in 4 compute threads of each worker; 8 cores for each worker: that saves 91 %$/,
  ],
  [
    'one worker that others may join, over a fast link',
    { workers: 1, waitMs: 4, cores: 3 },
    {},
    // Three threads for four replicas would take two turns, as two do.
    { kind: 'hybrid', threads: 2 },
    /in 2 compute threads of each worker; .*3 cores/,
  ],
  ['a core for each worker of a machine', { waitMs: 4, cores: 3, workersOnMachine: 2 }, {}, { kind: 'parameter-server' }, /3 cores for 2/],
  ['a step that is short', { stepMs: 5, waitMs: 1, cores: 2 }, {}, { kind: 'parameter-server' }, /2 cores for each worker: the wait/],
  [
    'an exchange beside which a step is short',
    { stepMs: 20, waitMs: 400, latencyMs: 400, cores: 2 },
    {},
    { kind: 'parameter-server' },
    /2 cores for each/,
  ],
  [
    'an engine of one thread',
    { waitMs: 4, cores: 2 },
    { engine: 'tensorflow' },
    { kind: 'parameter-server' },
    /; in one compute thread of each worker, since with more: engine tensorflow does not go with hybrid/,
  ],
  [
    'a codec',
    { waitMs: 4, cores: 2 },
    { codec: { kind: 'int8' } },
    { kind: 'parameter-server' },
    /; in one compute thread of each worker, since with more: codec\.kind int8 does not go with hybrid/,
  ],
  [
    'local updates, where they are allowed',
    { cores: 2 },
    { strategy: { kind: 'auto', allowedLocalSteps: 20 } },
    { kind: 'local-update', threads: 2, localSteps: 20 },
    /local updates: 51 ms are expected for a step in 2 compute threads of each worker, .*: that saves 61 %$/,
  ],
])('threads of workers with several cores: %s', (_, more, input, picked, why) => {
  const { strategy, why: said } = pickStrategy(specOf(input), { ...SLOW, ...more }, 2);
  expect(said).toMatch(why);
  expect(strategy).toMatchObject(picked);
  if (!('threads' in picked)) expect(strategy).not.toHaveProperty('threads');
  expect(parseRunSpec({ ...specOf(input), strategy }).ok, 'it is a spec of its own').toBe(true);
});

test('of the threads that would pay a worker gets as many as it has the memory for', () => {
  const measured = { ...SLOW, workers: 1, waitMs: 4, cores: 8 };
  const atMost =
    (most: number) =>
    ({ strategy }: RunSpec): string | undefined =>
      'threads' in strategy && strategy.threads! > most ? `a worker has the memory for ${most} threads` : undefined;
  const picks = [4, 3, 2, 1].map((most) => pickStrategy(specOf(), measured, 1, atMost(most)));
  expect(picks.map(({ strategy }) => ('threads' in strategy ? strategy.threads : 1))).toEqual([4, 2, 2, 1]);
  expect(picks[3]).toMatchObject({
    strategy: { kind: 'parameter-server' },
    why: expect.stringMatching(/in one compute thread of each worker, since with more: a worker has the memory for 1 threads/) as string,
  });
});

test('without a server, a worker alone gets a thread for each of its cores', () => {
  const fleet = { liveServers: 0, liveWorkers: 1, shardWorkers: 1 };
  expect(onlyStrategy(specOf(), fleet)).toEqual({
    strategy: { kind: 'mirrored', mode: 'sync', accumulate: 1, standby: 0 },
    why: 'no parameter server is connected, and 1 worker can hold the parameters: it computes in a thread for each core',
  });
  for (const [spec, more] of [
    [specOf({ replicas: 1 }), {}],
    [specOf(), { liveWorkers: 2 }],
    [specOf({ engine: 'tensorflow' }), {}],
    [specOf(), { refuses: ({ strategy }: RunSpec) => (strategy.kind === 'mirrored' ? 'memory' : undefined) }],
  ] as const)
    expect(onlyStrategy(spec, { ...fleet, ...more })).toMatchObject({ strategy: { kind: 'multi-worker-mirrored', workers: 1 } });
});

test('what only one strategy can serve, or only one is there for, is picked without a measurement', () => {
  const all = { liveServers: 1, liveWorkers: 2, shardWorkers: 2 };
  expect(onlyStrategy(specOf(), all)).toBeUndefined();
  const sparse = onlyStrategy(specOf({ embeddings: { kind: 'sparse' } }), all);
  expect(sparse).toMatchObject({
    strategy: { kind: 'parameter-server' },
    why: expect.stringMatching(/no other .*sparse embeddings/) as string,
  });
  const workers = onlyStrategy(specOf({ strategy: { kind: 'auto', accumulate: 2 } }), { liveServers: 0, liveWorkers: 3, shardWorkers: 3 });
  expect(workers).toMatchObject({
    strategy: { kind: 'multi-worker-mirrored', workers: 3, accumulate: 2 },
    why: expect.stringContaining('no parameter server') as string,
  });
  expect(onlyStrategy(specOf(), { liveServers: 2, liveWorkers: 1, shardWorkers: 0 })).toMatchObject({
    strategy: { kind: 'parameter-server' },
  });
  for (const liveServers of [0, 2])
    expect(onlyStrategy(specOf(), { liveServers, liveWorkers: 0, shardWorkers: 0 }), 'no worker is there yet').toBeUndefined();
  expect(
    onlyStrategy(specOf({ strategy: { kind: 'parameter-server' } }), { liveServers: 0, liveWorkers: 2, shardWorkers: 2 }),
  ).toBeUndefined();
  const allowing = specOf({ strategy: { kind: 'auto', allowedLocalSteps: 20 } });
  expect(
    onlyStrategy(allowing, { liveServers: 2, liveWorkers: 2, shardWorkers: 0 }),
    'local updates need no worker with a shard',
  ).toBeUndefined();
  expect(pickStrategy(allowing, SLOW, 0).strategy.kind).toBe('local-update');
  expect([picksStrategy(specOf()), picksStrategy(specOf({ strategy: { kind: 'parameter-server' } }))]).toEqual([true, false]);
});

test.each<[what: string, codec: RunSpecInput['codec'], picked: MeasuredExchange['codec'], why: RegExp]>([
  // A quarter of the four megabytes of the server is left, and the reason says so.
  [
    'codec auto has picked',
    { kind: 'auto' },
    { kind: 'int8', parameters: 'int8' },
    /exchange of 1\.02 MB on .*2\.56 MB\/s, gradients in int8 and parameters in int8, as codec auto has picked; .* for 0\.26 MB/,
  ],
  ['codec auto has picked none', { kind: 'auto' }, undefined, /exchange of 4\.00 MB on .*10 MB\/s; /],
  ['the spec names a codec', { kind: 'int8' }, undefined, /exchange of 2\.51 MB on .*6\.28 MB\/s; /],
  ['the codec has a bound alone', { kind: 'power-sgd' }, undefined, /exchange of at most 4\.00 MB on /],
])('bytes are those of the codec: %s', (_, codec, picked, why) => {
  const { strategy, why: said } = pickStrategy(specOf({ codec }), { ...SLOW, codec: picked }, 2);
  expect(strategy).toMatchObject({ kind: 'multi-worker-mirrored', workers: 2 });
  expect(said).toMatch(why);
});

test('what is refused for another reason than the spec stays with its servers', () => {
  const { strategy, why } = pickStrategy(specOf(), SLOW, 2, ({ strategy: other }) => `${other.kind} has too large checkpoints`);
  expect(strategy.kind).toBe('parameter-server');
  expect(why).toMatch(/expected.*: multi-worker-mirrored has too large checkpoints$/);
});

test('a checkpoint that was written before the pick is one of what was picked, as the numbers are', () => {
  const [auto, servers, workers] = (['auto', 'parameter-server', 'multi-worker-mirrored'] as const).map((kind) =>
    comparableConfig(specOf({ strategy: { kind } })),
  );
  expect(auto).toEqual(servers);
  expect(workers).toEqual(servers);
  expect(comparableConfig(specOf({ strategy: { kind: 'local-update' } }))).not.toEqual(servers);
  expect(comparableConfig(specOf({ strategy: { kind: 'parameter-server', mode: 'ssp' } }))).not.toEqual(servers);
});

test.each<[what: string, input: RunSpecInput, more: Partial<MeasuredExchange>, picked: string, why: RegExp]>([
  // With a fifth of the two megabytes a worker's exchange every 20 steps takes 20 ms of the 50 ms step.
  [
    'they save enough of a step',
    {},
    {},
    'local-update',
    /; local updates: 70 ms are expected for a step, with an exchange of 4\.00 MB every 20 steps: that saves 53 %$/,
  ],
  [
    'they do not',
    {},
    { stepMs: 300 },
    'multi-worker-mirrored',
    /saves 43 %; local updates: 320 ms .*: that saves less than 30 %, and they change what is trained/,
  ],
  ['a fast link', {}, { waitMs: 4 }, 'parameter-server', /which the links do not bound$/],
  [
    'the codec is picked too',
    { codec: { kind: 'auto' } },
    { codec: { kind: 'int8', parameters: 'int8' } },
    'local-update',
    /at most 0\.69 MB every 20 steps/,
  ],
  ['the codec is named', { codec: { kind: 'int8' } }, {}, 'local-update', /exchange of 3\.02 MB every 20 steps/],
  [
    'steps alone are long',
    { strategy: { kind: 'auto', allowedLocalSteps: 2 } },
    { stepMs: 1, waitMs: 200 },
    'multi-worker-mirrored',
    /101 ms .*: that saves less than 30 %/,
  ],
])('local updates, where they are allowed: %s', (_, input, more, picked, why) => {
  const spec = specOf({ strategy: { kind: 'auto', allowedLocalSteps: 20 }, ...input });
  const { strategy, codec, why: said } = pickStrategy(spec, { ...SLOW, ...more }, 2);
  expect(said).toMatch(why);
  expect(strategy.kind).toBe(picked);
  if (strategy.kind !== 'local-update') return;
  const isOpen = input.codec?.kind === 'auto';
  expect(strategy).toMatchObject({
    servers: 1,
    localSteps: 20,
    innerState: 'keep',
    outerOptimizer: 'sgd',
    ...(isOpen ? { outerLearningRate: 1.5 } : {}),
  });
  expect(codec).toMatchObject(
    isOpen ? { kind: 'top-k', density: 0.02, values: 'int2', errorFeedback: true, parameters: 'int8' } : (spec.codec ?? {}),
  );
  expect(
    pickStrategy(spec, { ...SLOW, ...more }, 2, ({ strategy: { kind } }) => (kind === 'local-update' ? 'no' : undefined)).strategy.kind,
  ).toBe('multi-worker-mirrored');
});

test('by rounds before codec auto has picked, where no codec that it might pick would change that', () => {
  const spec = specOf({ strategy: { kind: 'auto', allowedLocalSteps: 20 }, codec: { kind: 'auto' } });
  const measured = { ...SLOW, stepMs: 20 };
  // int4 and int8 with the shards on the workers would take 46 ms, local updates 23 ms.
  expect(pickLocalUpdates(spec, measured)).toMatchObject({
    strategy: { kind: 'local-update', localSteps: 20 },
    codec: { kind: 'top-k' },
    why: expect.stringMatching(/local updates: 23 ms .*saves 49 % of the 46 ms that the smallest codec and strategy would take$/) as string,
  });
  expect(pickLocalUpdates(spec, { ...measured, stepMs: 60 }), 'it is for the codec to say').toBeUndefined();
  expect(pickLocalUpdates(spec, measured, () => 'no')).toBeUndefined();
  expect(pickLocalUpdates(specOf({ codec: { kind: 'auto' } }), measured)).toBeUndefined();
});

test('what a spec counts in rounds is as many steps with local updates', () => {
  const spec = specOf({
    strategy: { kind: 'auto', allowedLocalSteps: 20, startWorkers: 2 },
    length: { rounds: 1010 },
    learningRate: { schedule: 'cosine', warmupRounds: 10, decayRounds: 400 },
    validation: { everyRounds: 100 },
    earlyStopping: { startFromRound: 500 },
    checkpoint: { everyRounds: 55, everySeconds: 30 },
    codec: { kind: 'auto' },
  });
  const local = withLocalRounds(spec, allowedLocalUpdates(spec)!);
  expect(local).toMatchObject({
    length: { rounds: 51 },
    learningRate: { schedule: 'cosine', warmupRounds: 1, decayRounds: 20 },
    validation: { everyRounds: 5 },
    earlyStopping: { startFromRound: 25 },
    checkpoint: { everyRounds: 3, everySeconds: 30 },
    strategy: { kind: 'local-update', startWorkers: 2 },
  });
  expect(parseRunSpec(local)).toMatchObject({ ok: true, spec: local });
  expect(withLocalRounds(specOf({ strategy: { kind: 'auto', allowedLocalSteps: 20 } }), allowedLocalUpdates(spec)!).length).toEqual(
    specOf().length,
  );
  const fromTheStart = specOf({ strategy: { kind: 'auto', allowedLocalSteps: 20 }, validation: { everyEpochs: 1 }, earlyStopping: {} });
  expect(withLocalRounds(fromTheStart, allowedLocalUpdates(spec)!).earlyStopping).toEqual(fromTheStart.earlyStopping);
  expect(allowedLocalUpdates(specOf())).toBeUndefined();
});

test.each<[what: string, input: RunSpecInput, issue: RegExp]>([
  [
    'lamb',
    { optimizer: { name: 'lamb' } },
    /^strategy\.allowedLocalSteps: lets auto pick local-update, and optimizer\.name lamb does not go with local-update/,
  ],
  [
    'rounds that are skipped',
    { gradient: { nonFinite: 'skip' } },
    /^strategy\.allowedLocalSteps: .* and strategy\.innerState keep does not go with nonFinite skip/,
  ],
  [
    'sparse embeddings',
    { embeddings: { kind: 'sparse' } },
    /^strategy\.allowedLocalSteps: .* and strategy\.kind local-update does not go with sparse/,
  ],
  ['one step', { strategy: { kind: 'auto', allowedLocalSteps: 1 } }, /^strategy\.allowedLocalSteps: /],
])('allowedLocalSteps are refused beside %s', (_, input, issue) => {
  const result = parseRunSpec({ strategy: { kind: 'auto', allowedLocalSteps: 20 }, replicas: 4, ...input });
  expect(result.ok ? [] : result.issues.map(({ path, message }) => `${path}: ${message}`)).toEqual([expect.stringMatching(issue)]);
});

test('auto is refused beside what it does not go with', () => {
  const issues = (input: object): string[] => {
    const result = parseRunSpec({ replicas: 2, ...input });
    return result.ok ? [] : result.issues.map(({ path, message }) => `${path}: ${message}`);
  };
  expect(issues({ strategy: { kind: 'auto', standby: 1 }, codec: { kind: 'auto' } })).toEqual([
    expect.stringMatching(/^codec\.kind: .*standby/),
  ]);
  expect(issues({ strategy: { kind: 'auto', startWorkers: 3 } })).toEqual([expect.stringMatching(/^strategy\.startWorkers: /)]);
  for (const field of [{ workers: 2 }, { stalenessBound: 2 }, { mode: 'async' }])
    expect(issues({ strategy: { kind: 'auto', ...field } })).toHaveLength(1);
});
