/** A coordinator that loses its standby, or Redis too, each case placed by hand: its standby is promoted, and nobody hears anything else of it. */
import { expect, test, vi } from 'vitest';
import type { WeightsFile } from '@paceline/hosting';
import { always, events, later, play, round, when, type Played } from './arranged.fixture.js';
import type { Cluster } from '../cluster.js';
import { STREAMING } from '../run/gradient-shape.js';
import type { Part } from '../actors/part.js';
import { HolderPlace } from '../actors/server.js';

const shape = {
  servers: 2,
  replicas: 4,
  rounds: 20,
  evalExamples: 400,
  checkpointEveryRounds: 2,
  standby: 1,
  gradient: STREAMING,
} as const;

const playRun = (arrange: (cluster: Cluster) => void, seed = 2): Promise<Played> =>
  play({ seed, check: 'liveness', kinds: [], stepMs: [20, 60], workers: 2, shape }, arrange);

const isIn = (cluster: Cluster, state: string): boolean => cluster.control.coordinatorPart?.coordinator?.table.state === state;

/** The first coordinator loses its standby, and both notice; everything is whole again after 10 s, or so long. */
function cutFromStandby(
  cluster: Cluster,
  more: 'with Redis' | 'with Redis until the standby leads' | 'with Redis, and so does its standby',
  forMs = 10_000,
): Part {
  const { network, hosted, world } = cluster;
  const part = hosted.find(({ index, isStandby }) => index === 0 && !isStandby)!;
  const { host } = part.server.process;
  const standby = hosted.find(({ index, isStandby }) => index === 0 && isStandby)!;
  const other = standby.server.process.host;
  network.block(host, other);
  network.block(other, host);
  network.count('servers lose each other');
  network.block(host, 'redis');
  if (more === 'with Redis until the standby leads')
    when(
      cluster,
      () => standby.run.place.standby!.table.state === 'PROMOTED',
      () => network.unblock(host, 'redis'),
    );
  if (more === 'with Redis, and so does its standby') network.block(other, 'redis');
  for (const stream of [...network.streams]) if (stream.process.host === other && stream.remote.startsWith(`${host}/`)) stream.break();
  world.schedule(forMs, 'all hear each other again', () => network.heal());
  return part;
}

test('in the evaluation: it finishes nothing, its standby does, in the same attempt', async () => {
  const { result, cluster } = await playRun((cluster) =>
    when(
      cluster,
      () => isIn(cluster, 'EVALUATING'),
      () => cutFromStandby(cluster, 'with Redis'),
    ),
  );
  expect(cluster.hosted.some(({ coordinator }) => coordinator?.table.taken.has('collected') && coordinator.numbers().term === 1)).toBe(
    true,
  );
  expect(events(cluster, 'standby.promoted')).not.toHaveLength(0);
  expect(result).toMatchObject({ outcome: 'SUCCEEDED', attempts: 1 });
});

test('while it holds its end back a worker dials it again: it is told to look for the standby, and keeps its seat', async () => {
  let refused: ReadonlyMap<string, number> | undefined;
  const { result, cluster } = await playRun((cluster) =>
    when(
      cluster,
      () => isIn(cluster, 'EVALUATING'),
      () => {
        const { network } = cluster;
        const part = cutFromStandby(cluster, 'with Redis, and so does its standby');
        when(
          cluster,
          () => part.run.coordinator!.holdsEnd,
          () => {
            const { name } = part.server.process;
            for (const stream of [...network.streams]) if (stream.process.name === name && /^w\d/u.test(stream.remote)) stream.break();
            later(cluster, 2_000, () => (refused = new Map(cluster.refusals)));
            later(cluster, 3_000, () => network.unblock(cluster.serverOf(0, true)!.process.host, 'redis'));
          },
        );
      },
    ),
  );
  expect(refused?.get('NOT_PRIMARY')).toBeGreaterThan(0);
  expect(refused?.get('RUN_OVER')).toBeUndefined();
  expect(events(cluster, 'standby.promoted')).not.toHaveLength(0);
  expect(result).toMatchObject({ outcome: 'SUCCEEDED', attempts: 1 });
});

