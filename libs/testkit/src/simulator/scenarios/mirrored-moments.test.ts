/** Runs whose workers hold the shards (row 12 of the faults): member k is lost at step j of a round, for all k and all j, with a standby and without. */
import { expect, test } from 'vitest';
import type { Cluster } from '../cluster.js';
import { STREAMING } from '../run/gradient-shape.js';
import { always, calm, events, killServer, play, round, seated, sending, when } from './arranged.fixture.js';
import { seeds } from './sweep.fixture.js';

const MEMBERS = 3;
const shape = {
  isMirrored: true,
  servers: MEMBERS,
  chunks: [5, 3, 4].map((length) => ({ length, section: 'trainable' as const })),
  replicas: 4,
  rounds: 5,
  examples: 60,
  globalBatch: 12,
  evalExamples: 0,
  checkpointEveryRounds: 1,
  gradient: STREAMING,
} as const;
/** The round in which it is lost, the second after a checkpoint. */
const ROUND = 2;

/** The member with shard k is killed at its write number j of the round, before it leaves. @returns false when the round has fewer writes */
async function killedAt(member: number, step: number, standby: 0 | 1): Promise<boolean> {
  let writes = 0;
  let isStruck = false;
  const options = { seed: 3, check: 'liveness', kinds: [], stepMs: [20, 60], workers: MEMBERS, apis: 1 } as const;
  const { result, cluster } = await play({ ...options, shape: { ...shape, standby } }, (made: Cluster) =>
    sending(made, (stream) => {
      if (isStruck || round(made) !== ROUND || stream.process !== made.serverOf(member)?.process || writes++ < step) return;
      isStruck = true;
      made.network.count('kill a worker');
      made.network.count('kill a server');
      killServer(made, member);
    }),
  );
  // Nobody hangs: the others form a view without it, or the next attempt begins with the checkpoint. Bits are looked at after every event.
  expect([member, step, result.outcome]).toEqual([member, step, 'SUCCEEDED']);
  expect([member, step, result.attempts]).toEqual([member, step, isStruck && standby === 0 ? 2 : 1]);
  if (isStruck && standby > 0) {
    const promoted = events(cluster, 'standby.promoted').map(({ data }) => data['server']);
    expect([member, step, promoted]).toEqual([member, step, [member]]);
  }
  return isStruck;
}

/** Every step in the soak; in the suite every ninth, each member from another one on. */
const STRIDE = seeds(9, 1);

test.each([
  ['without standbys', 0],
  ['with standbys', 1],
] as const)(
  '12: member k is killed at step j of a round, %s: the run ends with the same bits',
  { timeout: 300_000 },
  async (_, standby) => {
    for (let member = 0; member < MEMBERS; member++) {
      let step = (3 * member) % STRIDE;
      while (await killedAt(member, step, standby)) step += STRIDE;
      expect(step).toBeGreaterThanOrEqual(STRIDE);
    }
  },
);

test('a worker that is lost with its shard before the first round is not waited for: the others begin, as soon as the standby leads', async () => {
  const options = { seed: 3, check: 'liveness', kinds: [], stepMs: [20, 60], workers: MEMBERS, apis: 1 } as const;
  for (const member of [0, 1, 2]) {
    let waited: string | null = null;
    const { result, cluster } = await play({ ...options, shape: { ...shape, standby: 1 } }, (made: Cluster) => {
      const primaries = () => made.hosted.filter(({ isStandby }) => !isStandby);
      when(
        made,
        () => primaries().filter(({ run }) => run.place.canHandOver).length === MEMBERS && made.coordinatorPart!.coordinator !== undefined,
        () => {
          waited = made.coordinatorPart!.coordinator!.waitingFor();
          made.network.count('kill a worker');
          made.network.count('kill a server');
          // It does not come again: nobody sits down in its place.
          made.serverOf(member)!.process.kill();
        },
      );
    });
    expect([member, waited]).toEqual([
      member,
      expect.stringMatching(/servers? .*to connect|more workers? to take a step task: it begins with 3/u),
    ]);
    expect([member, result.outcome, result.attempts]).toEqual([member, 'SUCCEEDED', 1]);
    expect(events(cluster, 'training.started').map(({ data }) => data['workers'])).toEqual(member === 0 ? [] : [2]);
  }
});

