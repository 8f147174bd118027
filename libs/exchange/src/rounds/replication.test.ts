import { expect, test } from 'vitest';
import type { Connection } from '../connection.js';
import { RoundReplication } from './replication.js';

const numbers = { attempt: 1, term: 1, view: 1, round: 3 };

function paired() {
  const clock = { now: 0 };
  const asked: number[] = [];
  const link = { queuedBytes: 0, sendMessage: () => undefined, close: () => undefined };
  const connection = link as unknown as Connection;
  const replication = new RoundReplication({
    replicas: 2,
    chunkIndices: () => [],
    now: () => clock.now,
    numbers: () => numbers,
    askToDrop: () => void asked.push(clock.now),
    tellCoordinator: () => undefined,
    onReady: () => undefined,
    onDeposed: () => undefined,
  });
  replication.join('standby', connection);
  /** The standby speaks all the time. */
  const run = (forMs: number): void => {
    for (const until = clock.now + forMs; clock.now < until; clock.now += 100) {
      replication.message(connection, { type: 'heartbeat', progress: 0 });
      replication.tick();
    }
  };
  return { replication, connection, link, asked, run };
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
