import { expect, test } from 'vitest';
import { WorkerTraffic } from './traffic.js';

const socket = (sentBytes: number, receivedBytes: number) => ({ remote: '10.0.0.1:7000', sentBytes, receivedBytes });

test('counts what has passed over open and ended connections, and what it would have been without a codec', () => {
  const traffic = new WorkerTraffic();
  traffic.ended(socket(100, 10));
  traffic.sent(socket(0, 0), 300);
  traffic.received(socket(0, 0), 5);
  const own = { remote: 'memory', sentBytes: 7_000, receivedBytes: 7_000 };
  traffic.ended(own);
  traffic.sent(own, 9_000);
  traffic.received(own, 9_000);
  expect(traffic.counts([socket(1, 2), undefined, own]), 'what stays in the process passes no socket').toEqual({
    toServersBytes: 101,
    toWorkersBytes: 12,
    denseToServersBytes: 401,
    denseToWorkersBytes: 17,
  });
});

test('a frame that has nothing to stand for without a codec has cost what it is long, also before it has left', () => {
  const traffic = new WorkerTraffic();
  traffic.sent(socket(0, 0), 300);
  traffic.sent(socket(0, 0), -150);
  expect(traffic.counts([socket(300, 0)])).toMatchObject({ toServersBytes: 300, denseToServersBytes: 450 });
  traffic.sent(socket(0, 0), -600);
  expect(traffic.counts([socket(300, 0)])).toMatchObject({ denseToServersBytes: 0 });
});
