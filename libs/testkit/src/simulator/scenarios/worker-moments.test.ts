/** A worker that is lost, or loses a connection, at a chosen write, in every mode: others do its part, every gradient counts once, bits are the same. */
import { expect, test } from 'vitest';
import { events, play, round, says, seated, sending, when } from './arranged.fixture.js';
import type { Cluster } from '../cluster.js';
import { holdsData } from '../faults/faults.js';
import { STREAMING } from '../run/gradient-shape.js';
import type { SimWorker } from '../actors/worker.js';
import type { SimStream } from '../world/stream.js';
import type { SeedOptions } from '../simulate.js';
import { RUN_MODES } from '../run/async-run.js';

const shape = {
  servers: 2,
  replicas: 4,
  rounds: 6,
  examples: 64,
  globalBatch: 8,
  evalExamples: 800,
  checkpointEveryRounds: 0,
  standby: 0,
  gradient: STREAMING,
} as const;
const base: SeedOptions = {
  seed: 1,
  check: 'liveness',
  kinds: [],
  stepMs: [20, 60],
  workers: 3,
  shape,
  items: { nanShare: 0, stalenessBound: 2 },
};

const STRIKES = {
  'is killed before it leaves': ({ process }: SimStream) => process.kill(),
  'is killed after it': ({ process }: SimStream, cluster: Cluster) => void cluster.world.schedule(0, 'arranged', () => process.kill()),
  'loses that connection': (stream: SimStream) => stream.break(),
};

const cases = [
  ...RUN_MODES.map((mode) => ({ mode, plan: STREAMING })),
  { mode: 'sync' as const, plan: { ...STREAMING, clipGlobalNorm: 0.5 } },
];
for (const [how, strike] of Object.entries(STRIKES))
  test.each(cases)(`mode $mode, $plan: a worker sends a gradient and ${how}`, async ({ mode, plan }) => {
    for (const nth of [0, 1, 4, 9]) {
      let writes = 0;
      const { result } = await play({ ...base, mode, shape: { ...shape, gradient: plan } }, (cluster) =>
        sending(cluster, (stream, frames) => {
          if (stream.process.name === 'w0' && holdsData(frames) && writes++ === nth) strike(stream, cluster);
        }),
      );
      expect(writes).toBeGreaterThan(nth);
      expect(result).toMatchObject({ outcome: 'SUCCEEDED', attempts: 1 });
    }
  });

test.each(RUN_MODES)(
  'mode %s: a worker is killed, or loses its connection, when it has measured: its blocks are measured again',
  async (mode) => {
    for (const strike of Object.values(STRIKES)) {
      let writes = 0;
      const { result, cluster } = await play({ ...base, mode }, (cluster) =>
        sending(cluster, (stream, frames) => {
          if (says(frames, 'evaluated') && writes++ === 0) strike(stream, cluster);
        }),
      );
      expect(result).toMatchObject({ outcome: 'SUCCEEDED', attempts: 1 });
      expect(events(cluster, 'run.finished')[0]!.data['values']).toHaveProperty('loss');
    }
  },
);

const KEEPING = [
  { kind: 'top-k', density: 0.25, errorFeedback: true },
  { kind: 'power-sgd', rank: 1, errorFeedback: false },
] as const;

/** One worker joins in the third round, and one of those that were there leaves in the sixth, or is killed. */
async function joinedAndLeft(seed: number, codec: (typeof KEEPING)[number], end: (worker: SimWorker) => void) {
  const played = await play(
    { ...base, seed, workers: 2, mode: 'sync', shape: { ...shape, rounds: 12, validation: undefined, codec } },
    (cluster) => {
      when(
        cluster,
        () => round(cluster) === 3,
        () => void cluster.startWorker(),
      );
      when(
        cluster,
        () => round(cluster) === 6 && seated(cluster).length === 3,
        () => end(seated(cluster)[0]!),
      );
    },
  );
  expect(played.result).toMatchObject({ outcome: 'SUCCEEDED', attempts: 1 });
  return { ...played, lost: events(played.cluster, 'residual.lost'), handedOn: played.result.fired.get('residual handed on') ?? 0 };
}

test.each(KEEPING)('what $kind has kept of a replica follows it to a worker that joins, and from one that leaves', async (codec) => {
  for (let seed = 1; seed <= 6; seed++) {
    const { cluster, handedOn, lost } = await joinedAndLeft(seed, codec, (worker) => worker.leave());
    expect(events(cluster, 'worker.left')).toHaveLength(1);
    // Of four replicas on two workers one goes to the third; of those on three at least one comes to the others.
    expect(handedOn).toBeGreaterThanOrEqual(2);
    expect(lost).toEqual([]);
  }
});

test('what was kept of a replica is lost with the worker that is killed', async () => {
  const { handedOn, lost } = await joinedAndLeft(1, KEEPING[0], (worker) => worker.process.kill());
  expect(handedOn).toBeGreaterThan(0);
  expect(lost).toHaveLength(1);
});
