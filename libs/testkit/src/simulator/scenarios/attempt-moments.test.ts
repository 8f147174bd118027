/** Chosen moments of an attempt, in every mode: workers that come, go, hang or miscount, checkpoints, pauses, servers that fall silent. */
import { expect, test } from 'vitest';
import { always, calm, events, later, play, round, says, seated, sending, when } from './arranged.fixture.js';
import type { Cluster } from '../cluster.js';
import { STREAMING } from '../run/gradient-shape.js';
import type { SeedOptions } from '../simulate.js';
import { RUN_MODES } from '../run/async-run.js';

const shape = {
  servers: 2,
  replicas: 4,
  rounds: 12,
  examples: 64,
  globalBatch: 8,
  evalExamples: 0,
  checkpointEveryRounds: 0,
  standby: 0,
  gradient: STREAMING,
} as const;
const base: SeedOptions = {
  seed: 1,
  check: 'liveness',
  kinds: [],
  stepMs: [20, 60],
  workers: 2,
  shape,
  items: { nanShare: 0, stalenessBound: 2 },
};
const coordinator = (cluster: Cluster) => cluster.control.coordinatorPart?.coordinator;
const messages = (cluster: Cluster, type: string) => events(cluster, type).map(({ message }) => message);

test.each(RUN_MODES)('mode %s: scaled 1 → 4 → 2 → 3 workers while it runs', async (mode) => {
  const seen: number[] = [];
  const { result, cluster } = await play({ ...base, mode, workers: 1, shape: { ...shape, rounds: 60, examples: 480 } }, (cluster) => {
    const steps = [
      () => [1, 2, 3].forEach(() => cluster.startWorker()),
      () => cluster.control.scale(2),
      () => cluster.control.scale(3),
      () => undefined,
    ];
    always(cluster, () => {
      const wanted = [1, 4, 2, 3][seen.length];
      if (wanted === undefined || seated(cluster).length !== wanted || round(cluster) < 4 * seen.length + 2) return;
      const next = steps[seen.length]!;
      seen.push(wanted);
      next();
    });
  });
  expect(seen).toEqual([1, 4, 2, 3]);
  expect(result).toMatchObject({ outcome: 'SUCCEEDED', attempts: 1 });
  expect(events(cluster, 'worker.lost')).toEqual([]);
});

test('scaled below the workers that it is to begin with, before its first round: it says what it waits for, and begins with those that are wanted', async () => {
  const reasons = new Set<string>();
  const { result, cluster } = await play({ ...base, workers: 1, shape: { ...shape, startWorkers: 2 } }, (cluster) => {
    always(cluster, () => reasons.add(cluster.control.reason));
    when(
      cluster,
      () => cluster.control.reason.includes('1 more worker'),
      () => cluster.control.scale(1),
    );
  });
  expect([...reasons]).toContain('waits for 1 more worker to take a step task: it begins with 2');
  expect(events(cluster, 'training.started')).toHaveLength(1);
  expect(result).toMatchObject({ outcome: 'SUCCEEDED', attempts: 1 });
});

test.each(RUN_MODES)('mode %s: the only worker leaves its seat: nothing is computed twice, and the run waits for another', async (mode) => {
  let waited: string | null | undefined;
  const { result, cluster } = await play({ ...base, mode, workers: 1 }, (cluster) => {
    when(
      cluster,
      () => round(cluster) >= 4 && seated(cluster).length === 1,
      () => cluster.workers[0]!.leave(),
    );
    when(
      cluster,
      () => events(cluster, 'worker.left').length === 1,
      () => (waited = coordinator(cluster)!.waitingFor()),
    );
  });
  expect(waited).toBe('a worker to take a step task');
  expect([events(cluster, 'worker.lost'), events(cluster, 'work-item.reissued')]).toEqual([[], []]);
  expect(result).toMatchObject({ outcome: 'SUCCEEDED', attempts: 1 });
});

test.each(RUN_MODES)('mode %s: a compute thread that hangs costs its own worker the seat, and nobody else', async (mode) => {
  const { result, cluster } = await play({ ...base, mode }, (cluster) => {
    when(
      cluster,
      () => round(cluster) >= 2 && seated(cluster).length === 2,
      () => {
        cluster.network.count('hang a compute thread');
        cluster.workers[0]!.hangs = true;
      },
    );
  });
  expect(messages(cluster, 'worker.lost')).toEqual([expect.stringContaining('w0') as string]);
  expect(result).toMatchObject({ outcome: 'SUCCEEDED', attempts: 1 });
});

test.each(['async', 'ssp'] as const)('mode %s: five workers that die over one work item make a poison round, named', async (mode) => {
  const { result } = await play({ ...base, mode, workers: 1, shape: { ...shape, replicas: 1 } }, (cluster) => {
    cluster.mayFail = 'a poison round';
    always(cluster, () => {
      const [worker] = cluster.liveWorkers();
      if (worker?.session?.member.table.state !== 'COMPUTING') return;
      worker.process.kill();
      later(cluster, 500, () => cluster.startWorker());
    });
  });
  expect(result.message).toMatch(
    /^(?!poison).+; replica 0 of round 0 has lost its worker 5 times, each time by this \(a poison round\); the last one was /u,
  );
  expect(result.outcome).toBe('FAILED');
});

