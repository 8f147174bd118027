/** Seeds of modes async and ssp, and fault row 13: a worker ten times slower blocks ssp at the bound, and async not at all. */
import { expect, test } from 'vitest';
import { holdsData, injectFault } from '../faults/faults.js';
import type { Cluster } from '../cluster.js';
import { simulateSeed, type SeedOptions } from '../simulate.js';
import { STREAMING } from '../run/gradient-shape.js';
import { always } from './arranged.fixture.js';
import { IS_SOAK, seeds, swept, type Sweep } from './sweep.fixture.js';
import { neverTaken, takenUnreached, type Tally } from '../checks/tally.js';

/** What makes standbys take over. */
const LOSING_SERVERS = ['kill a server', 'stop a server', 'servers lose each other', 'break a connection', 'replay a connection'] as const;
const STANDBYS = { check: 'liveness', kinds: LOSING_SERVERS, shape: { standby: 1, rounds: 9 } } as const;
/** In mode async, with quick and with slow steps. */
const NAMED = [
  ['a worker leaves'],
  ['cancel'],
  ['eat frames'],
  ['shut a server down'],
  ['stop a worker', 'partition'],
  ['step task delivered twice', 'add a worker', 'kill a worker'],
] as const;
const SWEEPS: readonly Sweep[] = [
  ...(['async', 'ssp'] as const).flatMap((mode) => [
    { options: { mode }, least: seeds(4, 150) },
    { options: Object.assign({ mode }, STANDBYS), least: seeds(mode === 'async' ? 4 : 6, 80) },
  ]),
  ...NAMED.flatMap((kinds) =>
    (
      [
        [5, 40],
        [50, 400],
      ] as const
    ).map((stepMs) => ({
      options: { mode: 'async', check: 'liveness', kinds, stepMs } as const,
      least: seeds(kinds[0] === 'eat frames' ? 3 : 1, 10),
    })),
  ),
];
/** Rows that no seed has taken; those of replication are taken in mode sync. */
const missing = (tally: Tally): string[] => neverTaken(tally).filter((row) => !row.startsWith('replication.'));

test(
  'seeds of modes async and ssp break no invariant and end; in the soak they take every row of the work item tables',
  { timeout: 360_000 },
  async () => {
    const tally = await swept(SWEEPS, missing);
    expect(tally.failed.map(({ seed, mode, violation }) => `${seed} ${mode}: ${violation.invariant}: ${violation.message}`)).toEqual([]);
    if (IS_SOAK) expect(missing(tally)).toEqual([]);
    expect(takenUnreached(tally)).toEqual([]);
  },
);

test('a seed of these modes replays exactly', async () => {
  for (const mode of ['async', 'ssp'] as const) {
    const [first, second] = [await simulateSeed({ seed: 21, mode }), await simulateSeed({ seed: 21, mode })];
    expect(first.events).toBeGreaterThan(100);
    expect([second.traceHash, second.events, second.virtualMs]).toEqual([first.traceHash, first.events, first.virtualMs]);
  }
});

/** Four replicas on four workers, one of which becomes ten times slower; how far ahead of the slowest clock anybody began, and what ssp said. */
async function withSlowWorker(mode: 'async' | 'ssp'): Promise<{ ahead: number; waits: string[]; outcome: string; fired: number }> {
  const shape = {
    servers: 2,
    replicas: 4,
    examples: 64,
    globalBatch: 8,
    rounds: 24,
    evalExamples: 0,
    checkpointEveryRounds: 0,
    standby: 0,
  } as const;
  const items = { stalenessBound: 2, nanShare: 0 };
  let ahead = 0;
  const waits: string[] = [];
  const arrange = (cluster: Cluster): void => {
    const before = cluster.world.afterEvent;
    let hasFired = false;
    cluster.world.afterEvent = () => {
      before();
      const { coordinator, items } = cluster.control.coordinatorPart ?? {};
      if (!coordinator || !items) return;
      if (!hasFired && items.marks.count >= 4 && coordinator.seats().length === 4) hasFired = injectFault(cluster, 'slow a worker');
      for (const { session } of cluster.liveWorkers()) {
        const member = session?.member;
        if (member?.table.state === 'COMPUTING') ahead = Math.max(ahead, member.round - items.marks.rounds);
        const reason = member?.waitingFor() ?? '';
        if (reason.includes('staleness bound') && waits.at(-1) !== reason) waits.push(reason);
      }
    };
  };
  const options: SeedOptions = { seed: 7, mode, check: 'liveness', kinds: [], workers: 4, stepMs: [50, 60], shape, arrange };
  const result = await simulateSeed({ ...options, items });
  expect(result.violation).toBeUndefined();
  return { ahead, waits, outcome: result.outcome, fired: result.fired.get('slow a worker') ?? 0 };
}

test('13: one worker ten times slower, mode ssp: the others block at the bound and say for whom', async () => {
  const { ahead, waits, outcome, fired } = await withSlowWorker('ssp');
  expect([outcome, fired]).toEqual(['SUCCEEDED', 1]);
  expect(ahead).toBe(2);
  expect(waits.join(' ')).toMatch(/replica \d to catch up: replica \d is 2 rounds ahead/u);
});

