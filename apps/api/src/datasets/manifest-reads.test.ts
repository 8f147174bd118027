import { expect, it } from 'vitest';
import { ManifestReads } from './manifest-reads.js';

const settle = async (): Promise<void> => {
  for (let i = 0; i < 20; i++) await Promise.resolve();
};

it.each(['held', 'inProcess'] as const)('a team whose reads overlap keeps others waiting for one of them at most (%s)', async (kind) => {
  const reads = new ManifestReads();
  const begun: string[] = [];
  const ends: (() => void)[] = [];
  const read = (team: string, name: string): Promise<void> =>
    reads[kind](team, async () => {
      begun.push(name);
      await new Promise<void>((resolve) => ends.push(resolve));
    });
  const all = [read('a', 'a1'), read('a', 'a2'), read('a', 'a3'), read('b', 'b1')];
  await settle();
  expect(begun).toEqual(['a1', 'b1']);
  ends[1]!();
  await settle();
  all.push(read('c', 'c1'));
  await settle();
  expect(begun).toEqual(['a1', 'b1', 'c1']);
  for (let i = 0; i < all.length; i++) {
    ends[i]?.();
    await settle();
  }
  await Promise.all(all);
});

it('a read that fails gives its turn back', async () => {
  const reads = new ManifestReads({ held: { atOnce: 1, waiting: 0 } });
  await expect(reads.held('team', () => Promise.reject(new Error('gone')))).rejects.toThrow('gone');
  expect(await reads.held('team', () => Promise.resolve(1))).toBe(1);
});

it('a manifest that the heap has no room for is refused before it is read', async () => {
  const reads = new ManifestReads({}, 208 << 20);
  expect(await reads.large('team', 14 << 20, () => Promise.resolve('read'))).toBe('read');
  await expect(reads.large('team', 15 << 20, () => Promise.resolve('read'))).rejects.toMatchObject({ code: 'TOO_LARGE' });
});
