/**
 * Shards of a far store on a disk of this machine. Files are named by the SHA-256 of their content, so they are right or worthless: each is checked
 * before this process uses it first, and one that differs is fetched anew. Several processes share a folder without locks:
 *
 *   fetch part by part into `.<sha256>.<pid>-<random>.partial`, hashing → rename over the name
 *
 * The least recently used files go when there is no room; a file that another process removes meanwhile is fetched again. A disk that cannot be
 * written is told once, and the far store is read instead.
 */
import { createHash, randomBytes } from 'node:crypto';
import { mkdir, open, readdir, rename, rm, stat, utimes, type FileHandle } from 'node:fs/promises';
import path from 'node:path';
import type { DatasetShard } from '@paceline/spec';
import { sha256Of, type ShardSource } from './shard-source.js';

export interface DiskCacheOptions {
  readonly folder: string;
  /** Left out: 10 GiB. */
  readonly maxBytes?: number;
  /** After a fault that passes, the shard is brought to the disk again when it is asked for so much later. Left out: a minute. */
  readonly retryMs?: number;
  /** Hears, once, that the cache is not used any more, and why. */
  readonly onOff?: (reason: string) => void;
}

const DEFAULT_MAX_BYTES = 10 * 2 ** 30;
const DEFAULT_RETRY_MS = 60_000;
const PART_BYTES = 8 << 20;
/** Shards that are brought to the disk at a time. */
const PROVIDED_AT_ONCE = 4;
/** Parts that are under way while one is written. */
const PARTS_AHEAD = 3;
/** A partial file that nobody has written to for so long has no writer any more. */
const PARTIAL_DEAD_MS = 3_600_000;
const CACHED = /^[0-9a-f]{64}\.safetensors$/;
const PARTIAL = /^\..*\.partial$/;

export function cachedShardSource(far: ShardSource, options: DiskCacheOptions): ShardSource {
  const cache = new DiskCache(far, options);
  return {
    place: far.place,
    isFar: far.isFar === true,
    whole: (shard) => cache.whole(shard),
    range: (shard, from, to) => cache.range(shard, from, to),
  };
}

class DiskCache {
  private readonly checkedHere = new Map<string, Promise<boolean>>();
  /** On the disk, and checked. */
  private readonly ready = new Set<string>();
  private underWay = 0;
  private readonly waiting: (() => void)[] = [];
  private isOff = false;
  /** Shards that met a fault that passes, and when. */
  private readonly failedAtMs = new Map<string, number>();
  private readonly folder: string;
  private readonly maxBytes: number;
  private readonly retryMs: number;
  private readonly onOff: ((reason: string) => void) | undefined;

  constructor(
    private readonly far: ShardSource,
    { folder, maxBytes = DEFAULT_MAX_BYTES, retryMs = DEFAULT_RETRY_MS, onOff }: DiskCacheOptions,
  ) {
    this.folder = folder;
    this.maxBytes = maxBytes;
    this.retryMs = retryMs;
    this.onOff = onOff;
  }

  async whole(shard: DatasetShard): Promise<Uint8Array> {
    if (!(await this.isThere(shard))) return this.far.whole(shard);
    const bytes = await this.read(shard, 0, shard.bytes);
    if (bytes && sha256Of(bytes) === shard.sha256) return bytes;
    this.forget(shard);
    return this.far.whole(shard);
  }

  /** A shard that is not on the disk is brought there meanwhile: nobody waits for 32 MiB who wants a row. */
  async range(shard: DatasetShard, from: number, to: number): Promise<Uint8Array> {
    if (this.ready.has(shard.sha256) || (await this.hasFile(shard))) {
      for (let tries = 0; tries < 2 && (await this.isThere(shard)); tries++) {
        const bytes = await this.read(shard, from, to);
        if (bytes) return bytes;
        this.forget(shard);
      }
    } else this.isThere(shard).catch(() => undefined); // who asks for the whole shard is told
    return this.far.range(shard, from, to);
  }

  private async hasFile(shard: DatasetShard): Promise<boolean> {
    const found = await stat(this.fileOf(shard)).catch(() => undefined); // not there yet
    return found?.size === shard.bytes;
  }

  /** Has the shard on the disk, checked; false when it is to be read from afar. @throws DatasetError of the far store */
  private isThere(shard: DatasetShard): Promise<boolean> {
    if (this.isOff || shard.bytes > this.maxBytes) return Promise.resolve(false);
    const failedAtMs = this.failedAtMs.get(shard.sha256);
    if (failedAtMs !== undefined && performance.now() - failedAtMs >= this.retryMs) {
      this.failedAtMs.delete(shard.sha256);
      this.forget(shard);
    }
    let found = this.checkedHere.get(shard.sha256);
    if (!found) {
      found = this.inTurn(() => this.provide(shard));
      this.checkedHere.set(shard.sha256, found);
      found.then(
        (isThere) => void (isThere && this.ready.add(shard.sha256)),
        () => this.forget(shard),
      );
    }
    return found;
  }

  private async inTurn<T>(work: () => Promise<T>): Promise<T> {
    if (this.underWay >= PROVIDED_AT_ONCE) await new Promise<void>((resolve) => this.waiting.push(resolve));
    else this.underWay++;
    try {
      return await work();
    } finally {
      const next = this.waiting.shift();
      if (next) next();
      else this.underWay--;
    }
  }

  private forget({ sha256 }: Pick<DatasetShard, 'sha256'>): void {
    this.checkedHere.delete(sha256);
    this.ready.delete(sha256);
  }

