import { readFileSync, readdirSync } from 'node:fs';
import { keepsRest } from '@paceline/spec';
import { expect, test } from 'vitest';
import type { FaultKind } from './faults/faults.js';
import { STREAMING } from './run/gradient-shape.js';
import { PLANTED } from './faults/planted.js';
import { PLANTED_CONTROL } from './faults/control-planted.js';
import { PLANTED_ASYNC } from './faults/async-planted.js';
import { PLANTED_REPLICAS } from './faults/replica-planted.js';
import { Random } from './world/random.js';
import { REGRESSIONS } from './faults/regressions.js';
import { OWN_REGRESSIONS } from './faults/regressions-own.js';
import { drawnShape, simulateSeed } from './simulate.js';
import { IS_SOAK, seeds, swept, type Sweep } from './scenarios/sweep.fixture.js';
import { NOT_REACHED, RARELY_REACHED, coverage, emptyTally, neverTaken, takenUnreached } from './checks/tally.js';

/** What makes standbys take over. */
const LOSING_SERVERS: readonly FaultKind[] = [
  'kill a server',
  'stop a server',
  'shut a server down',
  'servers lose each other',
  'break a connection',
  'replay a connection',
];

const STANDBYS = { check: 'liveness', shape: { standby: 1, rounds: 9, gradient: STREAMING } } as const;
/** Validated nearly every round, so that what is lost is lost in the middle of it. */
const VALIDATED = {
  evalExamples: 2400,
  checkpointEveryRounds: 2,
  validation: { everyRounds: 1, patience: 2, restoreBest: true, lowersRate: true },
} as const;
const HELD_OUT = Object.assign({ heldOutExamples: 700 }, VALIDATED);
/** Where a worker that is gone costs an attempt. */
const EF21 = {
  mode: 'sync',
  check: 'liveness',
  shape: {
    codec: { kind: 'top-k', density: 0.25, errorFeedback: true, feedbackRule: 'ef21' },
    gradient: STREAMING,
    rounds: 9,
    standby: 0,
    validation: undefined,
  },
} as const;
const SWEEPS: readonly Sweep[] = [
  { options: { mode: 'sync' }, least: seeds(8, 640) },
  { options: { mode: 'sync', check: 'liveness', kinds: ['eat frames'] }, least: seeds(2, 80) },
  { options: { mode: 'sync', check: 'liveness', kinds: ['stop a worker', 'slow a worker'] }, least: seeds(3, 80) },
  { options: Object.assign({ kinds: LOSING_SERVERS }, STANDBYS), least: seeds(3, 160) },
  { options: Object.assign({}, STANDBYS, { kinds: LOSING_SERVERS, shape: { ...STANDBYS.shape, ...VALIDATED } }), least: seeds(3, 80) },
  { options: Object.assign({}, STANDBYS, { kinds: LOSING_SERVERS, shape: { ...STANDBYS.shape, ...HELD_OUT } }), least: seeds(3, 80) },
  // Few of them have a standby whose link breaks at once, and that comes again while the arbiter is asked, or that takes over from who leaves: as many as it takes.
  { options: Object.assign({ kinds: ['break a connection'] as const }, STANDBYS), least: seeds(4, 80) },
  { options: Object.assign({ kinds: ['shut a server down'] as const }, STANDBYS), least: seeds(0, 80) },
  { options: Object.assign({ kinds: ['kill a worker', 'a worker leaves'] as const }, EF21), least: seeds(2, 80) },
];

test(
  'seeds of random faults break no invariant and end; in the soak they take every row of every state table',
  { timeout: 720_000 },
  async () => {
    const tally = await swept(SWEEPS, neverTaken);
    expect(tally.failed.map(({ seed, violation }) => `${seed}: ${violation.invariant}: ${violation.message}`)).toEqual([]);
    if (IS_SOAK) expect(neverTaken(tally)).toEqual([]);
    expect(takenUnreached(tally)).toEqual([]);
  },
);

