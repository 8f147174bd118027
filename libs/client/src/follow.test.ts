import { describe, expect, it } from 'vitest';
import { PacelineApiError } from './api-error.js';
import { Backoff } from './backoff.js';
import { follow, type FollowOptions } from './follow.js';

const broken = new PacelineApiError('UNREACHABLE', 'broke');

/** A server that stores `total` items and breaks the connection after each `cut` items. */
function server(total: number, cut: number) {
  const asked: number[] = [];
  return {
    asked,
    async *after(seq: number): AsyncGenerator<number, void, void> {
      asked.push(seq);
      for (let item = seq + 1, sent = 0; item <= total; item++, sent++) {
        if (sent === cut) throw broken;
        yield item;
      }
    },
  };
}

/** Follows to the end. @returns the pauses */
async function pausesOf(open: () => AsyncIterable<number>, accept: (item: number) => void, options: Partial<FollowOptions> = {}) {
  const pauses: number[] = [];
  const pause = async (ms: number): Promise<void> => void pauses.push(ms);
  const backoff = new Backoff(500, 10_000, 0.25, () => 0.5);
  for await (const item of follow(open, { reconnectForMs: 1000, pause, backoff, ...options })) accept(item);
  return pauses;
}

describe('follow', () => {
  it('subscribes again after the last item it has, and ends with the server', async () => {
    const { after, asked } = server(7, 3);
    const seen: number[] = [];
    const states: string[] = [];
    const pauses = await pausesOf(
      () => after(seen.at(-1) ?? 0),
      (item) => seen.push(item),
      { onConnection: (state) => states.push(state) },
    );
    expect(seen).toEqual([1, 2, 3, 4, 5, 6, 7]);
    expect(asked).toEqual([0, 3, 6]);
    expect(states).toEqual(['lost', 'back', 'lost', 'back']);
    expect(pauses).toEqual([500, 500]);
  });

  it('waits longer each time while nothing comes, within a bound, and as long as it is asked to', async () => {
    const pauses: number[] = [];
    const controller = new AbortController();
    const pause = async (ms: number): Promise<void> => {
      if (pauses.push(ms) === 8) controller.abort();
    };
    let refusals = 0;
    const open = async function* (): AsyncGenerator<number> {
      throw refusals++ === 6 ? new PacelineApiError('RATE_LIMITED', 'wait', { httpStatus: 429, retryAfterMs: 60_000 }) : broken;
    };
    await pausesOf(open, () => undefined, { signal: controller.signal, pause });
    expect(pauses).toEqual([500, 1000, 2000, 4000, 8000, 10_000, 60_000, 10_000]);
  });

  it('throws what waiting cannot mend', async () => {
    const open = async function* (): AsyncGenerator<number> {
      throw new PacelineApiError('UNAUTHENTICATED', 'revoked');
    };
    await expect(pausesOf(open, () => undefined)).rejects.toMatchObject({ code: 'UNAUTHENTICATED' });
  });

  it('is back without news when the server has not refused for some time', async () => {
    const states: string[] = [];
    let asked = 0;
    const open = async function* (): AsyncGenerator<number> {
      if (asked++ === 0) throw broken;
      await new Promise((resolve) => setTimeout(resolve, 30));
      states.push('completes');
    };
    await pausesOf(open, () => undefined, { settledAfterMs: 5, onConnection: (state) => states.push(state) });
    expect(states).toEqual(['lost', 'back', 'completes']);
  });

  it('bears losses that are far apart, without news and however often; not one connection that never opens', async () => {
    const ends = { isOpen: true, asked: 0 };
    const open = async function* (): AsyncGenerator<number> {
      if (++ends.asked === 4) return;
      if (ends.asked > 1) await new Promise((resolve) => setTimeout(resolve, 40));
      throw broken;
    };
    const options = { reconnectForMs: 30, settledAfterMs: 5, isOpen: () => ends.isOpen };
    expect(await pausesOf(open, () => undefined, options)).toHaveLength(3);
    Object.assign(ends, { isOpen: false, asked: 0 });
    await expect(pausesOf(open, () => undefined, options)).rejects.toBe(broken);
    expect(ends.asked).toBe(2);
  });
});