test('13: one worker ten times slower, mode async: nobody blocks, and the others go far ahead', async () => {
  const { ahead, waits, outcome, fired } = await withSlowWorker('async');
  expect([outcome, fired]).toEqual(['SUCCEEDED', 1]);
  expect(ahead).toBeGreaterThan(2);
  expect(waits).toEqual([]);
});

/** Work items per virtual second of four replicas on four workers, one of which is four times slower from the beginning. */
async function itemsPerSecond(mode: 'sync' | 'async' | 'ssp'): Promise<number> {
  const [replicas, rounds] = [4, 32];
  const shape = {
    servers: 1,
    replicas,
    examples: 64,
    globalBatch: 8,
    rounds,
    evalExamples: 0,
    checkpointEveryRounds: 0,
    standby: 0,
  } as const;
  const looks: { readonly done: number; readonly atMs: number }[] = [];
  const arrange = (cluster: Cluster): void => {
    const slow = cluster.workers[0]!;
    slow.stepMs = [4 * slow.stepMs[0], 4 * slow.stepMs[1]];
    always(cluster, () => {
      const { coordinator, items: given } = cluster.control.coordinatorPart ?? {};
      const done = given ? given.marks.count : replicas * (coordinator?.round ?? 0);
      // Four workers have come, and none has nothing left to do, as at the end of a run.
      const isBetween = coordinator?.seats().length === 4 && done > 0 && done <= (replicas * rounds) / 2;
      if (isBetween && looks.at(-1)?.done !== done) looks.push({ done, atMs: cluster.world.nowMs });
    });
  };
  const items = mode === 'sync' ? {} : { items: { stalenessBound: 4, nanShare: 0 } };
  const options: SeedOptions = { seed: 11, mode, check: 'liveness', kinds: [], workers: 4, stepMs: [50, 60], arrange, ...items };
  const result = await simulateSeed({ ...options, shape: mode === 'sync' ? Object.assign({ gradient: STREAMING }, shape) : shape });
  expect(result).toMatchObject({ violation: undefined, outcome: 'SUCCEEDED', attempts: 1 });
  const [first, last] = [looks[0]!, looks.at(-1)!];
  return ((last.done - first.done) / (last.atMs - first.atMs)) * 1000;
}

test('one worker four times slower: mode ssp does more work items a second than sync, by what the bound lets it, and async more than ssp', async () => {
  const [sync, ssp, free] = [await itemsPerSecond('sync'), await itemsPerSecond('ssp'), await itemsPerSecond('async')];
  // Sync waits for the slow worker in every round of four items. Async waits for nobody: three workers do four times as many as the slow one.
  expect(sync).toBeCloseTo(1000 / 55, -1);
  expect(ssp).toBeGreaterThan(1.1 * sync);
  expect(free).toBeGreaterThan(1.2 * ssp);
});

/** Worker w0 finds numbers, w1 finds NaN. What w0 sends is eaten where `eats` says so, and w0 dies when `shards` servers have applied a work item of it. */
async function withTwoMinds(shards: number, eats: (toServer: string, frames: Uint8Array) => boolean) {
  const dropped: { message: string; data: Record<string, unknown> }[] = [];
  let cluster!: Cluster;
  const result = await simulateSeed({
    seed: 3,
    mode: 'async',
    check: 'liveness',
    kinds: [],
    workers: 2,
    stepMs: [20, 30],
    shape: { servers: 2, replicas: 4, examples: 32, globalBatch: 8, rounds: 6, evalExamples: 0, checkpointEveryRounds: 0, standby: 0 },
    items: { nonFinite: 'skip', nanShare: 1, disagree: true },
    arrange: (made) => {
      cluster = made;
      made.network.eats = ({ process, remote }, frames) => process.name === 'w0' && eats(remote, frames);
      const before = made.world.afterEvent;
      made.world.afterEvent = () => {
        before();
        const items = made.control.coordinatorPart?.items;
        const w0 = made.workers[0]!;
        if (!items || !w0.process.isAlive) return;
        for (const { holder, shards: done, contribution } of items.present.byNumber.values())
          if (w0.process.isAlive && holder === 'w0' && done.size === shards && (shards < 2 || !contribution)) w0.process.kill();
      };
    },
  });
  expect(result).toMatchObject({ violation: undefined, outcome: 'SUCCEEDED', attempts: 1 });
  expect(result.fired.get('eaten frame')).toBeGreaterThan(0);
  for (const entry of cluster.control.journal) if (entry.kind === 'event' && entry.type === 'replica.dropped') dropped.push(entry);
  return { dropped, examples: cluster.runInvariants.ledgerExamples };
}

test('two workers disagree about NaN, and one server has applied the work item: it is left out, and the event says where it is applied', async () => {
  const { dropped } = await withTwoMinds(1, (server, frames) => server.startsWith('server-host-1') && holdsData(frames));
  const [partly, ...others] = dropped.filter(({ data }) => (data['appliedAt'] as number[]).length > 0);
  expect(others).toEqual([]);
  expect(partly!.message).toMatch(/its 2 examples are left out; parameter server 0 has applied that of its holder before/u);
});

test('two workers disagree about NaN, and all servers have applied the work item: it counts', async () => {
  const { dropped, examples } = await withTwoMinds(2, (_, frames) => Buffer.from(frames).includes('"type":"contribution"'));
  expect(dropped.length).toBeGreaterThan(0);
  expect(dropped.length).toBeLessThan(24);
  expect(examples).toBe((24 - dropped.length) * 2);
});