test('codecs, local steps and shards on workers are drawn, and a residual whose worker is killed is lost', async () => {
  const fired = new Map<string, number>();
  for (const seed of [1, 2]) {
    const codec = { kind: 'top-k', density: 0.25, errorFeedback: true } as const;
    const shape = { codec, replicas: 8, rounds: 9, gradient: STREAMING, validation: undefined };
    const result = await simulateSeed({ seed, check: 'liveness', kinds: ['kill a worker'], shape });
    expect(result.violation).toBeUndefined();
    for (const [what, count] of result.fired) fired.set(what, (fired.get(what) ?? 0) + count);
  }
  expect(fired.get('residual lost')).toBeGreaterThan(0);
  for (const innerState of ['keep', 'reset'] as const) {
    const local = { localSteps: 2, outerOptimizer: 'elastic', innerState } as const;
    const shape = { local, replicas: 6, rounds: 9, gradient: STREAMING, validation: undefined, codec: undefined };
    const result = await simulateSeed({ seed: 3, mode: 'sync', check: 'liveness', kinds: ['kill a worker'], shape });
    expect([innerState, result.violation]).toEqual([innerState, undefined]);
  }
  const drawn = Array.from({ length: 120 }, (_, seed) => drawnShape({ seed, mode: 'sync' }, new Random(seed, 1)));
  expect(drawn.some(({ codec }) => codec !== undefined && keepsRest(codec))).toBe(true);
  expect(drawn.some(({ codec }) => codec !== undefined && !keepsRest(codec))).toBe(true);
  expect(drawn.some(({ codec, gradient }) => codec && keepsRest(codec) && (gradient.clipNorm ?? gradient.clipGlobalNorm))).toBe(true);
  expect(drawn.some(({ chunks, codec }) => chunks.length > 12 && codec !== undefined && keepsRest(codec))).toBe(true);
  expect(drawn.some(({ servers }) => servers > 3) && drawn.some(({ replicas }) => replicas > 8)).toBe(true);
  expect(drawn.some(({ codec }) => codec?.kind === 'power-sgd')).toBe(true);
  expect(drawn.some(({ table }) => table !== undefined)).toBe(true);
  expect(drawn.some(({ local }) => local?.syncSteps !== undefined) && drawn.some(({ local }) => local?.fragments !== undefined)).toBe(true);
  expect(drawn.some(({ local }) => local !== undefined) && drawn.some(({ isMirrored }) => isMirrored)).toBe(true);
});

test('a shape that no run can have is refused by the words of its spec', async () => {
  const codec = { kind: 'top-k', errorFeedback: true } as const;
  const shape = { codec, gradient: { nonFinite: 'skip', backupReplicas: 0 } } as const;
  await expect(simulateSeed({ seed: 1, shape })).rejects.toThrow(
    /^no run can have this shape: codec\.errorFeedback does not go with nonFinite skip/u,
  );
});

test('fragments: a worker that moves on before it has a whole generation has what the rounds in between have not exchanged', async () => {
  const local = { localSteps: 2, outerOptimizer: 'nesterov', innerState: 'reset', fragments: 3 } as const;
  const chunks = [3, 1, 4, 2, 5, 2].map((length, i) => ({ length, section: i < 5 ? ('trainable' as const) : ('state' as const) }));
  const sizes = { rounds: 9, replicas: 4, examples: 80, globalBatch: 12 };
  const shape = { local, chunks, gradient: STREAMING, standby: 0 as const, validation: undefined, codec: undefined, ...sizes };
  for (const seed of [45, 51, 85, 99]) {
    const { violation } = await simulateSeed({ seed, mode: 'sync', check: 'liveness', shape });
    expect([seed, violation]).toEqual([seed, undefined]);
  }
});

test('a row that is taken, and is said to be out of reach, is told', () => {
  const tally = emptyTally();
  for (const row of [
    'member.view',
    'member.viewOld',
    'run-status.PENDING>QUEUED',
    'attempt-end.restart',
    'async-shard.drop',
    'async-coordinator.issue',
  ])
    tally.rows[row] = 1;
  for (const row of ['standby.order', 'replication.acknowledged', 'shard.view', 'async-member.view', 'coordinator.commit'])
    tally.rows[row] = 2;
  expect(takenUnreached(tally)).toEqual(['member.viewOld']);
  // Each is a row that there is, and excused once.
  const known = coverage(tally).map(({ row }) => row);
  const excused = [...Object.keys(NOT_REACHED), ...Object.keys(RARELY_REACHED)];
  expect(excused.filter((row) => !known.includes(row))).toEqual([]);
  expect(new Set(excused).size).toBe(excused.length);
});

test('a seed replays exactly, and another seed is another run', async () => {
  for (const seed of [5, 21, 44]) {
    const [first, second, other] = [
      await simulateSeed({ seed, mode: 'sync' }),
      await simulateSeed({ seed, mode: 'sync' }),
      await simulateSeed({ seed: seed + 1, mode: 'sync' }),
    ];
    expect(first.events).toBeGreaterThan(100);
    expect([second.traceHash, second.events, second.virtualMs]).toEqual([first.traceHash, first.events, first.virtualMs]);
    expect(other.traceHash).not.toBe(first.traceHash);
  }
});

for (const { found, ...options } of [...REGRESSIONS, ...OWN_REGRESSIONS])
  test(`seed ${options.seed} stays clean: ${found}`, async () => {
    expect((await simulateSeed({ mode: 'sync', ...options })).violation).toBeUndefined();
  });

