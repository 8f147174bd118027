import { createHash, randomBytes } from 'node:crypto';
import { chmod, mkdir, mkdtemp, open, readdir, readFile, rm, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { DatasetShard } from '@paceline/spec';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { cachedShardSource } from './disk-cache.js';
import type { ShardSource } from './shard-source.js';

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'paceline-cache-'));
});
// A shard that nobody waits for may still be written.
afterEach(() => rm(folder, { recursive: true, maxRetries: 20, retryDelay: 50 }));

const bodies = Array.from({ length: 3 }, () => new Uint8Array(randomBytes(10_000)));
const shards: DatasetShard[] = bodies.map((body) => ({
  sha256: createHash('sha256').update(body).digest('hex'),
  rows: 1,
  bytes: body.length,
}));

class Far implements ShardSource {
  readonly place = 'far away';
  reads = 0;
  whole(shard: DatasetShard): Promise<Uint8Array> {
    return this.range(shard, 0, shard.bytes);
  }
  async range(shard: DatasetShard, from: number, to: number): Promise<Uint8Array> {
    this.reads++;
    await Promise.resolve();
    return bodies[shards.indexOf(shard)]!.slice(from, to);
  }
}

it('a shard is fetched once, by processes at the same time and after a restart', async () => {
  const far = new Far();
  const source = cachedShardSource(far, { folder });
  const [whole, same] = await Promise.all([source.whole(shards[0]!), source.whole(shards[0]!)]);
  expect([whole, same]).toEqual([bodies[0], bodies[0]]);
  expect(await source.range(shards[0]!, 5, 9)).toEqual(bodies[0]!.slice(5, 9));
  expect(far.reads).toBe(1);
  const again = cachedShardSource(far, { folder });
  expect(await again.range(shards[0]!, 0, 10_000)).toEqual(bodies[0]);
  expect(far.reads).toBe(1);
  const others = [new Far(), new Far()];
  await Promise.all(others.map((each) => cachedShardSource(each, { folder }).whole(shards[1]!)));
  expect((await readdir(folder)).sort()).toEqual(
    shards
      .slice(0, 2)
      .map(({ sha256 }) => `${sha256}.safetensors`)
      .sort(),
  );
});

it('some bytes of a shard that is not there yet do not wait for the rest of it', async () => {
  const far = new Far();
  let arrive!: () => void;
  const slow = new Promise<void>((resolve) => (arrive = resolve));
  const range = far.range.bind(far);
  far.range = async (shard, from, to) => {
    if (to - from === shard.bytes) await slow;
    return range(shard, from, to);
  };
  const source = cachedShardSource(far, { folder });
  expect(await source.range(shards[0]!, 5, 9)).toEqual(bodies[0]!.slice(5, 9));
  expect(far.reads).toBe(1);
  arrive();
  expect(await source.whole(shards[0]!)).toEqual(bodies[0]);
  expect(await source.range(shards[0]!, 2, 3)).toEqual(bodies[0]!.slice(2, 3));
  expect(far.reads).toBe(2);
});

it('a disk that is full while a shard is written is told once, and leaves nothing there', async () => {
  const handle = await open(path.join(folder, 'any'), 'w');
  const files = Object.getPrototypeOf(handle) as { appendFile(): Promise<void> };
  await handle.close();
  await rm(path.join(folder, 'any'));
  const full = Object.assign(new Error('ENOSPC: no space left on device, write'), { code: 'ENOSPC', syscall: 'write' });
  const appends = vi.spyOn(files, 'appendFile').mockRejectedValue(full);
  const told: string[] = [];
  const source = cachedShardSource(new Far(), { folder, onOff: (reason) => told.push(reason) });
  expect(await source.whole(shards[0]!)).toEqual(bodies[0]);
  expect(await source.whole(shards[1]!)).toEqual(bodies[1]);
  expect(appends).toHaveBeenCalledTimes(1);
  appends.mockRestore();
  expect(told).toEqual([expect.stringMatching(/ENOSPC: no space left on device, write; make room on the disk$/)]);
  expect(await readdir(folder)).toEqual([]);
});

