/** Plan two-phase with standbys: a primary is lost when its standby has a part of the chunks of a round that is decided. */
import { Shard } from '@paceline/exchange';
import { expect, test } from 'vitest';
import { events, killServer, later, play, round, when } from './arranged.fixture.js';
import type { Cluster } from '../cluster.js';
import { STREAMING } from '../run/gradient-shape.js';
import type { Part } from '../actors/part.js';
import type { SeedOptions } from '../simulate.js';

const chunks = Array.from({ length: 12 }, () => ({ length: 40, section: 'trainable' as const }));
const shape = {
  chunks,
  servers: 2,
  replicas: 4,
  rounds: 8,
  examples: 64,
  globalBatch: 8,
  evalExamples: 0,
  checkpointEveryRounds: 0,
  standby: 1,
  gradient: { ...STREAMING, clipGlobalNorm: 0.5 },
} as const;
const base: SeedOptions = { seed: 3, check: 'liveness', kinds: [], stepMs: [20, 60], workers: 2, shape };

const standby = (cluster: Cluster, index: number): Part | undefined =>
  cluster.hosted.find((part) => part.index === index && part.isStandby);

/** How many chunks of the present round a standby has applied. */
const applied = ({ shard }: Part): number => {
  const { chunks: own, generations } = (shard as Shard)['present'];
  return own.filter(({ place }) => generations.next(place) !== undefined).length;
};

/** Loses these primaries with their hosts as the standby of `index` has some chunks of a round: what is on its way to a standby goes lost too. */
async function lostHalfWay(index: number, lost: readonly number[]) {
  let had = 0;
  const played = await play(base, (made) => {
    made.network.weather = { ...made.network.weather, bytesPerMs: 20, windowBytes: 500, spikes: 0, cuts: 1 };
    when(
      made,
      () => {
        const part = standby(made, index);
        return round(made) >= 3 && part !== undefined && applied(part) > 0 && applied(part) < part.memory.chunks.length;
      },
      () => {
        had = applied(standby(made, index)!);
        made.network.count('kill a server');
        for (const each of lost) {
          made.network.block(made.partOf(each)!.server.process.host, standby(made, each)!.server.process.host);
          killServer(made, each);
        }
      },
    );
  });
  expect(had).toBeGreaterThan(0);
  return played;
}

test.each([
  [0, [0]],
  [1, [1]],
  [0, [0, 1]],
  [1, [0, 1]],
])(
  'the standby of shard %i has a part, and the primaries %j are lost: the rest is gathered, and applied as decided',
  async (index, lost) => {
    const { result, cluster } = await lostHalfWay(index, lost);
    for (const each of lost) expect(standby(cluster, each)!.shard.term).toBeGreaterThan(1);
    expect({ outcome: result.outcome, attempts: result.attempts }).toEqual({ outcome: 'SUCCEEDED', attempts: 1 });
    expect(events(cluster, 'round.stalled')).toEqual([]);
  },
);

test('what the control plane has not stored is counted again by the coordinator that takes over, without the round that was left out', async () => {
  const skipping = { ...base, shape: { ...shape, gradient: { ...STREAMING, nonFinite: 'skip' as const } } };
  const { result, cluster } = await play(skipping, (made) => {
    made.run.spoiled.set('3/1', { element: 3, value: Number.NaN });
    when(
      made,
      () => round(made) >= 3,
      () => {
        made.redis.goAway();
        later(made, 20_000, () => made.redis.comeBack());
      },
    );
    when(
      made,
      () => round(made) >= 6,
      () => {
        made.network.count('kill a server');
        killServer(made, 0);
      },
    );
  });
  expect({ outcome: result.outcome, attempts: result.attempts }).toEqual({ outcome: 'SUCCEEDED', attempts: 1 });
  expect(events(cluster, 'standby.promoted')).toHaveLength(1);
  expect(events(cluster, 'round.skipped').map(({ data }) => data)).toEqual([{ round: 3, examples: 8 }]);
});
