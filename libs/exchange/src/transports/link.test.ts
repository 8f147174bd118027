/** A slow link on a clock that the test winds: what it takes, and when it arrives. */
import { expect, test } from 'vitest';
import type { Clock } from '../clock.js';
import type { ByteConsumer, ByteStream } from './byte-stream.js';
import { Link, LinkedStream, type LinkSpeed } from './link.js';

class WoundClock implements Clock {
  nowMs = 0;
  /** How late timers are, as on a busy machine. */
  lateMs = 0;
  private timers: { atMs: number; act: () => void }[] = [];

  now(): number {
    return this.nowMs;
  }
  after(ms: number, act: () => void): () => void {
    const timer = { atMs: this.nowMs + ms + (ms > 0 ? this.lateMs : 0), act };
    this.timers.push(timer);
    return () => void (this.timers = this.timers.filter((each) => each !== timer));
  }
  every(): () => void {
    throw new Error('a link asks for no such timer');
  }
  soon(act: () => void): void {
    this.after(0, act);
  }
  /** Winds on until nothing is due any more. */
  run(untilMs = Infinity): void {
    for (;;) {
      const next = this.timers.reduce<(typeof this.timers)[0] | undefined>((a, b) => (a && a.atMs <= b.atMs ? a : b), undefined);
      if (!next || next.atMs > untilMs) break;
      this.timers = this.timers.filter((each) => each !== next);
      this.nowMs = Math.max(this.nowMs, next.atMs);
      next.act();
    }
    if (untilMs < Infinity) this.nowMs = untilMs;
  }
}

function linked(speed: LinkSpeed, link?: Link) {
  const clock = (link?.clock as WoundClock | undefined) ?? new WoundClock();
  const arrived: { atMs: number; bytes: Uint8Array }[] = [];
  const read: { atMs: number; bytes: Uint8Array }[] = [];
  const events: string[] = [];
  const inner = {
    kind: 'tcp',
    remote: 'test',
    isReading: false,
    write(parts: readonly Uint8Array[], done: () => void) {
      for (const bytes of parts) arrived.push({ atMs: clock.nowMs, bytes });
      clock.soon(done);
    },
    setReading(on: boolean) {
      inner.isReading = on;
    },
    end: () => void events.push(`end at ${clock.nowMs}`),
    destroy: () => void events.push('destroyed'),
  };
  const consumer = {
    fed: (bytes: Uint8Array) => void read.push({ atMs: clock.nowMs, bytes }),
    streamEnded: () => void events.push('the peer ended'),
    streamClosed: () => void events.push('closed'),
  };
  const stream = new LinkedStream(link ?? new Link(speed, clock), consumer as unknown as ByteConsumer).over(inner as ByteStream);
  return { clock, stream, inner, arrived, read, events };
}

const bytesOf = (parts: readonly { bytes: Uint8Array }[]): number => parts.reduce((sum, { bytes }) => sum + bytes.length, 0);
/** 20 Mbit a second. */
const TWENTY = { bytesPerSecond: 2.5e6, delayMs: 30 };

test('a megabyte takes as long as its bytes at this rate, and the delay; its memory is free before it has arrived', () => {
  const { clock, stream, arrived } = linked(TWENTY);
  const payload = Uint8Array.from({ length: 1e6 }, (_, i) => i);
  let doneMs = -1;
  stream.write([payload.subarray(0, 10), payload.subarray(10)], () => (doneMs = clock.nowMs));
  clock.run();
  expect(doneMs).toBeGreaterThan(395);
  expect(doneMs).toBeLessThanOrEqual(400);
  expect(arrived.at(-1)!.atMs).toBeCloseTo(doneMs + 30, 6);
  expect(Buffer.concat(arrived.map(({ bytes }) => bytes)).equals(payload)).toBe(true);
});

test('timers that fire late cost a megabyte no speed while bytes wait', () => {
  const { clock, stream } = linked(TWENTY);
  clock.lateMs = 10;
  let doneMs = -1;
  stream.write([new Uint8Array(1e6)], () => (doneMs = clock.nowMs));
  clock.run();
  expect(doneMs).toBeGreaterThan(395);
  expect(doneMs).toBeLessThan(430);
});

test('what comes is as slow as what goes, and does not slow it down', () => {
  const { clock, stream, inner, arrived, read } = linked(TWENTY);
  stream.setReading(true);
  stream.write([new Uint8Array(250_000)], () => undefined);
  // Read as far as the link lets it, as a socket does.
  let unreadBytes = 250_000;
  const feed = (): void => {
    if (inner.isReading && unreadBytes > 0) {
      stream.fed(new Uint8Array(10_000));
      unreadBytes -= 10_000;
    }
    if (unreadBytes > 0) clock.after(0.5, feed);
  };
  feed();
  clock.run();
  expect([bytesOf(arrived), bytesOf(read)]).toEqual([250_000, 250_000]);
  for (const parts of [arrived, read]) {
    expect(parts.at(-1)!.atMs).toBeGreaterThan(125);
    expect(parts.at(-1)!.atMs).toBeLessThan(135);
  }
});

test('the socket is not read while the queue is full', () => {
  const { clock, stream, inner } = linked(TWENTY);
  stream.setReading(true);
  let fedBytes = 0;
  while (inner.isReading) {
    stream.fed(new Uint8Array(16_384));
    fedBytes += 16_384;
  }
  // What the link holds during its delay, and the segments beyond.
  expect(fedBytes).toBeLessThan(2.5e6 * 0.03 + (150 << 10));
  clock.run();
  expect(inner.isReading).toBe(true);
});

test('connections of one process share its link', () => {
  const first = linked(TWENTY);
  const link = (first.stream as unknown as { link: Link }).link;
  const second = linked(TWENTY, link);
  for (const { stream } of [first, second]) stream.write([new Uint8Array(250_000)], () => undefined);
  first.clock.run();
  // Both take turns: each has half of it, and both are through when all bytes are.
  for (const { arrived } of [first, second]) expect(arrived.at(-1)!.atMs).toBeGreaterThan(215);
});

test('the end comes behind what was written, and the end of the peer behind what it sent', () => {
  const { clock, stream, events, read } = linked(TWENTY);
  stream.setReading(true);
  stream.write([new Uint8Array(25_000)], () => undefined);
  stream.end();
  stream.fed(new Uint8Array(100));
  stream.streamEnded();
  stream.streamClosed(undefined);
  expect([events, read]).toEqual([[], []]);
  clock.run();
  expect(bytesOf(read)).toBe(100);
  expect(events.filter((event) => !event.startsWith('end'))).toEqual(['the peer ended', 'closed']);
});

test('after it was destroyed nothing moves', () => {
  const { clock, stream, events, arrived, read } = linked(TWENTY);
  stream.setReading(true);
  stream.write([new Uint8Array(25_000)], () => undefined);
  stream.fed(new Uint8Array(100));
  stream.destroy();
  stream.streamClosed(undefined);
  clock.run();
  expect([bytesOf(arrived), bytesOf(read), events]).toEqual([0, 0, ['destroyed', 'closed']]);
});
