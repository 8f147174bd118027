import { describe, expect, it } from 'vitest';
import { preceded } from './preceded.js';

const numbers = () => [1, 2][Symbol.iterator]();
const asynchronous = (): AsyncIterator<number, void> => {
  const inner = numbers();
  return { next: async () => inner.next() as IteratorResult<number, void> };
};

describe('preceded', () => {
  it('opens after the first part, once', async () => {
    const done: string[] = [];
    const items = preceded(
      async () => void done.push('first'),
      () => (done.push('open'), asynchronous()),
    );
    expect(done).toEqual([]);
    expect([await items.next(), await items.next(), await items.next()].map(({ value }) => value)).toEqual([1, 2, undefined]);
    expect(done).toEqual(['first', 'open']);
  });
  it('opens nothing when it was ended meanwhile', async () => {
    let finish: () => void = () => undefined;
    let opened = false;
    const items = preceded(
      () => new Promise<void>((resolve) => (finish = resolve)),
      () => ((opened = true), asynchronous()),
    );
    const next = items.next();
    await items.return?.();
    finish();
    expect([(await next).done, opened]).toEqual([true, false]);
  });
  it('passes on why the first part failed', async () => {
    const items = preceded(() => Promise.reject(new Error('no history')), asynchronous);
    await expect(items.next()).rejects.toThrow('no history');
  });
});
