/** A server that is told to end leaves its place to its standby, at a moment that the seed draws, in every mode; who ends all servers gets a checkpoint. */
import { expect, test } from 'vitest';
import { events, later, round, when } from './arranged.fixture.js';
import type { Cluster } from '../cluster.js';
import type { TakenRows } from '../checks/checks.js';
import type { Part } from '../actors/part.js';
import { Random } from '../world/random.js';
import { simulateSeed, type SeedResult } from '../simulate.js';
import { seeds } from './sweep.fixture.js';

const MOMENTS = 998;
const SEEDS = seeds(3, 48);

function shutDown({ server }: Part, cluster: Cluster): void {
  cluster.network.count('shut a server down');
  server.process.onKill(() => cluster.restartServer(server.slot));
  server.process.run(() => server.shutdown());
}

function kill({ server }: Part, cluster: Cluster): void {
  cluster.network.count('kill a server');
  cluster.restartServer(server.slot);
  server.process.kill();
}

/** @param strike is called once, some events after the run has come to some round, with those that have a standby */
async function struck(
  seed: number,
  mode: 'sync' | 'async' | 'ssp',
  strike: (leading: readonly Part[], cluster: Cluster, random: Random) => void,
): Promise<{ result: SeedResult; isStruck: boolean; taken: (row: string) => number }> {
  const random = new Random(seed, MOMENTS);
  const fromRound = random.int(1, 4);
  let events = random.int(0, 60);
  let isStruck = false;
  const arrange = (cluster: Cluster): void => {
    cluster.network.weather = { ...cluster.network.weather, latencyMs: [0.1, 1], bytesPerMs: 10_000 };
    const before = cluster.world.afterEvent;
    cluster.world.afterEvent = () => {
      before();
      if (isStruck || round(cluster) < fromRound) return;
      const leading = cluster.hosted.filter(({ run, over }) => !over && run.place.canHandOver);
      if (leading.length < 2 || events-- > 0) return;
      isStruck = true;
      strike(leading, cluster, random);
    };
  };
  const shape = { servers: 2, standby: 1, rounds: 12, checkpointEveryRounds: 100 } as const;
  const stepMs = [100, 300] as const;
  const result = await simulateSeed({
    seed,
    mode,
    check: 'liveness',
    kinds: [],
    workers: 2,
    shape,
    stepMs,
    items: { nonFinite: 'skip' },
    arrange,
  });
  const tables = result.tables as readonly TakenRows[];
  return { result, isStruck, taken: (row) => tables.reduce((sum, { taken }) => sum + (taken.get(row) ?? 0), 0) };
}

test.each(['sync', 'async', 'ssp'] as const)(
  'mode %s, a primary is told to end: its standby goes on in the same attempt, and nothing is done again',
  { timeout: 360_000 },
  async (mode) => {
    let left = 0;
    for (let seed = 1; seed <= SEEDS; seed++) {
      const { result, taken, isStruck } = await struck(seed, mode, (leading, cluster, random) => shutDown(random.pick(leading), cluster));
      expect(result.violation, `seed ${seed}`).toBeUndefined();
      expect([result.outcome, result.attempts], `seed ${seed}`).toEqual(['SUCCEEDED', 1]);
      expect([taken('left'), taken('promoted') > 0], `seed ${seed}`).toEqual(isStruck ? [1, true] : [0, false]);
      left += taken('left');
    }
    expect(left).toBeGreaterThan(SEEDS / 2); // the others had ended before, or had no standby yet
  },
);

test.each(['sync', 'async', 'ssp'] as const)(
  'mode %s, both primaries are told to end, that of the coordinator last: nothing covers the other any more, and the attempt goes on',
  { timeout: 360_000 },
  async (mode) => {
    let left = 0;
    for (let seed = 1; seed <= SEEDS; seed++) {
      const { result, taken } = await struck(seed, mode, (leading, cluster) => {
        const [first, last] = [1, 0].map((index) => leading.find((part) => part.index === index)!) as [Part, Part];
        const standby = cluster.partOf(1, true)!;
        shutDown(first, cluster);
        when(
          cluster,
          () => standby.run.place.isPrimary && !last.over && last.coordinator!.waitingFor() === null,
          () => shutDown(last, cluster),
        );
      });
      expect(result.violation, `seed ${seed}`).toBeUndefined();
      expect([result.outcome, result.attempts], `seed ${seed}`).toEqual(['SUCCEEDED', 1]);
      left += taken('left');
    }
    expect(left).toBeGreaterThan(SEEDS);
  },
);

test(
  'all servers are told to end: the attempt ends with a checkpoint of its present round, and no standby takes over',
  { timeout: 360_000 },
  async () => {
    let stopped = 0;
    for (let seed = 1; seed <= SEEDS; seed++) {
      const { result, taken } = await struck(seed, 'sync', (_leading, cluster) => {
        for (const part of cluster.hosted.filter(({ over }) => !over)) shutDown(part, cluster);
      });
      expect(result.violation, `seed ${seed}`).toBeUndefined();
      expect([result.outcome, taken('left')], `seed ${seed}`).toEqual(['SUCCEEDED', 0]);
      if (result.attempts === 2) stopped++;
    }
    expect(stopped).toBeGreaterThan(SEEDS / 2);
  },
);

const leaves = (part: Part, cluster: Cluster): void => shutDown(part, cluster);
const diesLater = (part: Part, cluster: Cluster): void => later(cluster, 500, () => kill(part, cluster));
test.each([
  ['sync', 'has left its place to it', leaves, 'DEPOSED'],
  ['sync', 'is killed half a second later', diesLater, 'PAIRED'],
  ['async', 'has left its place to it', leaves, 'DEPOSED'],
] as const)(
  'mode %s, a standby is told to end too, and its primary %s: it is promoted all the same, and the attempt ends with a checkpoint',
  { timeout: 360_000 },
  async (mode, _, begin, state) => {
    let stopped = 0;
    for (let seed = 1; seed <= SEEDS; seed++) {
      let failed: readonly object[] = [];
      const { result } = await struck(seed, mode, (leading, cluster, random) => {
        const part = random.pick(leading);
        const standby = cluster.partOf(part.index, true)!;
        begin(part, cluster);
        when(
          cluster,
          () => part.run.place.replication!.table.state === state,
          () => shutDown(standby, cluster),
        );
        when(
          cluster,
          () => cluster.control.attempt === 2,
          () => (failed = events(cluster, 'run.failed').map(({ data }) => data)),
        );
      });
      expect(result.violation, `seed ${seed}`).toBeUndefined();
      expect(result.outcome, `seed ${seed}`).toBe('SUCCEEDED');
      if (failed.length === 0) continue; // it had no standby yet, or was over before
      const [{ round: ended, newest }] = failed as [{ round: number; newest: number }];
      expect(failed, `seed ${seed}`).toMatchObject([{ cause: 'STOPPED', redone: 0 }]);
      expect([ended, newest > 0], `seed ${seed}`).toEqual([newest, true]);
      stopped++;
    }
    expect(stopped).toBeGreaterThan(SEEDS / 2);
  },
);
