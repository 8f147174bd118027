import type { DatasetManifest } from '@paceline/spec';
import { expect, it } from 'vitest';
import { ManifestReads } from './manifest-reads.js';

const manifest = { format: 'paceline.dataset' } as DatasetManifest;
const settle = async (): Promise<void> => {
  for (let i = 0; i < 20; i++) await Promise.resolve();
};

it('fields of one request share a manifest, another version waits until both are done with it', async () => {
  const reads = new ManifestReads({ atOnce: 1, waiting: 5, waitingOfTeam: 5, waitMs: 60_000 });
  const read: string[] = [];
  const ends: (() => void)[] = [];
  const field = (version: string) =>
    reads.use(
      'team',
      version,
      () => Promise.resolve((read.push(version), manifest)),
      () => new Promise<void>((resolve) => ends.push(resolve)),
    );
  const all = [field('a'), field('a'), field('b')];
  await settle();
  expect([read, ends.length]).toEqual([['a'], 2]);
  ends[0]!();
  await settle();
  expect(read).toEqual(['a']);
  ends[1]!();
  await settle();
  expect(read).toEqual(['a', 'b']);
  ends[2]!();
  await Promise.all(all);
});

it('a read that fails gives its turn back, and is tried again', async () => {
  const reads = new ManifestReads({ atOnce: 1, waiting: 0, waitingOfTeam: 0, waitMs: 60_000 });
  const failed = reads.use(
    'team',
    'a',
    () => Promise.reject(new Error('gone')),
    () => 1,
  );
  await expect(failed).rejects.toThrow('gone');
  await settle();
  expect(
    await reads.use(
      'team',
      'a',
      () => Promise.resolve(manifest),
      (found) => found,
    ),
  ).toBe(manifest);
});