test.each([
  ['without standbys', 0],
  ['with standbys', 1],
] as const)('other workers, more or fewer, hold the shards, %s: each time from a checkpoint, with the same bits', async (_, standby) => {
  const seen: number[] = [];
  const options = { seed: 3, check: 'liveness', kinds: [], stepMs: [20, 60], workers: 4, apis: 1 } as const;
  const { result, cluster } = await play({ ...options, shape: { ...shape, standby, rounds: 30, examples: 360 } }, (made: Cluster) => {
    calm(made);
    always(made, () => {
      const wanted = [3, 2, 4][seen.length];
      // An attempt that is not known to train is stopped at once, and writes no checkpoint.
      const isDue = made.control.status === 'RUNNING' && round(made) >= 8 * seen.length + 2;
      if (wanted === undefined || seated(made).length !== wanted || !isDue) return;
      seen.push(wanted);
      const next = [2, 4][seen.length - 1];
      if (next !== undefined) made.control.scale(next);
    });
  });
  expect(seen).toEqual([3, 2, 4]);
  expect(result).toMatchObject({ outcome: 'SUCCEEDED', attempts: 3 });
  expect(events(cluster, 'worker.lost')).toEqual([]);
  // The checkpoint is that of the round in which it was asked for.
  expect(events(cluster, 'run.paused').map(({ data }) => data['redone'])).toEqual([0, 0]);
});

test('a run that waits for a worker that does not come goes on with those that are there, when somebody says so', async () => {
  const options = { seed: 3, check: 'liveness', kinds: [], stepMs: [20, 60], workers: 2, apis: 1 } as const;
  let waits = '';
  const { result } = await play({ ...options, shape }, (made: Cluster) =>
    when(
      made,
      () => made.control.status === 'QUEUED' && made.control.reason.includes('workers'),
      () => {
        waits = made.control.reason;
        made.control.scale(2);
      },
    ),
  );
  expect(waits).toMatch(/waits for/u);
  expect(result).toMatchObject({ outcome: 'SUCCEEDED', attempts: 2 });
});

test('with minWorkers a run goes on with fewer when a worker is gone for long', async () => {
  const options = { seed: 3, check: 'liveness', kinds: [], stepMs: [20, 60], workers: MEMBERS, apis: 1 } as const;
  const { result, cluster } = await play({ ...options, shape: { ...shape, standby: 0, minWorkers: 2 } }, (made: Cluster) =>
    when(
      made,
      () => round(made) === ROUND && seated(made).length === MEMBERS,
      () => {
        made.network.count('kill a worker');
        made.network.count('kill a server');
        // Nobody starts it again.
        made.serverOf(1)!.process.kill();
      },
    ),
  );
  expect(result.outcome).toBe('SUCCEEDED');
  const asked = cluster.postgres.rows.events.values().filter(({ type }) => type === 'scale.wanted');
  expect(asked.map(({ message }) => message)).toEqual(['2 workers instead of 3: only 2 are connected (minWorkers 2)']);
  expect(seated(cluster)).toHaveLength(2);
});

test('with maxWorkers a run that has trained for a minute takes workers that are spare, once, with the same bits', async () => {
  const options = { seed: 3, check: 'liveness', kinds: [], stepMs: [900, 1000], workers: 4, apis: 1 } as const;
  const long = { ...shape, servers: 2, standby: 0, minWorkers: 2, maxWorkers: 4, rounds: 45, examples: 540 } as const;
  const sizes: number[] = [];
  const { result, cluster } = await play({ ...options, shape: long }, (made: Cluster) =>
    always(made, () => {
      const size = seated(made).length;
      if (made.control.status === 'RUNNING' && size >= 2 && size !== sizes.at(-1)) sizes.push(size);
    }),
  );
  expect(result).toMatchObject({ outcome: 'SUCCEEDED', attempts: 2 });
  const asked = cluster.postgres.rows.events.values().filter(({ type }) => type === 'scale.wanted');
  expect(asked.map(({ message }) => message)).toEqual(['4 workers instead of 2: 2 more have nothing to do (maxWorkers 4)']);
  expect(events(cluster, 'run.paused').map(({ data }) => data['redone'])).toEqual([0]);
  expect([sizes[0], sizes.at(-1)]).toEqual([2, 4]);
});

test(
  'other workers, more or fewer, while processes die and stores are away: the run ends with the same bits',
  { timeout: 300_000 },
  async () => {
    let changes = 0;
    for (let seed = 1; seed <= seeds(2, 200); seed++) {
      const standby = seed % 2 === 0 ? 1 : 0;
      const kinds = ['kill a worker', 'kill an api', 'stop an api', 'Redis away', 'flush Redis', 'PostgreSQL away'] as const;
      const options = { seed, check: 'liveness', kinds, stepMs: [20, 60], workers: MEMBERS, apis: 2 } as const;
      const { result, cluster } = await play({ ...options, shape: { ...shape, standby, rounds: 60, examples: 720 } }, (made: Cluster) => {
        const { random } = made.world;
        for (const at of [5, 6, 20, 35])
          when(
            made,
            () => round(made) >= at,
            () => made.control.scale(random.int(1 + standby, MEMBERS)),
          );
      });
      expect([seed, result.outcome]).toEqual([seed, 'SUCCEEDED']);
      changes += cluster.postgres.rows.events.values().filter(({ type }) => type === 'scale.wanted').length;
    }
    expect(changes).toBeGreaterThan(0);
  },
);
