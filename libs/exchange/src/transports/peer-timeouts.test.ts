import { expect, test } from 'vitest';
import type { Connection } from '../connection.js';
import type { ShardMachine } from '../standby/shard-machine.js';
import { Standby } from '../standby/standby.js';
import { PeerTimeouts } from './peer-timeouts.js';

/** A connection over which a byte comes every `everyMs` until `untilMs`; the frame that they belong to is never whole. */
function trickling(clock: { nowMs: number }, everyMs: number, untilMs: number) {
  const closed: string[] = [];
  const connection = {
    isOpen: true,
    queuedBytes: 0,
    get receivedBytes() {
      return Math.floor(Math.min(clock.nowMs, untilMs) / everyMs);
    },
    receivedDataBytes: 0,
    sendMessage: () => undefined,
    close: () => void closed.push(`${clock.nowMs} ms`),
  };
  return { closed, connection: connection as unknown as Connection };
}

test('a connection is closed as silent when no byte has come for so long, whether a frame is whole or not', () => {
  const clock = { nowMs: 0, now: () => clock.nowMs };
  const timeouts = new PeerTimeouts(clock, { silentAfterMs: 10_000, tickMs: 100 });
  const { closed, connection } = trickling(clock, 4_000, 60_000);
  timeouts.watch(connection);
  for (; clock.nowMs < 90_000 && closed.length === 0; clock.nowMs += 100) timeouts.tick();
  expect(closed).toEqual(['70100 ms']);
});

test('a standby does not ask to be promoted while the bytes of a long frame come from its primary', () => {
  const clock = { nowMs: 0 };
  const asked: number[] = [];
  const standby = new Standby({
    attempt: 1,
    now: () => clock.nowMs,
    shard: { attempt: 1, term: 1, view: 1, round: 0 } as unknown as ShardMachine,
    place: { askToPromote: () => void asked.push(clock.nowMs), promoted: () => undefined, standbyOver: () => undefined },
  });
  standby.linked(trickling(clock, 4_000, 60_000).connection);
  for (; clock.nowMs < 90_000 && asked.length === 0; clock.nowMs += 100) standby.tick();
  expect(asked).toEqual([70_100]);
});