  private fileOf(shard: DatasetShard): string {
    return path.join(this.folder, `${shard.sha256}.safetensors`);
  }

  private async provide(shard: DatasetShard): Promise<boolean> {
    const file = this.fileOf(shard);
    if (await isIntact(file, shard)) {
      await utimes(file, new Date(), new Date()).catch(() => undefined); // another process may remove it now; then it is fetched again
      return true;
    }
    const temporary = path.join(this.folder, `.${shard.sha256}.${process.pid}-${randomBytes(6).toString('hex')}.partial`);
    let handle: FileHandle | undefined;
    try {
      await this.makeRoom(shard.bytes);
      handle = await open(temporary, 'wx', 0o600);
      const isWhole = await this.copy(shard, handle);
      await handle.close();
      handle = undefined;
      if (isWhole) await rename(temporary, file);
      return isWhole;
    } catch (error) {
      if (!isOfDisk(error)) throw error;
      if (PASSING.has((error as NodeJS.ErrnoException).code)) this.failedAtMs.set(shard.sha256, performance.now());
      else this.turnOff(error);
      return false; // read from the far store meanwhile
    } finally {
      await handle?.close().catch(() => undefined); // the failure that is under way says more
      await rm(temporary, { force: true }).catch(() => undefined); // a sweep finds it when it is old
    }
  }

  /** @returns false when the bytes do not have the hash: the far store is then asked for the whole, and says so */
  private async copy(shard: DatasetShard, handle: FileHandle): Promise<boolean> {
    const hash = createHash('sha256');
    const ahead: Promise<Uint8Array>[] = [];
    let next = 0;
    const ask = (): void => {
      if (next >= shard.bytes) return;
      const part = this.far.range(shard, next, Math.min(next + PART_BYTES, shard.bytes));
      part.catch(() => undefined); // it is awaited below, perhaps after another has failed
      ahead.push(part);
      next += PART_BYTES;
    };
    for (let i = 0; i < PARTS_AHEAD; i++) ask();
    for (let part = ahead.shift(); part; part = ahead.shift()) {
      const bytes = await part;
      ask();
      hash.update(bytes);
      await handle.appendFile(bytes);
    }
    return hash.digest('hex') === shard.sha256;
  }

  /** @returns undefined when the file is not there any more, or shorter */
  private async read(shard: DatasetShard, from: number, to: number): Promise<Uint8Array | undefined> {
    const handle = await open(this.fileOf(shard), 'r').catch(() => undefined); // removed by another process, or not to be read: fetched again
    if (!handle) return undefined;
    try {
      const bytes = new Uint8Array(to - from);
      let filled = 0;
      while (filled < bytes.length) {
        const { bytesRead } = await handle.read(bytes, filled, bytes.length - filled, from + filled);
        if (bytesRead === 0) return undefined;
        filled += bytesRead;
      }
      return bytes;
    } finally {
      await handle.close();
    }
  }

  private async makeRoom(bytes: number): Promise<void> {
    await mkdir(this.folder, { recursive: true, mode: 0o700 });
    const files: { name: string; size: number; usedAtMs: number }[] = [];
    for (const name of await readdir(this.folder)) {
      if (!CACHED.test(name) && !PARTIAL.test(name)) continue;
      const found = await stat(path.join(this.folder, name)).catch(() => undefined); // removed since the folder was read
      if (!found) continue;
      if (PARTIAL.test(name) && found.mtimeMs < Date.now() - PARTIAL_DEAD_MS) await rm(path.join(this.folder, name), { force: true });
      else files.push({ name, size: found.size, usedAtMs: PARTIAL.test(name) ? Infinity : found.mtimeMs });
    }
    files.sort((a, b) => a.usedAtMs - b.usedAtMs);
    let total = files.reduce((sum, { size }) => sum + size, 0);
    for (const { name, size, usedAtMs } of files) {
      if (total + bytes <= this.maxBytes || usedAtMs === Infinity) break;
      await rm(path.join(this.folder, name), { force: true });
      this.forget({ sha256: name.slice(0, 64) });
      total -= size;
    }
  }

  private turnOff(error: unknown): void {
    if (this.isOff) return;
    this.isOff = true;
    const reason = error instanceof Error ? error.message : String(error);
    this.onOff?.(
      `the cache of datasets in ${this.folder} is not used any more, and shards are read from ${this.far.place}: ${reason}; make room on the disk`,
    );
  }
}

/** What passes by itself: too many open files, a network folder that does not answer, or another process whose sweep took a copy that was under way. */
const PASSING: ReadonlySet<string | undefined> = new Set([
  'EMFILE',
  'ENFILE',
  'ENOENT',
  'EAGAIN',
  'EBUSY',
  'ESTALE',
  'EINTR',
  'ENOMEM',
  'ETIMEDOUT',
  'ENOTCONN',
]);

/** Errors of the file system have a code and a system call; those of the far store have not. */
const isOfDisk = (error: unknown): boolean => typeof (error as NodeJS.ErrnoException | undefined)?.syscall === 'string';

async function isIntact(file: string, shard: DatasetShard): Promise<boolean> {
  const handle = await open(file, 'r').catch(() => undefined); // not there yet, in most cases
  if (!handle) return false;
  try {
    if ((await handle.stat()).size !== shard.bytes) return false;
    const hash = createHash('sha256');
    for await (const piece of handle.createReadStream({ autoClose: false, highWaterMark: 1 << 20 })) hash.update(piece as Buffer);
    return hash.digest('hex') === shard.sha256;
  } finally {
    await handle.close();
  }
}
