/** Modes async and ssp with standbys: a primary is killed, or stopped, at a moment that the seed draws, and the attempt goes on. */
import { expect, test } from 'vitest';
import type { Cluster } from '../cluster.js';
import type { TakenRows } from '../checks/checks.js';
import type { Part } from '../actors/part.js';
import { Random } from '../world/random.js';
import { simulateSeed, type SeedResult } from '../simulate.js';
import { seeds } from './sweep.fixture.js';

const MOMENTS = 999;
const KILLS = seeds(7, 120);
const STOPS = seeds(5, 60);

interface Struck {
  readonly result: SeedResult;
  /** Index of the shard that lost its primary; undefined when the run was over before. */
  readonly index: number | undefined;
  taken(row: string): number;
}

/** One primary is struck some events after some work items are counted. */
async function struck(seed: number, mode: 'async' | 'ssp', strike: (part: Part, cluster: Cluster) => void): Promise<Struck> {
  const random = new Random(seed, MOMENTS);
  const items = { nonFinite: 'skip', ...(random.chance(0.3) ? { nanShare: 0.15, disagree: true } : {}) } as const;
  const fromItems = random.int(0, 40);
  let events = random.int(0, 60);
  let index: number | undefined;
  const arrange = (cluster: Cluster): void => {
    const before = cluster.world.afterEvent;
    cluster.world.afterEvent = () => {
      before();
      const items = cluster.control.coordinatorPart?.items;
      if (index !== undefined || !items) return;
      if (items.marks.count < fromItems || !items.ledger.hasBegun || events-- > 0) return;
      const parts = cluster.hosted.filter(({ run, over }) => !over && run.place.isPrimary);
      const part = random.pick(parts);
      index = part.index;
      strike(part, cluster);
    };
  };
  const shape = { standby: 1, rounds: random.int(5, 14) } as const;
  const result = await simulateSeed({ seed, mode, check: 'liveness', kinds: [], shape, items, arrange });
  const tables = result.tables as readonly TakenRows[];
  return { result, index, taken: (row) => tables.reduce((sum, { taken }) => sum + (taken.get(row) ?? 0), 0) };
}

function kill({ server }: Part, cluster: Cluster): void {
  cluster.network.count('kill a server');
  server.process.kill();
  cluster.restartServer(server.slot);
}

function stopFor(ms: number): (part: Part, cluster: Cluster) => void {
  return ({ server }, cluster) => {
    cluster.network.count('stop a server');
    server.process.freeze();
    cluster.world.schedule(ms, 'it goes on', () => server.process.thaw());
  };
}

for (const mode of ['async', 'ssp'] as const) {
  test(
    `mode ${mode}, a primary is killed: its standby goes on in the same attempt, and nobody has to be asked again`,
    { timeout: 360_000 },
    async () => {
      let takeovers = 0;
      let successors = 0;
      for (let seed = 1; seed <= KILLS; seed++) {
        const { result, taken } = await struck(seed, mode, kill);
        expect([seed, result.violation, result.outcome, result.attempts]).toEqual([seed, undefined, 'SUCCEEDED', 1]);
        expect([seed, taken('askedAgain')]).toEqual([seed, 0]);
        takeovers += taken('serverTakenOver');
        successors += taken('succeeded');
      }
      expect(takeovers).toBeGreaterThan(KILLS / 7);
      expect(successors).toBeGreaterThan(KILLS / 7);
    },
  );

  test(`mode ${mode}, a primary is stopped until it is replaced, and goes on: it changes nothing`, async () => {
    let deposed = 0;
    for (let seed = 1; seed <= STOPS; seed++) {
      const { result, taken } = await struck(seed, mode, stopFor(20_000));
      expect([seed, result.violation, result.outcome, result.attempts]).toEqual([seed, undefined, 'SUCCEEDED', 1]);
      deposed += taken('deposed');
    }
    expect(deposed).toBeGreaterThan(STOPS / 4);
  });
}