it('a copy that another process has removed costs that copy, and not the cache', async () => {
  const far = new Far();
  const range = far.range.bind(far);
  far.range = async (...asked) => {
    const read = await range(...asked);
    if (far.reads === 1) for (const name of await readdir(folder)) await rm(path.join(folder, name)); // a sweep that takes it for a dead one
    return read;
  };
  const told: string[] = [];
  const source = cachedShardSource(far, { folder, onOff: (reason) => told.push(reason) });
  expect(await source.whole(shards[0]!)).toEqual(bodies[0]);
  expect(await source.whole(shards[1]!)).toEqual(bodies[1]);
  expect(told).toEqual([]);
  expect(await readdir(folder)).toEqual([`${shards[1]!.sha256}.safetensors`]);
  expect(await source.whole(shards[0]!)).toEqual(bodies[0]);
  expect(await readdir(folder)).toHaveLength(1); // not tried again at once
});

it('a shard that met a fault that passes is brought to the disk later', async () => {
  const far = new Far();
  const range = far.range.bind(far);
  far.range = async (...asked) => {
    const read = await range(...asked);
    if (far.reads === 1) for (const name of await readdir(folder)) await rm(path.join(folder, name));
    return read;
  };
  const source = cachedShardSource(far, { folder, retryMs: 0 });
  await source.whole(shards[0]!);
  expect(await readdir(folder)).toEqual([]);
  expect(await source.whole(shards[0]!)).toEqual(bodies[0]);
  expect(await readdir(folder)).toEqual([`${shards[0]!.sha256}.safetensors`]);
});

it('the least recently used goes when there is no room', async () => {
  const source = cachedShardSource(new Far(), { folder, maxBytes: 25_000 });
  await source.whole(shards[0]!);
  await source.whole(shards[1]!);
  const old = path.join(folder, `${shards[1]!.sha256}.safetensors`);
  await utimes(old, new Date(0), new Date(0));
  await source.whole(shards[2]!);
  expect((await readdir(folder)).sort()).toEqual([shards[0]!, shards[2]!].map(({ sha256 }) => `${sha256}.safetensors`).sort());
  expect(await source.range(shards[1]!, 1, 4)).toEqual(bodies[1]!.slice(1, 4));
});

it('a file that was changed is fetched anew, and one that is removed too', async () => {
  const file = path.join(folder, `${shards[0]!.sha256}.safetensors`);
  await writeFile(file, new Uint8Array(10_000));
  const far = new Far();
  const source = cachedShardSource(far, { folder });
  expect(await source.range(shards[0]!, 0, 3)).toEqual(bodies[0]!.slice(0, 3));
  expect(new Uint8Array(await readFile(file))).toEqual(bodies[0]);
  await rm(file);
  expect(await source.range(shards[0]!, 7, 9)).toEqual(bodies[0]!.slice(7, 9));
  expect(far.reads).toBe(2);
});

it('a folder that cannot be written is told once, and the rows come from afar', async () => {
  const blocked = path.join(folder, 'file');
  await writeFile(blocked, '');
  const told: string[] = [];
  const source = cachedShardSource(new Far(), { folder: path.join(blocked, 'cache'), onOff: (reason) => told.push(reason) });
  expect(await source.whole(shards[0]!)).toEqual(bodies[0]);
  expect(await source.range(shards[1]!, 2, 5)).toEqual(bodies[1]!.slice(2, 5));
  expect(told).toEqual([expect.stringMatching(/^the cache of datasets in .* is not used any more, and shards are read from far away/)]);
});

it('what a dead writer left is removed when it is old', async () => {
  await mkdir(folder, { recursive: true });
  const partial = path.join(folder, `.${shards[0]!.sha256}.1-abc.partial`);
  await writeFile(partial, 'x');
  await chmod(partial, 0o600);
  await utimes(partial, new Date(0), new Date(0));
  await cachedShardSource(new Far(), { folder }).whole(shards[0]!);
  expect(await readdir(folder)).toEqual([`${shards[0]!.sha256}.safetensors`]);
});