for (const { name, shownBy, withinSeeds, seed: first = 1, kinds, plant, shape, mode = 'sync' } of [
  ...PLANTED,
  ...PLANTED_ASYNC,
  ...PLANTED_CONTROL,
  ...PLANTED_REPLICAS,
])
  test(`planted: ${name} is found within ${withinSeeds} seeds`, async () => {
    for (const seed of [first, ...Array.from({ length: withinSeeds }, (_, i) => i + 1)]) {
      const { violation } = await simulateSeed({ seed, check: 'liveness', mode, kinds, plant, shape });
      if (!violation) continue;
      expect(shownBy).toContain(violation.invariant);
      return;
    }
    expect.fail(`not found within ${withinSeeds} seeds`);
  });

test('the simulator runs the machines that the apps run, and has no state machine of its own', () => {
  const here = new URL('./', import.meta.url);
  const text = (folder: URL): string =>
    readdirSync(folder, { recursive: true, encoding: 'utf8' })
      .filter((file) => file.endsWith('.ts') && !/\.(?:test|fixture)\.ts$/u.test(file))
      .map((file) => readFileSync(new URL(file, folder), 'utf8'))
      .join('\n');
  const simulator = text(here);
  const isIn = (pattern: RegExp): boolean => pattern.test(simulator);
  const hosting = text(new URL('../../../hosting/src/', here));
  const apps = ['ps', 'worker'].map((app) => text(new URL(`../../../../apps/${app}/src/`, here))).join('\n');
  const imports = (source: string, library: string): Set<string> =>
    new Set(
      [...source.matchAll(new RegExp(`import (?:type )?\\{(?<names>[^}]*)\\} from '@paceline/${library}'`, 'gu'))].flatMap(({ groups }) =>
        groups!['names']!.split(',').map((name) => name.trim().replace(/^type | as .*$/gu, '')),
      ),
    );
  // What servers hold of a run, with its machines.
  for (const part of ['PlacementLoop', 'Gate', 'ParameterStore', 'ServerContext', 'WorkerQueues', 'StandbyQueue'])
    expect([part, imports(simulator, 'hosting').has(part), imports(apps, 'hosting').has(part)]).toEqual([part, true, true]);
  const machines = [
    'Coordinator',
    'Shard',
    'ShardLink',
    'ShardPlace',
    'Rounds',
    'WorkItems',
    'AsyncShard',
    'Journal',
    'PeerTimeouts',
    'StallTolerantClock',
  ];
  for (const machine of machines) expect([machine, imports(hosting, 'exchange').has(machine)]).toEqual([machine, true]);
  for (const made of machines) expect([made, isIn(new RegExp(`new ${made}\\(`, 'u'))]).toEqual([made, false]);
  expect(/setTimeout|setInterval|setImmediate|Math\.random|Date\.now|performance\.now|from 'node:/u.test(hosting)).toBe(false);
  // What workers hold of a run, with its machines.
  const worker = text(new URL('../../../../apps/worker/src/', here));
  for (const part of ['SeatSession', 'SeatCompute', 'parameterBytes'])
    expect([part, imports(simulator, 'hosting').has(part), imports(worker, 'hosting').has(part)]).toEqual([part, true, true]);
  for (const machine of ['Member', 'AsyncMember', 'ServerLinks']) {
    expect([machine, imports(hosting, 'exchange').has(machine), imports(worker, 'exchange').has(machine)]).toEqual([machine, true, false]);
    expect([machine, isIn(new RegExp(`new ${machine}\\(`, 'u'))]).toEqual([machine, false]);
  }
  // What apis run, and the loop in which workers take step tasks.
  const api = text(new URL('../../../../apps/api/src/', here));
  for (const part of [
    'DispatchLoop',
    'Reconciler',
    'ReportReader',
    'JobStates',
    'ReportContinuity',
    'sendOutbox',
    'endedAttempt',
    'begunAttempt',
    'nextRestore',
    'highWaterOf',
    'settledLead',
  ])
    expect([part, imports(simulator, 'control-plane').has(part), imports(api, 'control-plane').has(part)]).toEqual([part, true, true]);
  expect([imports(simulator, 'hosting').has('SeatLoop'), imports(apps, 'hosting').has('SeatLoop')]).toEqual([true, true]);
  expect(isIn(/new StateTable/u)).toBe(false);
  expect(isIn(/from '[^']*apps\//u)).toBe(false);
  // The one real clock is that of the command line, for seeds per second.
  expect(isIn(/setTimeout|setInterval|Math\.random|Date\.now/u)).toBe(false);
});
