/**
 * Fault rows 6, 14 and 15: a machine that goes down at every boundary of a checkpoint's write and sweep, a disk that is full at
 * every write, bits that flip. The rule (I5): what is listed is whole, and one whole checkpoint is always there.
 */
import { Checkpoints, LocalStore, openStore, shardKey, type CheckpointId, type Disk } from '@paceline/storage';
import { describe, expect, test } from 'vitest';
import { checkpointFault, checkpointAt, FIXTURE_RUN_ID, tensorsOf, writeCheckpoint } from './checkpoint-fixture.js';
import { CRASHES, diskError, FaultyDisk, type Crash } from './faulty-disk.js';

const STORE = '/data/store';
const open = (disk: Disk): Checkpoints => new Checkpoints(openStore(STORE, disk));
const named = ({ attempt, round }: CheckpointId): string => `a${attempt}-r${round}`;
const listed = async (checkpoints: Checkpoints): Promise<string[]> => (await checkpoints.list(FIXTURE_RUN_ID)).map(named);
const KEEP_ONE = { keepLast: 1, keepBest: false };

/** A disk with one whole, synced checkpoint. */
async function diskWithOne(): Promise<FaultyDisk> {
  const disk = new FaultyDisk();
  await writeCheckpoint(open(disk), checkpointAt(1, 10));
  return disk.survivor('all-lost');
}

/** Writes the next checkpoint, removes the one before, and says how far it came before the machine stopped. */
async function nextCheckpoint(disk: Disk): Promise<'none' | 'published' | 'swept'> {
  let reached: 'none' | 'published' | 'swept' = 'none';
  const checkpoints = open(disk);
  try {
    await writeCheckpoint(checkpoints, checkpointAt(1, 20));
    reached = 'published';
    await checkpoints.sweep(FIXTURE_RUN_ID, KEEP_ONE);
    reached = 'swept';
  } catch (error) {
    expect(error).toMatchObject({ code: 'STORE_UNAVAILABLE' });
  }
  return reached;
}

/** What breaks the rule after a crash at operation `at`; undefined when it holds. */
async function brokenRule(at: number, crash: Crash, wrap: (disk: FaultyDisk) => Disk): Promise<string | undefined> {
  const disk = await diskWithOne();
  disk.before = ({ index }) => (index === at ? disk.stop() : undefined);
  const reached = await nextCheckpoint(wrap(disk));
  expect(disk.isStopped).toBe(true);
  const survivor = disk.survivor(crash);
  const after = open(survivor);
  const found = await after.list(FIXTURE_RUN_ID);
  if (found.length === 0) return 'no checkpoint is left';
  for (const id of found) {
    const fault = await checkpointFault(after, id);
    if (fault !== undefined) return `${named(id)} is listed: ${fault}`;
  }
  if (reached !== 'none' && named(found[0]!) !== 'a1-r20') return 'a published checkpoint is gone';
  // Life goes on: the next attempt writes over what is left and removes it.
  await writeCheckpoint(after, checkpointAt(2, 20), { lineage: [found[0]!].map(({ attempt, round }) => ({ attempt, round })) });
  await after.sweep(FIXTURE_RUN_ID, KEEP_ONE);
  const left = await listed(open(survivor.survivor('all-lost')));
  return left.join() === 'a2-r20' ? undefined : `after the next attempt ${left.join()} is left`;
}

async function operationsOfOne(wrap: (disk: FaultyDisk) => Disk): Promise<number> {
  const disk = await diskWithOne();
  expect(await nextCheckpoint(wrap(disk))).toBe('swept');
  const { operations } = disk;
  expect(await listed(open(disk))).toEqual(['a1-r20']);
  return operations;
}

