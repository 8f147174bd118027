import { expect, test } from 'vitest';
import type { Connection } from '../connection.js';
import { RoundReplication } from '../sync/round-replication.js';

const numbers = { attempt: 1, term: 1, view: 1, round: 3 };

function paired() {
  const clock = { now: 0 };
  const asked: number[] = [];
  const said: string[] = [];
  const link = { queuedBytes: 0, sendMessage: () => undefined, close: () => void said.push('closed') };
  const connection = link as unknown as Connection;
  const replication = new RoundReplication({
    replicas: 2,
    chunkIndices: () => [],
    now: () => clock.now,
    coordinator: { tell: () => undefined },
    place: {
      numbers: () => numbers,
      askToDrop: () => void asked.push(clock.now),
      ready: () => undefined,
      deposed: (why) => void said.push(why),
    },
  });
  replication.join('standby', connection);
  /** The standby speaks all the time. */
  const run = (forMs: number): void => {
    for (const until = clock.now + forMs; clock.now < until; clock.now += 100) {
      replication.message(connection, { type: 'heartbeat', progress: 0 });
      replication.tick();
    }
  };
  return { replication, connection, link, asked, said, run };
}

test('a standby that speaks and acknowledges nothing is dropped, and the reason names the chunk', () => {
  const { replication, asked, run } = paired();
  replication.expect([4, 5]);
  run(9_000);
  expect(replication.table.state).toBe('PAIRED');
  run(2_000);
  expect(replication.table.state).toBe('ASKING');
  expect(asked[0]).toBeLessThan(11_000);
  expect(replication.waitingFor()).toMatch(/it has not acknowledged chunk 4 of the round for 10\d\d\d ms/u);
});

test('one that acknowledges one chunk after the other, or is still being sent to, is waited for', () => {
  const { replication, connection, link, run } = paired();
  replication.expect([4, 5]);
  run(8_000);
  replication.message(connection, { type: 'replicated', round: 3, chunk: 4 });
  run(8_000);
  link.queuedBytes = 1;
  run(30_000);
  link.queuedBytes = 0;
  run(8_000);
  replication.message(connection, { type: 'replicated', round: 3, chunk: 5 });
  run(60_000);
  expect(replication.table.state).toBe('PAIRED');
});

const END = { type: 'end', outcome: 'finished', message: '' } as const;

test('the end of the attempt is final when the standby has said so too', () => {
  const { replication, connection } = paired();
  let final = 0;
  replication.conclude(END, () => final++);
  replication.message(connection, { type: 'heartbeat', progress: 0 });
  expect(final).toBe(0);
  replication.message(connection, END);
  expect(final).toBe(1);
});

test.each([
  ['once the arbiter has dropped the standby', { isPrimary: true, hasStandby: false }, 1],
  ['never where it has promoted it', { isPrimary: false, hasStandby: false }, 0],
])('their link breaks before that: it is final %s', (_, answer, times) => {
  const { replication, connection } = paired();
  let final = 0;
  replication.conclude(END, () => final++);
  replication.closed(connection, 'it broke');
  expect(final).toBe(0);
  replication.answered(answer);
  expect(final).toBe(times);
});

test('a primary that has to end leaves its place to a standby that follows, and to none that has to end too, or is gone', () => {
  const { replication, said } = paired();
  expect(replication.handOver()).toBe(true);
  expect([replication.table.state, said]).toEqual(['DEPOSED', ['closed', 'this server ends, and its standby takes over: connect again']]);
  expect(replication.handOver()).toBe(false);

  const losing = paired();
  losing.replication.message(losing.connection, { type: 'stopping', reason: 'SIGTERM' });
  expect([losing.replication.handOver(), losing.replication.table.state]).toEqual([false, 'PAIRED']);

  const alone = paired();
  alone.replication.closed(alone.connection, 'it broke');
  expect([alone.replication.handOver(), alone.replication.table.state]).toEqual([false, 'ASKING']);

  const over = paired();
  over.replication.conclude(END, () => undefined);
  expect([over.replication.handOver(), over.replication.table.state]).toEqual([false, 'PAIRED']);
});
