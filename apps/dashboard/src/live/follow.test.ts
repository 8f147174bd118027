import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { followRun } from './follow.js';

beforeEach(() => {
  vi.useFakeTimers();
  vi.stubGlobal('window', new EventTarget());
  vi.stubGlobal('document', new EventTarget());
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

describe('a run that is over', () => {
  const stored = [1, 2];
  /** A subscription that ends at once with what is stored by then. */
  const reader = (seen: number[]) =>
    async function* (): AsyncGenerator<void> {
      for (const row of stored.slice(seen.length)) {
        seen.push(row);
        yield;
      }
    };

  it('is looked at again for what is stored half a minute late', async () => {
    const seen: number[] = [];
    const followed = followRun(reader(seen), () => undefined, new AbortController().signal);
    await vi.advanceTimersByTimeAsync(25_000);
    stored.push(3);
    await vi.advanceTimersByTimeAsync(10_000);
    await followed;
    expect(seen).toEqual([1, 2, 3]);
  });

  it('is left alone once the page is gone', async () => {
    const seen: number[] = [];
    const page = new AbortController();
    const followed = followRun(reader(seen), () => undefined, page.signal);
    await vi.advanceTimersByTimeAsync(1_000);
    page.abort();
    await followed;
    expect(vi.getTimerCount()).toBe(0);
  });
});