describe('a machine that goes down at every boundary', () => {
  test.each(CRASHES)('leaves a whole checkpoint (%s)', async (crash) => {
    const operations = await operationsOfOne((disk) => disk);
    expect(operations).toBeGreaterThan(40);
    for (let at = 0; at < operations; at++)
      expect({ at, rule: await brokenRule(at, crash, (disk) => disk) }).toEqual({ at, rule: undefined });
  });

  /** The same harness finds a writer that leaves out a step: so it would find one in ours. */
  const PLANTED: Record<string, (disk: FaultyDisk) => Disk> = {
    'files are named before they are synced': (disk) =>
      overriding(disk, {
        create: async (file) => ({ ...(await disk.create(file)), sync: () => Promise.resolve() }),
      }),
    'folders are never synced': (disk) => overriding(disk, { syncFolder: () => Promise.resolve() }),
  };
  test.each(Object.keys(PLANTED))('is noticed when %s', async (bug) => {
    const operations = await operationsOfOne(PLANTED[bug]!);
    const rules = new Set<string | undefined>();
    for (const crash of CRASHES) for (let at = 0; at < operations; at++) rules.add(await brokenRule(at, crash, PLANTED[bug]!));
    rules.delete(undefined);
    expect([...rules]).not.toEqual([]);
  });

  function overriding(disk: FaultyDisk, changes: Partial<Disk>): Disk {
    return new Proxy<Disk>(disk, {
      get: (target, name: keyof Disk) => changes[name] ?? (target[name].bind(target) as unknown),
    });
  }
});

test('a disk that is full at any write costs the new checkpoint and nothing else', async () => {
  const counting = await diskWithOne();
  let writes = 0;
  counting.before = ({ kind }) => void (kind === 'write' && writes++);
  await writeCheckpoint(open(counting), checkpointAt(1, 20));
  expect(writes).toBeGreaterThan(6);
  for (let fullAt = 0; fullAt < writes; fullAt++) {
    const disk = await diskWithOne();
    const files = disk.files();
    let seen = 0;
    disk.before = ({ kind, path }) => {
      if (kind === 'write' && seen++ === fullAt) throw diskError('ENOSPC', path);
    };
    const checkpoints = open(disk);
    await expect(writeCheckpoint(checkpoints, checkpointAt(1, 20))).rejects.toMatchObject({ code: 'DISK_FULL' });
    expect(await listed(checkpoints)).toEqual(['a1-r10']);
    expect(await checkpointFault(checkpoints, checkpointAt(1, 10))).toBeUndefined();
    const left = disk.files().filter((file) => !files.includes(file));
    expect(left.filter((file) => !file.endsWith('.safetensors'))).toEqual([]);
    disk.before = () => undefined;
    await writeCheckpoint(checkpoints, checkpointAt(1, 20)); // there is room again: the same checkpoint is written once more
    expect(await listed(checkpoints)).toEqual(['a1-r20', 'a1-r10']);
  }
});

test('a bit that flips anywhere in any file is found before anything is handed out', async () => {
  const disk = await diskWithOne();
  const files = disk.files().filter((file) => file.includes('/a1-r10/'));
  expect(files).toHaveLength(3);
  for (const file of files) {
    const bytes = await disk.size(file);
    const step = Math.max(1, Math.floor(bytes / 150));
    for (let byte = 0; byte < bytes; byte += step) {
      const flipped = disk.survivor('process');
      flipped.flip(file, byte, byte % 8);
      const checkpoints = open(flipped);
      expect(await checkpointFault(checkpoints, checkpointAt(1, 10)), `${file} at ${byte}`).toMatch(/^CHECKPOINT_INVALID: /);
    }
  }
});

test('a bit that flips after a file was verified is found too', async () => {
  const disk = await diskWithOne();
  const reader = await open(disk).open(checkpointAt(1, 10));
  await reader.tensor('parameters/0');
  const file = `${STORE}/${shardKey(checkpointAt(1, 10), 0, 2)}`;
  disk.flip(file, (await disk.size(file)) - 5, 3);
  await reader.tensor('parameters/0');
  await expect(reader.tensor('slots/velocity/0')).rejects.toThrow(/CHECKPOINT_INVALID: .*shard-0-of-2.*differs from what was verified/);
});

test('a file that is shorter than its manifest says, or gone, makes no checkpoint', async () => {
  const disk = await diskWithOne();
  const store = new LocalStore(STORE, disk);
  const key = shardKey(checkpointAt(1, 10), 1, 2);
  await store.put(key, [(await store.read(key)).subarray(0, 100)]);
  expect(await listed(open(disk))).toEqual([]);
  expect(await checkpointFault(open(disk), checkpointAt(1, 10))).toContain(`${key}: it has 100 bytes`);
  await store.remove([key]);
  expect(await listed(open(disk))).toEqual([]);
  expect(await checkpointFault(open(disk), checkpointAt(1, 10))).toContain(`${key}: it has no bytes`);
});

