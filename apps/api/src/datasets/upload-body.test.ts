import { Readable } from 'node:stream';
import { setImmediate as turn } from 'node:timers/promises';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { checked } from './upload-body.js';

// Time passes where a test says so.
beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] }));
afterEach(() => void vi.useRealTimers());

/** A sender that never stops, with one byte every few milliseconds. */
async function* trickle(): AsyncGenerator<Uint8Array> {
  for (;;) {
    await turn();
    vi.advanceTimersByTime(5);
    yield Buffer.from('x');
  }
}

async function drain(pieces: AsyncIterable<Uint8Array>): Promise<void> {
  for await (const piece of pieces) void piece;
}

it('gives up a body that trickles', async () => {
  const body = Readable.from(trickle());
  const pace = { silentMs: 100, leastBytesPerSecond: 1e6, deadlineMs: 60_000 };
  await expect(drain(checked(body, 1e6, undefined, pace))).rejects.toThrow(/less than 1000000 bytes a second/);
});

it('gives up a body that is quick enough and has no end', async () => {
  const body = Readable.from(trickle());
  const pace = { silentMs: 60_000, leastBytesPerSecond: 1, deadlineMs: 100 };
  await expect(drain(checked(body, 1e6, undefined, pace))).rejects.toThrow(/did not come within/);
});

it('does not count the time in which the bytes are stored', async () => {
  const pace = { silentMs: 50, leastBytesPerSecond: 1e6, deadlineMs: 60_000 };
  const body = new Readable({ read: () => undefined });
  const pieces = checked(body, 4, undefined, pace);
  let read = 0;
  for (const sent of ['a', 'b', 'cd']) {
    const asked = pieces.next();
    await turn();
    vi.advanceTimersByTime(5);
    body.push(sent);
    read += (await asked).value!.length;
    vi.advanceTimersByTime(100); // the store takes it
  }
  body.push(null);
  expect(await pieces.next()).toMatchObject({ done: true });
  expect(read).toBe(4);
});
