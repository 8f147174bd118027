/** For tests that place faults by hand: acting at a chosen moment of a simulated run, and looking into what it was. */
import { expect } from 'vitest';
import type { Cluster } from '../cluster.js';
import type { TakenRows } from '../checks/checks.js';
import type { SimStream } from '../world/stream.js';
import { simulateSeed, type SeedOptions, type SeedResult } from '../simulate.js';
import type { SimWorker } from '../actors/worker.js';

export interface Played {
  readonly result: SeedResult;
  readonly cluster: Cluster;
}

/** Runs a seed to its end; no invariant may have been broken. @param arrange is told the cluster before its first event */
export async function play(options: SeedOptions, arrange: (cluster: Cluster) => void): Promise<Played> {
  let cluster: Cluster | undefined;
  const result = await simulateSeed({
    ...options,
    arrange: (made) => {
      cluster = made;
      arrange(made);
    },
  });
  expect(result.violation).toBeUndefined();
  return { result, cluster: cluster! };
}

/** Acts after every event. */
export function always(cluster: Cluster, act: () => void): void {
  const before = cluster.world.afterEvent;
  cluster.world.afterEvent = () => {
    before();
    act();
  };
}

/** Acts once, after the first event that makes the condition true. */
export function when(cluster: Cluster, condition: () => boolean, act: () => void): void {
  let done = false;
  always(cluster, () => {
    if (done || !condition()) return;
    done = true;
    act();
  });
}

/** Kills the server process that holds a shard and has it started again, as a supervisor does. */
export function killServer(cluster: Cluster, index: number, isStandby = false): void {
  const { process, slot } = cluster.serverOf(index, isStandby)!;
  process.kill();
  cluster.restartServer(slot);
}

/** Looks at each write of whole frames as it leaves. A process that is killed here sends nothing of it. @param look true: the write gets lost */
export function sending(cluster: Cluster, look: (stream: SimStream, frames: Uint8Array) => boolean | void): void {
  cluster.network.eats = (stream, frames) => look(stream, frames) === true;
}

/** Whether one of these frames is a message of this type. */
export const says = (frames: Uint8Array, type: string): boolean => Buffer.from(frames).includes(`"type":"${type}"`);

/** Workers that have a seat. */
export function seated(cluster: Cluster): SimWorker[] {
  const seats = cluster.coordinatorPart?.coordinator?.seats() ?? [];
  return cluster.liveWorkers().filter(({ id }) => seats.some(({ workerId }) => workerId === id));
}

/** `machine.row` of every row that was taken in these runs. */
export const rowsTaken = (...played: readonly Played[]): Set<string> =>
  new Set(
    played.flatMap(({ result }) =>
      (result.tables as readonly TakenRows[]).flatMap(({ name, taken }) => [...taken.keys()].map((row) => `${name}.${String(row)}`)),
    ),
  );

export const later = (cluster: Cluster, ms: number, act: () => void): void => void cluster.world.schedule(ms, 'arranged', act);

/** The round of the present coordinator; 0 while there is none. */
export const round = (cluster: Cluster): number => cluster.control.coordinatorPart?.coordinator?.round ?? 0;

/** Links without spikes, cuts or narrow windows: for moments that are no matter of the weather, which each seed draws. */
export function calm({ network }: Cluster, bytesPerMs = 10_000): void {
  network.weather = { latencyMs: [0.1, 1], spikes: 0, bytesPerMs, windowBytes: 1_000_000, cuts: 0 };
}

/** Stored events of one type, in order. */
export const events = (cluster: Cluster, type: string) =>
  cluster.control.journal.flatMap((entry) => (entry.kind === 'event' && entry.type === type ? [entry] : []));
