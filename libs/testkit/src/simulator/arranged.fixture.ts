/** For tests that place faults by hand: acting at a chosen moment of a simulated run, and looking into what it was. */
import { expect } from 'vitest';
import type { Cluster } from './cluster.js';
import { simulateSeed, type SeedOptions, type SeedResult } from './simulate.js';

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

export const later = (cluster: Cluster, ms: number, act: () => void): void => void cluster.world.schedule(ms, 'arranged', act);

/** That the present coordinator is in; 0 while there is none. */
export const round = (cluster: Cluster): number => cluster.control.coordinatorPart?.coordinator?.round ?? 0;

/** Of this type, as they are stored without a gap. */
export const events = (cluster: Cluster, type: string) =>
  cluster.control.journal.flatMap((entry) => (entry.kind === 'event' && entry.type === type ? [entry] : []));
