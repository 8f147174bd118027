import { describe, expect, it } from 'vitest';
import { ApiFault } from '../graphql/api-fault.js';
import { follow } from './follow.js';

const broken = new ApiFault('UNREACHABLE', 'broke');

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

describe('follow', () => {
  it('subscribes again after the last item it has, and ends with the server', async () => {
    const { after, asked } = server(7, 3);
    const seen: number[] = [];
    const states: string[] = [];
    const pauses: number[] = [];
    await follow({
      open: () => after(seen.at(-1) ?? 0),
      accept: (item) => void seen.push(item),
      onState: (state) => void (states.at(-1) === state || states.push(state)),
      signal: new AbortController().signal,
      pause: async (ms) => void pauses.push(ms),
      random: () => 0.5,
    });
    expect(seen).toEqual([1, 2, 3, 4, 5, 6, 7]);
    expect(asked).toEqual([0, 3, 6]);
    expect(states).toEqual(['live', 'lost', 'live', 'lost', 'live']);
    expect(pauses).toEqual([500, 500]);
  });

  it('waits longer each time while nothing comes, within a bound, and as long as it is asked to', async () => {
    const pauses: number[] = [];
    const controller = new AbortController();
    await follow({
      open: () => server(9, 0).after(0),
      accept: () => undefined,
      onState: () => undefined,
      signal: controller.signal,
      pause: async (ms) => {
        if (pauses.push(ms) === 8) controller.abort();
      },
      random: () => 0.5,
    });
    expect(pauses).toEqual([500, 1000, 2000, 4000, 8000, 10_000, 10_000, 10_000]);
  });

  it('throws what waiting cannot mend', async () => {
    const refused = new ApiFault('UNAUTHENTICATED', 'revoked');
    const open = async function* (): AsyncGenerator<number> {
      throw refused;
    };
    await expect(follow({ open, accept: () => undefined, onState: () => undefined, signal: new AbortController().signal })).rejects.toBe(
      refused,
    );
  });

  it('is subscribed again when an item cannot be accepted for now', async () => {
    const { after, asked } = server(3, 99);
    let refusals = 0;
    const seen: number[] = [];
    await follow({
      open: () => after(seen.at(-1) ?? 0),
      accept: (item) => {
        if (item === 2 && refusals++ === 0) throw broken;
        seen.push(item);
      },
      onState: () => undefined,
      signal: new AbortController().signal,
      pause: async () => undefined,
    });
    expect(seen).toEqual([1, 2, 3]);
    expect(asked).toEqual([0, 1]);
  });

  it('ends a subscription that waits, when it is told to stop', async () => {
    const controller = new AbortController();
    let closed = false;
    let release: (result: IteratorResult<number>) => void = () => undefined;
    const items: AsyncIterator<number> = {
      next: () => new Promise((resolve) => (release = resolve)),
      return: async () => {
        closed = true;
        release({ done: true, value: undefined });
        return { done: true, value: undefined };
      },
    };
    const following = follow({ open: () => items, accept: () => undefined, onState: () => undefined, signal: controller.signal });
    controller.abort();
    await following;
    expect(closed).toBe(true);
  });
});
