/** When the first rounds of a run with `strategy: auto` are told. */
import { exchangeMeasuresSchema, STRATEGY_MEASURED, type WorkerPace } from '@paceline/protocol';
import { expect, test } from 'vitest';
import { ExchangeMeasuring } from './exchange-measuring.js';
import type { CoordinatedMember } from './membership.js';

const PACE: WorkerPace = { rounds: 8, stepMs: 10, waitMs: 5, latencyMs: 1, nodes: 1, replicas: 2, cores: 4 };
const membersOf = (...ids: string[]) => ids.map((id) => ({ id, replicas: id === 'idle' ? [] : [0] }) as unknown as CoordinatedMember);

test('once, when all that compute have measured enough: the slowest step, the shortest wait, the fewest cores', () => {
  const events: { type: string; data: unknown }[] = [];
  const measuring = new ExchangeMeasuring({ denseBytes: 400, servers: 2 }, { append: (entry: never) => void events.push(entry) } as never);
  const members = membersOf('a', 'b', 'idle');
  measuring.committed(members);
  measuring.heard('a', PACE);
  measuring.heard('b', { ...PACE, rounds: 2 });
  measuring.committed(members);
  expect(events).toEqual([]);
  measuring.heard('b', { ...PACE, stepMs: 30, waitMs: 3, latencyMs: 2, nodes: 2, cores: 2 });
  for (let i = 0; i < 2; i++) measuring.committed(members);
  const data = { stepMs: 30, waitMs: 3, latencyMs: 1, nodes: 2, workers: 2, cores: 2, denseBytes: 400, servers: 2 };
  expect(events).toMatchObject([
    { type: STRATEGY_MEASURED, data, message: '2 workers measured the first rounds for strategy auto: 30 ms step, 3 ms exchange' },
  ]);
  expect(exchangeMeasuresSchema.parse(events[0]!.data)).toEqual(data);
  const named = new ExchangeMeasuring(undefined, { append: () => expect.unreachable() } as never);
  named.heard('a', PACE);
  named.committed(membersOf('a'));
});
