import { expect, test } from 'vitest';
import { WorkerTraffic } from './traffic.js';

const socket = (sentBytes: number, receivedBytes: number, savedSentBytes = 0, savedReceivedBytes = 0) => ({
  remote: '10.0.0.1:7000',
  sentBytes,
  receivedBytes,
  savedSentBytes,
  savedReceivedBytes,
});

test('counts what has passed over open and ended connections, and what it would have been without a codec', () => {
  const traffic = new WorkerTraffic();
  traffic.ended(socket(100, 10));
  traffic.sent(socket(0, 0), 300);
  traffic.received(socket(0, 0), 5);
  const own = { ...socket(7_000, 7_000, 500, 500), remote: 'memory' };
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

test('without a codec each chunk would be in a frame of its own', () => {
  const traffic = new WorkerTraffic();
  traffic.ended(socket(100, 10, 40, 4));
  traffic.sent(socket(0, 0), 300);
  expect(traffic.counts([socket(1, 2, 7, 5)])).toEqual({
    toServersBytes: 101,
    toWorkersBytes: 12,
    denseToServersBytes: 448,
    denseToWorkersBytes: 21,
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
