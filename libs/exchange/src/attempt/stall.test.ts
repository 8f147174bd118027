import type { Message } from '@paceline/protocol';
import { expect, test } from 'vitest';
import type { Connection } from '../connection.js';
import { Coordinator } from './coordinator.js';
import { Rounds } from '../sync/rounds.js';
import { StallDetector } from './stall.js';
import { surroundings } from './surroundings.fixture.js';
import { Journal } from './journal.js';

const connection = (): Connection =>
  ({ isOpen: true, queuedBytes: 0, receivedBytes: 0, sendMessage: () => undefined, close: () => undefined }) as unknown as Connection;

/** Two shards with standbys, one worker that has told its contribution and rests: how long the coordinator waits for a shard. */
function endsAfterMs({ done, alone }: { done: number; alone: number | undefined }): number {
  let nowMs = 0;
  let why = '';
  const coordinator = new Coordinator(
    {
      attempt: 1,
      replicas: 1,
      servers: 2,
      evalExamples: 0,
      journal: new Journal({ now: () => nowMs }),
      now: () => nowMs,
      schedule: { totalRounds: 5, examplesIn: () => 4, epochOf: () => 0, replicaExamples: () => 4 },
      surroundings: surroundings((_, message) => void (why = message)),
    },
    Rounds,
  );
  for (const index of [0, 1]) {
    coordinator.serverJoined(index, connection());
    coordinator.serverMessage(index, { type: 'standby-link', up: true, id: `standby-${index}`, why: '' });
  }
  const hello = { type: 'hello', token: '', run: '00000000-0000-4000-8000-000000000001', role: 'worker', id: 'w', host: 'h' } as const;
  const workers = connection();
  let progress = 0;
  const joins = (): void => coordinator.memberJoined({ ...hello, seat: 0, incarnation: 0, fingerprint: 'f', layout: 'l' }, workers);
  joins();
  coordinator.memberMessage('w', { type: 'contribution', round: 0, replica: 0, examples: 4, sums: [4, 2] });
  coordinator.serverMessage(done, { type: 'reduced', round: 0 });
  if (alone !== undefined) coordinator.serverMessage(alone, { type: 'standby-link', up: false, id: null, why: 'it is gone' });
  for (; why === '' && nowMs < 600_000; nowMs += 500) {
    const beat: Message = { type: 'heartbeat', progress: progress++, rests: true };
    for (const index of [0, 1]) coordinator.serverMessage(index, beat);
    if (coordinator.seats().length === 0) joins();
    coordinator.memberMessage('w', beat);
    coordinator.tick();
  }
  expect(why).toMatch(/round 0 stands still: it waits for parameter server/u);
  return nowMs;
}

test.each([
  ['may wait for the arbiter', { done: 1, alone: undefined }, 300_000, 330_000],
  ['has no standby any more', { done: 1, alone: 0 }, 20_000, 30_000],
  ['has one, and another has none', { done: 1, alone: 1 }, 300_000, 330_000],
])('a round stands still at a shard that %s', (_, state, atLeastMs, atMostMs) => {
  const ms = endsAfterMs(state);
  expect(ms).toBeGreaterThan(atLeastMs);
  expect(ms).toBeLessThan(atMostMs);
});

test('time in which nobody looked does not count, and what has counted before it stays', () => {
  let nowMs = 0;
  const detector = new StallDetector(() => nowMs);
  const asks = (ms: number): boolean => ((nowMs += ms), detector.due() === 'ask');
  expect(asks(3_000)).toBe(false);
  nowMs += 2_500;
  detector.skipped(2_500);
  expect(asks(1_900)).toBe(false);
  detector.moved();
  detector.skipped(2_500);
  expect(asks(4_900), 'something has come in between: it counts from now').toBe(false);
  expect(asks(100)).toBe(true);
});

test('work stands still at a coordinator that is often blocked itself: everybody is asked all the same, as late as its ticks', () => {
  const { coordinator, beats } = resting();
  let [lookedMs, nowMs] = [0, 0];
  for (; !coordinator.table.taken.has('askedAgain') && nowMs < 60_000; nowMs += 100) {
    beats(nowMs);
    // After 1.5 s of ticks comes a grace.
    if (nowMs % 4_000 >= 1_500) continue;
    lookedMs += 100;
    coordinator.tick();
  }
  expect(lookedMs).toBeGreaterThanOrEqual(5_000);
  expect(lookedMs).toBeLessThan(6_000);
});

/** A coordinator with one server and two workers, which rest. */
function resting() {
  let ms = 0;
  const coordinator = new Coordinator(
    {
      attempt: 1,
      replicas: 2,
      servers: 1,
      evalExamples: 0,
      journal: new Journal({ now: () => ms }),
      now: () => ms,
      schedule: { totalRounds: 5, examplesIn: () => 4, epochOf: () => 0, replicaExamples: () => 2 },
      surroundings: surroundings(),
    },
    Rounds,
  );
  coordinator.serverJoined(0, connection());
  const hello = { type: 'hello', token: '', run: '00000000-0000-4000-8000-000000000001', role: 'worker', host: 'h' } as const;
  const links = [0, 1].map((seat) => {
    const link = connection();
    coordinator.memberJoined({ ...hello, id: `w${seat}`, seat, incarnation: 0, fingerprint: 'f', layout: 'l' }, link);
    return link;
  });
  /** Heartbeats of all, at this time. */
  const beats = (nowMs: number): void => {
    ms = nowMs;
    coordinator.serverMessage(0, { type: 'heartbeat', progress: 0 });
    if (nowMs % 500 !== 0) return;
    for (const { workerId } of coordinator.seats())
      coordinator.memberMessage(workerId, { type: 'heartbeat', progress: nowMs, rests: true });
  };
  return { coordinator, links, beats };
}

test('who was just given the work of another is not at rest, whatever its last heartbeat said', () => {
  const { coordinator, links, beats } = resting();
  let nowMs = 0;
  const restUntil = (ms: number): void => {
    for (; nowMs <= ms; nowMs += 100) {
      beats(nowMs);
      coordinator.tick();
    }
  };
  restUntil(4_800);
  coordinator.memberClosed('w0', links[0]!, 'it was killed');
  restUntil(5_400);
  expect(coordinator.table.taken.has('askedAgain'), 'w1 has hardly heard of it').toBe(false);
  restUntil(12_000);
  expect(coordinator.table.taken.has('askedAgain'), 'it rests all the same').toBe(true);
});
