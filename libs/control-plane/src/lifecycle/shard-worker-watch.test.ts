import { expect, test } from 'vitest';
import { ShardWorkerWatch } from './shard-worker-watch.js';
import { FEWER_AFTER_MS } from './waiting-reason.js';

const workers = (idle: string, busy = '') => [
  ...[...idle].map((id) => ({ id, isIdle: true })),
  ...[...busy].map((id) => ({ id, isIdle: false })),
];

test('counts the most that were there lately, and each worker that has been idle for as long', () => {
  const watch = new ShardWorkerWatch();
  let now = 0;
  const look = (idle: string, busy?: string) => watch.look(workers(idle, busy), now);
  expect(look('ab', 'c')).toEqual({ shardWorkers: 3, shardWorkersLately: 3, shardWorkersIdle: 0 });
  for (now = 1_000; now < FEWER_AFTER_MS; now += 1_000) look(now < 5_000 ? 'ab' : 'a', now < 5_000 ? '' : 'b');
  expect(look('ab')).toEqual({ shardWorkers: 2, shardWorkersLately: 3, shardWorkersIdle: 1 }); // b had work meanwhile
  now += 1_000;
  expect(look('ab')).toMatchObject({ shardWorkersLately: 2, shardWorkersIdle: 1 });
  // Another api has dispatched: what was seen before says nothing.
  now += 6_000;
  expect(look('ab')).toMatchObject({ shardWorkersIdle: 0 });
});