test('a socket that breaks again and again in one round makes no poison round', async () => {
  let breaks = 0;
  let brokenMs = 0;
  const { result, cluster } = await play({ ...base, workers: 1, shape: { ...shape, rounds: 3 } }, (cluster) => {
    calm(cluster);
    always(cluster, () => {
      const [worker] = cluster.workers;
      if (round(cluster) === 1 && breaks < 12) worker!.hangs = true;
      const stream = [...cluster.network.streams].find(({ process, isOpen }) => isOpen && process === worker!.process);
      // One that is on its way back gets there: else it might be away for too long, and lost.
      const isAway = coordinator(cluster)?.waitingFor() !== null;
      if (!stream || !worker!.hangs || isAway || cluster.world.nowMs - brokenMs < 500) return;
      brokenMs = cluster.world.nowMs;
      // Both sides hear of it at once: a worker that does so after 3 s has been lost.
      stream.break(0);
      worker!.hangs = ++breaks < 12;
    });
  });
  expect(breaks).toBe(12);
  expect(events(cluster, 'worker.away').length).toBeGreaterThan(4);
  expect(events(cluster, 'worker.lost')).toEqual([]);
  expect(result).toMatchObject({ outcome: 'SUCCEEDED', attempts: 1 });
});

test.each(RUN_MODES)('mode %s: a worker that miscounts its examples is dropped, not believed', async (mode) => {
  let lies = 0;
  const member = (machine: { contribution(...args: [number, number, number, readonly number[]]): void }): void => {
    const tell = machine.contribution.bind(machine);
    machine.contribution = (k, replica, examples, sums) => tell(k, replica, k === 2 && lies++ === 0 ? examples + 1 : examples, sums);
  };
  const { result, cluster } = await play({ ...base, mode, plant: { member, asyncMember: member } }, (cluster) =>
    cluster.network.count('an engine fails'),
  );
  expect(lies).toBeGreaterThan(0);
  expect(messages(cluster, 'worker.lost')).toEqual([expect.stringMatching(/it counted \d examples .*, the schedule says \d/u) as string]);
  expect(result).toMatchObject({ outcome: 'SUCCEEDED', attempts: 1 });
});

test('a run that begins with three workers gives nothing out before, and goes on when one is lost afterwards', async () => {
  const waits: string[] = [];
  const { result } = await play({ ...base, shape: { ...shape, startWorkers: 3 } }, (cluster) => {
    always(cluster, () => {
      if (round(cluster) !== 0 || !coordinator(cluster)) return;
      const wait = coordinator(cluster)!.waitingFor() ?? 'nobody';
      if (wait !== waits.at(-1)) waits.push(wait);
    });
    when(
      cluster,
      () => coordinator(cluster)?.waitingFor()?.startsWith('1 more worker') === true,
      () => {
        expect(cluster.workers.map(({ session }) => session?.member.table.state)).not.toContain('COMPUTING');
        cluster.workers[0]!.process.kill();
        when(
          cluster,
          () => coordinator(cluster)?.waitingFor()?.startsWith('2 more workers') === true,
          () => {
            cluster.startWorker();
            when(
              cluster,
              () => coordinator(cluster)!.waitingFor()?.startsWith('1 more worker') === true,
              () => cluster.startWorker(),
            );
          },
        );
      },
    );
    when(
      cluster,
      () => round(cluster) >= 3,
      () => cluster.workers[3]!.process.kill(),
    );
  });
  expect(waits.join()).toMatch(/1 more worker to take[^,]*,2 more workers to take[^,]*,1 more worker to take[^,]*,nobody$/u);
  expect(result).toMatchObject({ outcome: 'SUCCEEDED', attempts: 1 });
});

test('mixed engines: workers of other fingerprints take part, and the fast one gets more replicas', async () => {
  let replicas: number[] = [];
  const { result } = await play({ ...base, shape: { ...shape, replicas: 8, engine: 'mixed' } }, (cluster) => {
    const { workers } = cluster;
    workers[0]!.engine = { fingerprint: 'tfjs-tensorflow', speed: 3000 };
    workers[1]!.engine = { fingerprint: 'tfjs-wasm', speed: 1000 };
    when(
      cluster,
      () => round(cluster) >= 7,
      () => (replicas = workers.map(({ session }) => session!.member.replicas.length)),
    );
  });
  expect(replicas).toEqual([6, 2]);
  expect(result).toMatchObject({ outcome: 'SUCCEEDED', attempts: 1 });
});

test('a worker of another engine than the run has begun with is refused, and takes nothing from it', async () => {
  const { result, cluster } = await play({ ...base, shape }, ({ workers }) => (workers[1]!.engine = { fingerprint: 'tfjs-wasm' }));
  expect(cluster.refusals.get('FINGERPRINT_MISMATCH')).toBeGreaterThan(0);
  expect(result.outcome).toBe('SUCCEEDED');
});

const withCheckpoints = { ...shape, checkpointEveryRounds: 5 } as const;