test('a slow disk holds up the write and nothing else', async () => {
  const disk = await diskWithOne();
  let release = (): void => undefined;
  const slow = new Promise<void>((resolve) => (release = resolve));
  disk.before = ({ kind }) => (kind === 'sync' ? slow : undefined);
  const checkpoints = open(disk);
  const writing = writeCheckpoint(checkpoints, checkpointAt(1, 20));
  expect(await listed(checkpoints)).toEqual(['a1-r10']);
  expect(await checkpointFault(checkpoints, checkpointAt(1, 10))).toBeUndefined();
  release();
  await writing;
  expect(await listed(checkpoints)).toEqual(['a1-r20', 'a1-r10']);
});

describe('sweeping', () => {
  test('keeps the last, the best and what is pinned, and removes what never became a checkpoint', async () => {
    const checkpoints = open(new FaultyDisk());
    const losses = [0.9, 0.2, 0.5, 0.4, null, 0.3];
    for (const [i, loss] of losses.entries()) await writeCheckpoint(checkpoints, checkpointAt(1, 10 * (i + 1)), { loss });
    for (const round of [25, 75])
      await checkpoints.writeShard(checkpointAt(1, round), 0, tensorsOf(checkpointAt(1, round), 0), { servers: 2 });
    const swept = await checkpoints.sweep(FIXTURE_RUN_ID, { keepLast: 2, keepBest: true, keep: [{ attempt: 1, round: 30 }] });
    expect(swept.map(named)).toEqual(['a1-r10', 'a1-r25', 'a1-r40']);
    expect(await listed(checkpoints)).toEqual(['a1-r60', 'a1-r50', 'a1-r30', 'a1-r20']);
    const keys = (await checkpoints.store.list('')).map(({ key }) => key);
    expect(keys.filter((key) => key.includes('a1-r75'))).toHaveLength(1); // newer than the newest: it may be on its way
    expect(keys.filter((key) => /a1-r(10|25|40)\//.test(key))).toEqual([]);
  });

  test('lets go what an older attempt wrote after the point that it was left at', async () => {
    const checkpoints = open(new FaultyDisk());
    for (const round of [10, 20, 30]) await writeCheckpoint(checkpoints, checkpointAt(1, round), { loss: 1 / round });
    const lineage = { attempt: 2, parents: [{ attempt: 1, round: 20 }] };
    const within = await checkpoints.list(FIXTURE_RUN_ID, lineage);
    expect(within.map(named)).toEqual(['a1-r20', 'a1-r10']);
    await writeCheckpoint(checkpoints, checkpointAt(2, 25), { lineage: [{ attempt: 1, round: 20 }], loss: 0.2 });
    expect((await checkpoints.sweep(FIXTURE_RUN_ID, { keepLast: 5, keepBest: true })).map(named)).toEqual(['a1-r30']);
    expect(await listed(checkpoints)).toEqual(['a2-r25', 'a1-r20', 'a1-r10']);
  });

  test('removes nothing while there is no complete checkpoint, nor the last one there is', async () => {
    const checkpoints = open(new FaultyDisk());
    await checkpoints.writeShard(checkpointAt(1, 10), 0, tensorsOf(checkpointAt(1, 10), 0), { servers: 2 });
    expect(await checkpoints.sweep(FIXTURE_RUN_ID, KEEP_ONE)).toEqual([]);
    await writeCheckpoint(checkpoints, checkpointAt(1, 10));
    expect(await checkpoints.sweep(FIXTURE_RUN_ID, { keepLast: 0, keepBest: false })).toEqual([]);
    expect(await listed(checkpoints)).toEqual(['a1-r10']);
  });

  test('leaves a checkpoint alone that this process is writing, though an older one', async () => {
    const checkpoints = open(new FaultyDisk());
    const sources = tensorsOf(checkpointAt(1, 10), 0);
    await writeCheckpoint(checkpoints, checkpointAt(1, 20));
    const swept: string[] = [];
    const reading = {
      ...sources[0]!,
      read: async () => (swept.push(...(await checkpoints.sweep(FIXTURE_RUN_ID, KEEP_ONE)).map(named)), sources[0]!.read()),
    };
    await checkpoints.writeShard(checkpointAt(1, 10), 0, [reading], { servers: 2 });
    expect(swept).toEqual([]);
    expect((await checkpoints.sweep(FIXTURE_RUN_ID, KEEP_ONE)).map(named)).toEqual(['a1-r10']);
  });
});