test('it is told to end: nobody hears that the attempt is over, and its standby, which was promoted, goes on', async () => {
  let isHeld = false;
  const { result, cluster } = await playRun((cluster) =>
    when(
      cluster,
      () => round(cluster) >= 4,
      () => {
        const part = cutFromStandby(cluster, 'with Redis');
        const { server } = part;
        later(cluster, 500, () => server.process.run(() => server.shutdown()));
        always(cluster, () => (isHeld ||= part.run.coordinator!.holdsEnd));
      },
    ),
  );
  expect(isHeld).toBe(true);
  expect(events(cluster, 'standby.promoted')).not.toHaveLength(0);
  expect(result).toMatchObject({ outcome: 'SUCCEEDED', attempts: 1 });
});

test('it hears that it was replaced: the other servers are with its successor at once', async () => {
  let deposedMs = 0;
  let backMs = 0;
  const { result } = await playRun((cluster) =>
    when(
      cluster,
      () => round(cluster) >= 4,
      () => {
        const part = cutFromStandby(cluster, 'with Redis until the standby leads');
        when(
          cluster,
          () => part.run.place.replication!.table.state === 'DEPOSED',
          () => (deposedMs = cluster.world.nowMs),
        );
        when(
          cluster,
          () => cluster.control.coordinatorPart !== part && cluster.control.coordinatorPart?.coordinator?.waitingFor() === null,
          () => (backMs = cluster.world.nowMs),
        );
      },
    ),
  );
  expect(deposedMs).toBeGreaterThan(0);
  expect(backMs - deposedMs).toBeLessThan(1_000);
  expect(result).toMatchObject({ outcome: 'SUCCEEDED', attempts: 1 });
});

test('its standby asks, and nobody answers for 400 s: it gives its place up after 330 s, and the next attempt finds it free', async () => {
  let leftMs = 0;
  const { result, cluster } = await playRun((cluster) =>
    when(
      cluster,
      () => round(cluster) >= 4,
      () => {
        cutFromStandby(cluster, 'with Redis, and so does its standby', 400_000);
        const standby = cluster.hosted.find(({ index, isStandby }) => index === 0 && isStandby)!;
        const { nowMs } = cluster.world;
        when(
          cluster,
          () => standby.run.isOver,
          () => (leftMs = cluster.world.nowMs - nowMs),
        );
      },
    ),
  );
  const standby = cluster.hosted.find(({ index, isStandby }) => index === 0 && isStandby)!;
  expect(standby.run.place.standby!.table.taken.has('unanswered')).toBe(true);
  expect(leftMs).toBeGreaterThan(330_000);
  expect(leftMs).toBeLessThan(345_000);
  const servesNext = ({ run, server }: Part): boolean => run.job.attempt === 2 && server === standby.server;
  expect(cluster.hosted.some(servesNext)).toBe(true);
  expect(result).toMatchObject({ outcome: 'SUCCEEDED', attempts: 2 });
});

test('while it collects the weights: it gives its file up, and holds nothing any more', async () => {
  const files: string[] = [];
  const weights = Reflect.get(HolderPlace.prototype, 'weights') as (this: HolderPlace) => WeightsFile;
  const spy = vi.spyOn(HolderPlace.prototype as unknown as { weights(): WeightsFile }, 'weights').mockImplementation(function (
    this: HolderPlace,
  ) {
    const file = weights.call(this);
    const { isStandby } = this.hosted!;
    const note = (end: 'finish' | 'abort') => (): Promise<void> => {
      files.push(`${isStandby ? 'standby' : 'primary'} ${end}`);
      return file[end]();
    };
    return { ...file, finish: note('finish'), abort: note('abort') };
  });
  const { result } = await playRun((cluster) =>
    when(
      cluster,
      () => isIn(cluster, 'COLLECTING'),
      () => {
        // What it waits for does not come.
        cluster.network.block(
          cluster.serverOf(1)!.process.host,
          cutFromStandby(cluster, 'with Redis until the standby leads').server.process.host,
        );
      },
    ),
  );
  spy.mockRestore();
  expect(files.sort()).toEqual(['primary abort', 'standby finish']);
  expect(result).toMatchObject({ outcome: 'SUCCEEDED', attempts: 1 });
});
