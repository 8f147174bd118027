/** Standbys, mode sync: servers that are lost at chosen writes of a round, both orders of the arbiter's answers, and primaries that come back. */
import { Shard } from '@paceline/exchange';
import { FrameType, type FrameHeader, type MessageOf } from '@paceline/protocol';
import { expect, test } from 'vitest';
import { always, events, killServer, later, play, round, rowsTaken, says, sending, when, type Played } from './arranged.fixture.js';
import type { Cluster } from '../cluster.js';
import { holdsData } from '../faults/faults.js';
import { STREAMING } from '../run/gradient-shape.js';
import type { SimStream } from '../world/stream.js';
import type { Part } from '../actors/part.js';
import type { SeedOptions } from '../simulate.js';

const chunks = [5, 3, 4, 2].map((length, i) => ({ length, section: i < 3 ? ('trainable' as const) : ('state' as const) }));
const shape = {
  chunks,
  servers: 2,
  replicas: 4,
  rounds: 8,
  examples: 64,
  globalBatch: 8,
  evalExamples: 400,
  checkpointEveryRounds: 0,
  standby: 1,
  gradient: STREAMING,
} as const;
const clipped = { ...shape, gradient: { ...STREAMING, clipGlobalNorm: 0.5, nonFinite: 'skip' } } as const;
const base: SeedOptions = { seed: 3, check: 'liveness', kinds: [], stepMs: [20, 60], workers: 2, shape };
const played: Played[] = [];

async function playOn(options: SeedOptions, arrange: (cluster: Cluster) => void): Promise<Played> {
  const one = await play(options, arrange);
  played.push(one);
  expect(one.result).toMatchObject({ outcome: 'SUCCEEDED', attempts: 1 });
  return one;
}

const primary = (cluster: Cluster, index: number): Part => cluster.hosted.find((part) => part.index === index && !part.isStandby)!;
const standby = (cluster: Cluster, index: number): Part => cluster.hosted.find((part) => part.index === index && part.isStandby)!;
/** Whether a stream leads from one process to another. */
const goes = ({ process, remote }: SimStream, from: Part, to?: Part): boolean =>
  process === from.server.process && (!to || remote === to.server.process.name || remote.startsWith(`${to.server.process.host}/`));

type Write = (stream: SimStream, frames: Uint8Array, cluster: Cluster, index: number) => boolean;
const WRITES: Readonly<Record<string, Write>> = {
  'forwards a gradient to its standby': (stream, frames, cluster, index) =>
    goes(stream, primary(cluster, index), standby(cluster, index)) && holdsData(frames),
  'sends new parameters to a worker': (stream, frames, cluster, index) =>
    goes(stream, primary(cluster, index)) && stream.remote.startsWith('w') && holdsData(frames),
  'says REDUCED': (stream, frames, cluster, index) => goes(stream, primary(cluster, index)) && says(frames, 'reduced'),
  'hears that its standby has applied a chunk': (stream, frames, cluster, index) =>
    goes(stream, standby(cluster, index), primary(cluster, index)) && says(frames, 'replicated'),
};
const WRITES_OF_COORDINATOR: typeof WRITES = {
  'tells the first COMMIT': (stream, frames, cluster) => goes(stream, primary(cluster, 0)) && says(frames, 'commit'),
  'has measured, and collects the weights': (stream, frames, cluster) => goes(stream, primary(cluster, 0)) && says(frames, 'pull'),
};
const WRITES_TWO_PHASE: typeof WRITES = {
  ...WRITES,
  'says its scalars': (stream, frames, cluster, index) => goes(stream, primary(cluster, index)) && says(frames, 'scalars'),
  'says DECISION, or hears it': (stream, frames, cluster) => goes(stream, primary(cluster, 0)) && says(frames, 'decision'),
};

/** The primary of a shard is killed at the first such write from round 3 on, before it leaves, or after it. */
async function killedAt(write: Write, index: number, options: SeedOptions): Promise<void> {
  for (const isAfter of [false, true]) {
    let isStruck = false;
    const { cluster } = await playOn(options, (cluster) => {
      cluster.run.spoiled.clear();
      if (options.shape === clipped) cluster.run.spoiled.set('5/1', { element: 0, value: NaN });
      sending(cluster, (stream, frames) => {
        if (isStruck || round(cluster) < 3 || !write(stream, frames, cluster, index)) return;
        isStruck = true;
        cluster.network.count('kill a server');
        if (isAfter) cluster.world.schedule(0, 'arranged', () => killServer(cluster, index));
        else killServer(cluster, index);
      });
    });
    expect(isStruck).toBe(true);
    expect(events(cluster, 'standby.promoted').map(({ data }) => data['server'])).toEqual([index]);
  }
}

