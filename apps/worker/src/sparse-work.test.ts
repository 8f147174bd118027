/** When the rows of a step are asked for: those of the next batch before the present one is computed, if the loader has read it. */
import { expect, test } from 'vitest';
import { SparseWork } from './sparse-work.js';

const REPLICAS = [0, 1];

/** A worker whose tables hear what is asked for. @param isRead whether the loader has read a batch that was prefetched */
function workerOf(isRead: (round: number) => boolean, totalRounds = 3) {
  const log: string[] = [];
  const here = new Set<number>();
  const prefetched = new Set<number>();
  const work = new SparseWork({
    tables: {
      idsOf: () => new Map(),
      union: () => new Map(),
      has: (round: number) => {
        if (!here.has(round)) log.push(`asks for rows of ${round}`);
        return here.has(round);
      },
      arrived: (round: number) => void here.add(round),
      lay: () => undefined,
      forgetBelow: () => undefined,
    } as never,
    loader: {
      plan: { totalRounds, count: () => 4 },
      take: () => [],
      release: () => undefined,
      forget: () => undefined,
      prefetch: (round: number) => void prefetched.add(round),
      isReady: (round: number) => prefetched.has(round) && isRead(round),
    } as never,
    engine: { load: () => undefined, metricNames: [] } as never,
    vectors: [new Float32Array(1), new Float32Array(1)],
    outputs: { isObsolete: () => false, progress: () => undefined },
    isStopping: () => false,
    send: () => undefined,
  });
  const step = (round: number): void => {
    work.takes({ kind: 'step', round, replicas: REPLICAS, free: [] }, (k) => void log.push(`computes ${k}`));
  };
  const rows = (generation: number): void => {
    work.takes({ kind: 'rows', generation, group: 0, rows: {} as never }, (k) => void log.push(`computes ${k}`));
  };
  return { log, step, rows };
}

test('the rows of the next batch are asked for while the present one computes', () => {
  const { log, step, rows } = workerOf(() => true);
  step(0);
  expect(log).toEqual(['asks for rows of 0']);
  rows(0);
  expect(log.slice(1)).toEqual(['asks for rows of 1', 'computes 0']);
});

test('a batch that is not read by then has its rows asked for behind the gradients; none is asked for after the last round', () => {
  let isRead = false;
  const { log, step, rows } = workerOf(() => isRead, 2);
  step(0);
  rows(0);
  expect(log.slice(1)).toEqual(['computes 0']);
  isRead = true;
  step(1);
  expect(log.slice(2)).toEqual(['asks for rows of 1']);
  rows(1);
  expect(log.slice(3)).toEqual(['computes 1']);
});