test.each(RUN_MODES)('mode %s: checkpoints come every n rounds and at the end, and say so', async (mode) => {
  const { cluster } = await play(
    { ...base, mode, workers: 1, shape: { ...withCheckpoints, examples: 96 } },
    ({ disk }) => (disk.slownessMs = 0.1),
  );
  const written = events(cluster, 'checkpoint.written').map(({ data }) => `${data['round'] as number} ${data['reason'] as string}`);
  // In modes async and ssp what is issued already is waited for.
  expect(written.join()).toMatch(mode === 'sync' ? /^5 cadence,10 cadence,12 final$/u : /^[567] cadence,(?:1[01] cadence,)?12 final$/u);
});

test('a checkpoint that is not written within its deadline is an event, and the run goes on', async () => {
  const { result, cluster } = await play(
    { ...base, stepMs: [1_500, 2_000], shape: { ...withCheckpoints, rounds: 40, examples: 320 } },
    (cluster) => {
      when(
        cluster,
        () => round(cluster) === 1,
        () => (cluster.disk.slownessMs = 200_000),
      );
      when(
        cluster,
        () => events(cluster, 'checkpoint.failed').length > 0,
        () => (cluster.disk.slownessMs = 2),
      );
    },
  );
  expect(messages(cluster, 'checkpoint.failed')[0]).toMatch(/waited \d+ s for parameter server/u);
  expect(result).toMatchObject({ outcome: 'SUCCEEDED', attempts: 1 });
});

test.each(RUN_MODES)(
  'mode %s: a pause whose round does not come ends on the checkpoint before, and says how many rounds are done again',
  async (mode) => {
    const { result, cluster } = await play({ ...base, mode, shape: { ...withCheckpoints, examples: 96 } }, (cluster) => {
      cluster.network.count('hang a compute thread');
      when(
        cluster,
        () => round(cluster) > (cluster.control.checkpoints.at(-1)?.round ?? 99) + 1,
        () => {
          for (const worker of cluster.workers) worker.hangs = true;
          later(cluster, 200, () => cluster.control.pause());
        },
      );
      when(
        cluster,
        () => cluster.control.status === 'PAUSED',
        () => later(cluster, 1_000, () => cluster.control.resume()),
      );
    });
    const [paused] = events(cluster, 'run.paused');
    expect(paused!.data['round']).toBe(cluster.control.attempts[1]!.parentRound);
    expect(paused!.data['redone']).toBeGreaterThan(0);
    expect(result).toMatchObject({ outcome: 'SUCCEEDED', attempts: 2 });
  },
);

function partServers({ network, servers }: Cluster): void {
  network.count('servers lose each other');
  const [one, other] = servers.map(({ process }) => process.host) as [string, string];
  network.block(one, other);
  network.block(other, one);
}

test.each(RUN_MODES)('mode %s: a server that falls silent ends the attempt, named', async (mode) => {
  const { result, cluster } = await play({ ...base, mode, shape: withCheckpoints }, (cluster) =>
    when(
      cluster,
      () => round(cluster) >= 2,
      () => {
        partServers(cluster);
        when(
          cluster,
          () => cluster.control.attempt === 2,
          () => cluster.network.heal(),
        );
      },
    ),
  );
  expect(events(cluster, 'run.failed')).toMatchObject([
    {
      message: expect.stringMatching(/^parameter server 1 was lost in round \d+: nothing heard for \d+ ms$/u) as string,
      data: { cause: 'SERVER_LOST', server: 1 },
    },
  ]);
  expect(result).toMatchObject({ outcome: 'SUCCEEDED', attempts: 2 });
});

test('a server that never connects to the coordinator ends the attempt, named', async () => {
  const { result, cluster } = await play({ ...base, apis: 1 }, (cluster) => {
    const stopped = () => [cluster.serverOf(1)!.process, cluster.apis[0]!.process];
    when(
      cluster,
      () => cluster.coordinatorPart?.run.hasStarted === true,
      () => {
        for (const process of stopped()) process.freeze();
        for (const fault of ['stop a server', 'stop an api']) cluster.network.count(fault);
        later(cluster, 40_000, () => stopped().forEach((process) => process.thaw()));
      },
    );
  });
  expect(messages(cluster, 'run.failed')).toEqual(['waited too long for parameter server 1 to connect to the coordinator']);
  expect(result).toMatchObject({ outcome: 'SUCCEEDED', attempts: 2 });
});

test('parameters that do not come are pulled', async () => {
  let eaten = 0;
  let pulls = 0;
  const { result } = await play({ ...base, workers: 1 }, (cluster) =>
    sending(cluster, (stream, frames) => {
      if (stream.process.name === 'w0' && says(frames, 'pull')) pulls++;
      return (
        round(cluster) >= 3 &&
        stream.process.name.startsWith('ps') &&
        stream.remote === 'w0' &&
        !Buffer.from(frames).includes('"type"') &&
        eaten++ === 0
      );
    }),
  );
  expect([eaten > 0, pulls > 0]).toEqual([true, true]);
  expect(result).toMatchObject({ outcome: 'SUCCEEDED', attempts: 1 });
});