for (const index of [0, 1]) {
  test.each(Object.entries({ ...WRITES, ...(index === 0 ? WRITES_OF_COORDINATOR : {}) }))(
    `primary ${index} is killed as it %s`,
    (_, write) => killedAt(write, index, base),
  );
  test.each(Object.entries(WRITES_TWO_PHASE))(`plan two-phase, primary ${index} is killed as it %s`, (_, write) =>
    killedAt(write, index, { ...base, shape: clipped }),
  );
}

test('without a fault nobody is promoted or dropped', async () => {
  const { cluster } = await playOn(base, () => undefined);
  expect([events(cluster, 'standby.ready').length, events(cluster, 'standby.promoted'), events(cluster, 'standby.lost')]).toEqual([
    2,
    [],
    [],
  ]);
});

test('both primaries are killed at once', async () => {
  const { cluster } = await playOn(base, (cluster) =>
    when(
      cluster,
      () => round(cluster) >= 3,
      () => {
        cluster.network.count('kill a server');
        for (const index of [0, 1]) killServer(cluster, index);
      },
    ),
  );
  expect([0, 1].map((index) => standby(cluster, index).shard.term).sort()).toEqual([2, 3]);
});

test('a standby is killed, and its primary cannot ask: nothing is committed until the arbiter has dropped it', async () => {
  const rounds: number[] = [];
  const { cluster } = await playOn(base, (cluster) =>
    when(
      cluster,
      () => round(cluster) >= 3,
      () => {
        const { host } = primary(cluster, 1).server.process;
        cluster.network.count('kill a server');
        cluster.network.block(host, 'redis');
        killServer(cluster, 1, true);
        when(
          cluster,
          () => primary(cluster, 1).run.place.isAsking,
          () => {
            // For less than the 5 s of silence that end the attempt.
            for (const ms of [500, 2_500]) later(cluster, ms, () => rounds.push(round(cluster)));
            later(cluster, 2_500, () =>
              expect(primary(cluster, 1).run.place.waitingFor()).toMatch(/^the arbiter to drop its standby \(its link closed/u),
            );
            later(cluster, 2_600, () => cluster.network.heal());
          },
        );
      },
    ),
  );
  expect(rounds[1]).toBe(rounds[0]);
  expect(events(cluster, 'standby.lost')).toHaveLength(1);
});

test.each(['primary', 'standby'] as const)(
  'the link of both breaks while both live, and the %s is heard first: it leads, the other stops',
  async (winner) => {
    const { cluster } = await playOn(base, (cluster) =>
      when(
        cluster,
        () => round(cluster) >= 3 && primary(cluster, 1).run.place.canHandOver,
        () => {
          const [lead, follower] = [primary(cluster, 1), standby(cluster, 1)];
          cluster.network.count('servers lose each other');
          cluster.network.block((winner === 'primary' ? follower : lead).server.process.host, 'redis');
          for (const stream of [...cluster.network.streams]) if (goes(stream, follower, lead)) stream.break();
          when(
            cluster,
            () => events(cluster, winner === 'primary' ? 'standby.lost' : 'standby.promoted').length > 0,
            () => cluster.network.heal(),
          );
        },
      ),
    );
    expect(standby(cluster, 1).run.place.isPrimary || standby(cluster, 1).coordinator !== undefined).toBe(false);
    expect(rowsTaken(played.at(-1)!)).toContain(winner === 'primary' ? 'replication.dropped' : 'standby.promoted');
  },
);

test.each([0, 1])('primary %d is stopped until it is replaced, and goes on: it changes nothing', async (index) => {
  const { cluster } = await playOn({ ...base, shape: { ...shape, rounds: 20, examples: 160 } }, (cluster) =>
    when(
      cluster,
      () => round(cluster) >= 3,
      () => {
        const { process } = primary(cluster, index).server;
        cluster.network.count('stop a server');
        process.freeze();
        when(
          cluster,
          () => events(cluster, 'standby.promoted').length > 0,
          () => process.thaw(),
        );
      },
    ),
  );
  expect(primary(cluster, index).run.place.replication!.table.state).toBe('DEPOSED');
  expect(
    cluster.hosted
      .filter((part) => part.index === index)
      .map(({ shard }) => shard.term)
      .sort(),
  ).toEqual([1, 2]);
});

/** The coordinator is killed as it hands out the evaluation; by then nobody has written the final checkpoint. */
const lostWhileFinalIsWritten = (options: Partial<SeedOptions> = {}): Promise<Played> =>
  playOn({ ...base, ...options, shape: { ...shape, checkpointEveryRounds: 3, ...options.shape } }, (cluster) => {
    cluster.run.spoiled.clear();
    cluster.disk.slownessMs = 100;
    let isKilled = false;
    sending(cluster, (stream, frames) => {
      if (isKilled || !goes(stream, primary(cluster, 0)) || !says(frames, 'evaluate')) return;
      isKilled = true;
      expect(cluster.control.checkpoints.some(({ round }) => round === shape.rounds)).toBe(false);
      cluster.network.count('kill a server');
      killServer(cluster, 0);
    });
  });

test.each(['sync', 'async'] as const)(
  'mode %s: the coordinator is lost while the final checkpoint is written: its successor has it written',
  async (mode) => {
    const { cluster, result } = await lostWhileFinalIsWritten({ mode, items: { nonFinite: 'skip' } });
    expect(result.fired.get('kill a server')).toBe(1);
    expect(events(cluster, 'checkpoint.written').filter(({ data }) => data['round'] === shape.rounds)).toMatchObject([
      { data: { reason: 'final' } },
    ]);
    expect(events(cluster, 'checkpoint.failed')).toEqual([]);
  },
);

test('the coordinator is lost between the manifest of the final checkpoint and its report: its successor finds it', async () => {
  let wasThere = false;
  const { cluster, result } = await playOn({ ...base, shape: { ...shape, checkpointEveryRounds: 3 } }, (cluster) => {
    cluster.run.spoiled.clear();
    const isThere = () =>
      cluster.disk.present.files().some((file) => file.includes(`-r${shape.rounds}/`) && file.endsWith('manifest.json'));
    when(cluster, isThere, () => {
      wasThere = !cluster.control.checkpoints.some(({ round }) => round === shape.rounds);
      cluster.network.count('kill a server');
      killServer(cluster, 0);
    });
  });
  expect([wasThere, result.outcome]).toEqual([true, 'SUCCEEDED']);
  expect(events(cluster, 'checkpoint.written').filter(({ data }) => data['round'] === shape.rounds)).toHaveLength(1);
  expect(events(cluster, 'checkpoint.failed')).toEqual([]);
  expect(cluster.control.checkpoints.some(({ round }) => round === shape.rounds)).toBe(true);
});

test('the coordinator is lost while the final checkpoint is written that has what a codec keeps: the run ends without it, and says so', async () => {
  const codec = { kind: 'top-k', density: 0.25, errorFeedback: true } as const;
  const { cluster } = await lostWhileFinalIsWritten({ shape: { codec } });
  const newest = cluster.control.checkpoints.at(-1)!.round;
  expect(newest).toBeLessThan(shape.rounds);
  expect(events(cluster, 'checkpoint.failed').map(({ message, data }) => ({ message, data }))).toEqual([
    {
      message: `no checkpoint of round ${shape.rounds}: its coordinator was lost before it was written`,
      data: { round: shape.rounds, newest },
    },
  ]);
});

test('a worker alone has heard COMMIT: all others are told by the successor', async () => {
  let committed: number | undefined;
  const { result } = await playOn(base, (cluster) =>
    sending(cluster, (stream, frames) => {
      const { process } = primary(cluster, 0)?.server ?? {};
      if (!process?.isAlive || stream.process !== process || !says(frames, 'commit') || round(cluster) < 3) return false;
      committed ??= round(cluster);
      if (stream.remote !== 'w0') return true;
      cluster.network.count('kill a server');
      cluster.world.schedule(20, 'arranged', () => killServer(cluster, 0));
      return false;
    }),
  );
  expect(committed).toBeGreaterThanOrEqual(3);
  expect(rowsTaken({ result } as Played)).toContain('coordinator.committedElsewhere');
});

const headerOf = (part: Part, more: Partial<FrameHeader>): FrameHeader => {
  const [chunk] = part.memory.chunks;
  const numbers = { ...part.shard.numbers(), nodeLo: 0, nodeHi: 4, codec: 0, flags: 0, payloadChecksum: 0 };
  return { type: FrameType.gradient, ...numbers, chunk: chunk!.index, length: chunk!.length * 4, ...more };
};

test('a standby refuses older terms and applies nothing twice; a primary has one standby, and workers believe no former primary', async () => {
  let isChecked = false;
  await playOn({ ...base, shape: { ...shape, rounds: 12, examples: 96 } }, (cluster) => {
    when(
      cluster,
      () => round(cluster) >= 3 && primary(cluster, 1).run.place.canHandOver,
      () => {
        const [lead, follower] = [primary(cluster, 1), standby(cluster, 1)];
        const machine = follower.run.place.standby!;
        const before = follower.shard.round;
        expect(() => machine.payloadFor(headerOf(follower, { term: 0 }))).toThrow('STALE_TERM');
        machine.payloadFor(headerOf(follower, { round: before - 1 }));
        machine.data(headerOf(follower, { round: before - 1 }));
        expect(follower.shard.round).toBe(before);
        const [near] = cluster.network.pair(lead.server.process);
        expect(() => lead.run.place.admitStandby(follower.server.process.name, near)).toThrow('SEAT_TAKEN');
        cluster.network.count('kill a server');
        killServer(cluster, 1);
        when(
          cluster,
          () => follower.run.place.isPrimary,
          () => {
            machine.message({ type: 'heartbeat', progress: 0 }, headerOf(follower, { type: FrameType.control }));
          },
        );
        when(
          cluster,
          () => follower.run.place.isPrimary && cluster.workers[0]!.session?.member.table.taken.has('takenOver' as never) === true,
          () => {
            const { member } = cluster.workers[0]!.session!;
            expect(() => member.payloadFor(headerOf(follower, { type: FrameType.parameters, term: 1 }))).toThrow('STALE_TERM');
            isChecked = true;
          },
        );
      },
    );
  });
  expect(isChecked).toBe(true);
});

test('plan two-phase: a standby takes no gradient of a round before its DECISION', async () => {
  const refusals = new Set<string>();
  await playOn({ ...base, shape: clipped }, (cluster) =>
    always(cluster, () => {
      const [lead, follower] = [primary(cluster, 1), standby(cluster, 1)];
      if (lead?.shard.table.state !== 'DECIDING' || !(follower?.shard instanceof Shard) || follower.shard.round !== lead.shard.round)
        return;
      try {
        refusals.add(follower.shard.wantsReplica(headerOf(follower, {})) ? 'none' : 'dropped');
      } catch (error) {
        refusals.add((error as Error).message.replace(/\d+/gu, 'k'));
      }
    }),
  );
  expect([...refusals]).toEqual([expect.stringMatching(/BAD_ROUND.*the DECISION of round k has not come/u)]);
});

test('what was said before changes nothing when it is said again; a parameter chunk that is here is not overwritten', async () => {
  const heard: (MessageOf<'view'> | MessageOf<'commit'>)[] = [];
  const plant = {
    member(machine: { message(server: number, message: { type: string }): void }) {
      const message = machine.message.bind(machine);
      machine.message = (server, said) => {
        if (said.type === 'view' || said.type === 'commit') heard.push(said as (typeof heard)[number]);
        message(server, said);
      };
    },
  };
  const one = await playOn({ ...base, plant: plant as never, shape: { ...clipped, standby: 0 } }, (cluster) =>
    when(
      cluster,
      () => round(cluster) >= 5 && cluster.workers.every(({ session }) => session?.member.table.state === 'READY'),
      () => {
        const shard = primary(cluster, 0).shard as Shard;
        const [{ id, session }] = cluster.workers as [(typeof cluster.workers)[0]];
        const { member } = session!;
        for (const message of heard.slice(0, -4)) {
          member.message(0, message.type === 'view' ? { ...message, view: 0 } : message);
          if (message.type === 'commit') shard.onCommit(message);
        }
        shard['present'].decide({ type: 'decision', round: 1, skip: false, examples: 8, scale: 1, variables: [] });
        (cluster.coordinatorPart!.coordinator as { memberMessage(id: string, message: object): void }).memberMessage(id, {
          type: 'contribution',
          round: 0,
          replica: 0,
          examples: 9,
          sums: [1e9, 0, 9],
        });
        const inUse = (member as unknown as { options: { store: { bytes(generation: number): Uint8Array } } }).options.store.bytes(
          member.round,
        );
        const payload = member.payloadFor(headerOf(primary(cluster, 0), { type: FrameType.parameters, round: member.round, term: 1 }));
        expect(payload.buffer).not.toBe(inUse.buffer);
      },
    ),
  );
  const rows = ['member.viewOld', 'member.commitOld', 'shard.commitRepeated', 'shard.decisionRepeated', 'coordinator.contributionStale'];
  expect([...rowsTaken(one)]).toEqual(expect.arrayContaining(rows));
});

test('rows that seeds seldom take, or cannot, were taken here', () => {
  const rows = [
    'standby.chunkRepeated',
    'standby.staleTerm',
    'standby.late',
    'member.staleTerm',
    'replication.refused',
    'shard.toldAgain',
    'coordinator.committedElsewhere',
  ];
  expect(rows.filter((row) => !rowsTaken(...played).has(row))).toEqual([]);
});
