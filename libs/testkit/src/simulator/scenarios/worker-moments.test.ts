/** A worker that is lost, or loses a connection, at a chosen write, in every mode: others do its part, every gradient counts once, bits are the same. */
import { expect, test } from 'vitest';
import { events, killServer, later, play, round, says, seated, sending, when } from './arranged.fixture.js';
import type { Cluster } from '../cluster.js';
import { holdsData } from '../faults/faults.js';
import { STREAMING } from '../run/gradient-shape.js';
import type { SimWorker } from '../actors/worker.js';
import type { SimStream } from '../world/stream.js';
import type { SeedOptions } from '../simulate.js';
import { RUN_MODES } from '../run/async-run.js';
import { IS_SOAK } from './sweep.fixture.js';

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
    for (const nth of IS_SOAK ? [0, 1, 4, 9] : [1, 9]) {
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

interface Hands extends Partial<SeedOptions> {
  /** With three workers in the sixth round, or whenever it is. */
  readonly at?: (cluster: Cluster) => boolean;
  readonly joining?: number;
}
const coordinatorOf = (cluster: Cluster) => cluster.control.coordinatorPart!.coordinator!;
/** Long enough for links of a second. */
const leave = (worker: SimWorker | undefined): void => worker?.session?.leave('it is to leave', 60_000);

/** Two workers, and a third one, or more, that join in the third round. */
async function handingOn(act: (cluster: Cluster) => void, { at, joining = 1, shape: more, ...options }: Hands = {}) {
  const played = await play(
    { ...base, workers: 2, mode: 'sync', ...options, shape: { ...shape, rounds: 12, codec: KEEPING[0], ...more } },
    (cluster) => {
      when(
        cluster,
        () => round(cluster) === 3,
        () => {
          for (let i = 0; i < joining; i++) cluster.startWorker();
        },
      );
      when(
        cluster,
        () => (at ? at(cluster) : round(cluster) === 6 && seated(cluster).length === 3),
        () => act(cluster),
      );
    },
  );
  expect(played.result).toMatchObject({ outcome: 'SUCCEEDED', attempts: 1 });
  return { ...played, lost: events(played.cluster, 'residual.lost'), handedOn: played.result.fired.get('residual handed on') ?? 0 };
}

test.each(KEEPING)('what $kind has kept of a replica follows it to a worker that joins, and from one that leaves', async (codec) => {
  for (let seed = 1; seed <= 6; seed++) {
    const { cluster, handedOn, lost } = await handingOn((arranged) => leave(seated(arranged)[0]), { seed, shape: { codec } });
    expect(events(cluster, 'worker.left')).toHaveLength(1);
    // Of four replicas on two workers one goes to the third; of those on three at least one comes to the others.
    expect(handedOn).toBeGreaterThanOrEqual(2);
    expect([seed, lost]).toEqual([seed, []]);
  }
});

test.each([
  [
    'it asks again',
    {},
    (cluster: Cluster) =>
      seated(cluster).forEach(
        (worker, i) => i === 0 && [leave(worker), later(cluster, 300, () => leave(worker)), later(cluster, 900, () => leave(worker))],
      ),
  ],
  ['the run is scaled in', {}, (cluster: Cluster) => coordinatorOf(cluster).attendance.setTarget(2)],
  ['every round has a checkpoint', { shape: { checkpointEveryRounds: 1 } }, (cluster: Cluster) => leave(seated(cluster)[0])],
])('what is kept follows from a worker that leaves: %s', async (_, options, act) => {
  for (let seed = 1; seed <= 4; seed++) {
    const { cluster, lost } = await handingOn(act, { seed, ...options });
    expect(events(cluster, 'worker.left').length).toBeGreaterThan(0);
    expect([seed, lost]).toEqual([seed, []]);
  }
});

test('a standby that is promoted as replicas move knows what is handed on', async () => {
  for (let seed = 1; seed <= 3; seed++) {
    let isStruck = false;
    const { lost, handedOn } = await handingOn(() => undefined, {
      seed,
      shape: { standby: 1 },
      at: (cluster) => {
        if (isStruck || round(cluster) < 4 || seated(cluster).length < 3) return false;
        killServer(cluster, 1);
        return (isStruck = true);
      },
    });
    expect(handedOn).toBeGreaterThan(0);
    expect([seed, lost]).toEqual([seed, []]);
  }
});

test('many workers that join at once take what they compute from one', async () => {
  const { lost, handedOn } = await handingOn(() => undefined, {
    workers: 1,
    joining: 19,
    at: () => false,
    shape: { replicas: 20, globalBatch: 20 },
  });
  expect(handedOn).toBeGreaterThanOrEqual(19);
  expect(lost).toEqual([]);
});

test('a worker that leaves gets no replicas of one that is lost meanwhile', async () => {
  const { cluster } = await handingOn((arranged) => {
    const [leaver, , other] = seated(arranged);
    const before = round(arranged);
    leave(leaver);
    when(
      arranged,
      () => round(arranged) > before,
      () => other!.process.kill(),
    );
  });
  const given = events(cluster, 'view.changed').flatMap(({ data }) => data['members'] as { id: string; replicas: number[] }[]);
  const ofLeaver = given.filter(({ id }) => id === 'w0').map(({ replicas }) => replicas.length);
  expect(ofLeaver.slice(ofLeaver.indexOf(0))).not.toContain(3);
});

test('what was kept of a replica is lost with the worker that is killed', async () => {
  const { handedOn, lost } = await handingOn((cluster) => seated(cluster)[0]!.process.kill());
  expect(handedOn).toBeGreaterThan(0);
  expect(lost).toHaveLength(1);
});

/** In the sixth round the last of three workers sends gradients: it is struck so many milliseconds later, once. */
function struck(cluster: Cluster, afterMs: number, strike: (stream: SimStream) => void): void {
  let isStruck = false;
  sending(cluster, (stream, frames) => {
    if (isStruck || round(cluster) !== 6 || !holdsData(frames) || seated(cluster).length < 3) return;
    if (seated(cluster).at(-1)!.process !== stream.process) return;
    isStruck = true;
    later(cluster, afterMs, () => strike(stream));
  });
}

test('what others computed from nothing, and too late to count, is no residual that is handed on in silence', async () => {
  let lost = 0;
  for (let seed = 1; seed <= 8; seed++) {
    // In the sixth round one of three is killed when its gradients are sent: the others compute its replicas beside what counts.
    const { cluster, result } = await play(
      { ...base, seed, mode: 'sync', shape: { ...shape, rounds: 12, codec: KEEPING[0] } },
      (arranged) => {
        struck(arranged, 1, (stream) => stream.process.kill());
      },
    );
    expect(result).toMatchObject({ outcome: 'SUCCEEDED', attempts: 1 });
    const [told] = events(cluster, 'residual.lost')
      .slice(-1)
      .map(({ data }) => Number(data['replicas']));
    const silent = result.fired.get('residual of a gradient that did not count') ?? 0;
    lost += result.fired.get('residual lost') ?? 0;
    expect(silent, `seed ${seed}`).toBeLessThanOrEqual(told ?? 0);
  }
  expect(lost).toBeGreaterThan(0);
});

const EF21 = { ...KEEPING[0], feedbackRule: 'ef21' } as const;

test('with EF21 a connection that breaks for a moment costs no attempt, and a worker that is killed costs one', async () => {
  const attempts = { break: new Set<number>(), kill: new Set<number>() };
  for (const strike of ['break', 'kill'] as const)
    for (let seed = 1; seed <= 3; seed++) {
      // Rounds that last longer than a worker may be away.
      const { result, cluster } = await play(
        { ...base, seed, mode: 'sync', stepMs: [1500, 6000], shape: { ...shape, rounds: 12, codec: EF21 } },
        (arranged) => {
          struck(arranged, 3, (stream) => {
            arranged.network.count(strike === 'kill' ? 'kill a worker' : 'break a connection');
            if (strike === 'kill') stream.process.kill();
            else stream.break();
          });
        },
      );
      expect(result.outcome).toBe('SUCCEEDED');
      expect(events(cluster, 'run.failed').map(({ data }) => data['cause'])).toEqual(result.attempts > 1 ? ['ESTIMATE_LOST'] : []);
      attempts[strike].add(result.attempts);
    }
  expect([...attempts.break]).toEqual([1]);
  expect(attempts.kill).toContain(2);
});

test('with EF21 the last worker leaves when a checkpoint has its estimates, and the next one goes on from there', async () => {
  const { cluster, result } = await play(
    { ...base, workers: 1, mode: 'sync', shape: { ...shape, rounds: 12, checkpointEveryRounds: 0, codec: EF21 } },
    (arranged) => {
      when(
        arranged,
        () => round(arranged) === 6,
        () => {
          arranged.network.count('a worker leaves');
          leave(seated(arranged)[0]);
        },
      );
      when(
        arranged,
        () => events(arranged, 'run.failed').length > 0,
        () => void arranged.startWorker(),
      );
    },
  );
  expect(result).toMatchObject({ outcome: 'SUCCEEDED', attempts: 2 });
  expect(events(cluster, 'run.failed')).toMatchObject([{ data: { cause: 'WORKERS_LEFT', redone: 0 } }]);
});
