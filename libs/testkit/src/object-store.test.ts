/** One contract for every object store: a folder on the real disk, a folder on a disk in memory, and S3. */
import { createHash } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { LocalStore, openStore, parseS3Url, S3Store, type ObjectStore } from '@paceline/storage';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { diskError, FaultyDisk } from './faulty-disk.js';
import { S3_TEST_CREDENTIALS, S3TestServer } from './s3-server.js';

let s3: S3TestServer;
beforeAll(async () => {
  Object.assign(process.env, S3_TEST_CREDENTIALS);
  s3 = await S3TestServer.start();
});
afterAll(() => s3.stop());

const folders: string[] = [];
afterAll(() => Promise.all(folders.map((folder) => rm(folder, { recursive: true, force: true }))));

interface Place {
  /** Two stores that see the same objects. */
  readonly one: ObjectStore;
  readonly two: ObjectStore;
  /** Whatever is stored, finished or not. */
  residue(): Promise<string[]>;
}

let made = 0;
const PLACES: Record<string, () => Promise<Place>> = {
  'a folder': async () => {
    const folder = await mkdtemp(path.join(tmpdir(), 'paceline-store-'));
    folders.push(folder);
    const { readdir } = await import('node:fs/promises');
    const files = async () => (await readdir(folder, { recursive: true, withFileTypes: true })).filter((entry) => entry.isFile());
    return { one: openStore(folder), two: openStore(folder), residue: async () => (await files()).map(({ name }) => name) };
  },
  'a disk in memory': () => {
    const disk = new FaultyDisk();
    return Promise.resolve({
      one: openStore('/a/store', disk),
      two: openStore('/a/store', disk),
      residue: () => Promise.resolve(disk.files()),
    });
  },
  S3: () => {
    const prefix = `test-${++made}/deep`;
    const residue = () => [...s3.objects.keys(), ...[...s3.uploads.values()].map(({ key }) => `${key} (upload)`)];
    return Promise.resolve({
      one: openStore(s3.url(prefix)),
      two: openStore(s3.url(prefix)),
      residue: () => Promise.resolve(residue().filter((key) => key.startsWith(prefix))),
    });
  },
};

const bytesOf = (text: string): Uint8Array => Buffer.from(text);
const textOf = async (store: ObjectStore, key: string): Promise<string> => Buffer.from(await store.read(key)).toString();
const noise = (bytes: number): Buffer => Buffer.alloc(bytes, createHash('sha512').update(`${bytes}`).digest());

describe.each(Object.keys(PLACES))('an object store on %s', (name) => {
  let place: Place;
  let store: ObjectStore;
  beforeEach(async () => {
    place = await PLACES[name]!();
    store = place.one;
  });
  afterEach(async () => {
    for (const each of [place.one, place.two]) if (each instanceof S3Store) await each.close();
  });

  test('gives back what was put, with its length and hash, whole and by range', async () => {
    const put = await store.put('a/b.txt', [bytesOf('hello '), bytesOf('world')]);
    expect(put).toEqual({ bytes: 11, sha256: createHash('sha256').update('hello world').digest('hex') });
    expect(await textOf(place.two, 'a/b.txt')).toBe('hello world');
    expect(Buffer.from(await store.read('a/b.txt', 6, 9)).toString()).toBe('wor');
    expect(Buffer.from(await store.read('a/b.txt', 6, 900)).toString()).toBe('world');
    expect(await store.read('a/b.txt', 11, 12)).toEqual(new Uint8Array(0));
    expect(await store.read('a/b.txt', 3, 3)).toEqual(new Uint8Array(0));
  });

  test('keeps empty objects', async () => {
    expect((await store.put('empty', [])).bytes).toBe(0);
    expect(await store.read('empty')).toEqual(new Uint8Array(0));
    expect(await store.list('')).toEqual([{ key: 'empty', bytes: 0 }]);
  });

  test('replaces an object as a whole', async () => {
    await store.put('a', [bytesOf('old and long')]);
    await store.put('a', [bytesOf('new')]);
    expect(await textOf(store, 'a')).toBe('new');
  });

  test('never overwrites when asked not to, and one of many at once wins', async () => {
    const texts = ['first', 'second', 'third', 'fourth'];
    const results = await Promise.allSettled(
      texts.map((text, i) => (i % 2 === 0 ? place.one : place.two).put('a/b', [bytesOf(text)], { ifAbsent: true })),
    );
    const winners = texts.filter((_, i) => results[i]!.status === 'fulfilled');
    expect(winners).toHaveLength(1);
    expect(await textOf(store, 'a/b')).toBe(winners[0]);
    for (const result of results) if (result.status === 'rejected') expect(result.reason).toMatchObject({ code: 'ALREADY_EXISTS' });
    expect(await place.residue()).toHaveLength(1);
  });

  test('streams an object of many pieces and parts, whatever pieces it came in', async () => {
    const whole = noise(17_000_001);
    async function* pieces() {
      const reused = Buffer.alloc(700_001); // a piece may be reused as soon as the next one is asked for
      for (let from = 0; from < whole.length; from += reused.length) {
        whole.copy(reused, 0, from);
        yield reused.subarray(0, Math.min(reused.length, whole.length - from));
        await Promise.resolve();
        reused.fill(0);
      }
    }
    const sha256 = createHash('sha256').update(whole).digest('hex');
    expect(await store.put('big', pieces())).toEqual({ bytes: whole.length, sha256 });
    const hash = createHash('sha256');
    let most = 0;
    for await (const piece of place.two.stream('big')) {
      hash.update(piece);
      most = Math.max(most, piece.length);
    }
    expect(hash.digest('hex')).toBe(sha256);
    expect(most).toBeLessThanOrEqual(1 << 20);
    expect(await place.residue()).toHaveLength(1);
  });

  test.each([10, 20_000_000])('shows nothing of an object whose body fails after %i bytes', async (bytes) => {
    await store.put('a', [bytesOf('old')]);
    const fail = () => {
      throw new Error('the source is gone');
    };
    function* broken() {
      yield noise(bytes);
      yield fail();
    }
    await expect(store.put('a', broken())).rejects.toThrow('the source is gone');
    expect(await textOf(store, 'a')).toBe('old');
    expect(await place.residue()).toHaveLength(1);
  });

  test('gives a write up when its signal is raised', async () => {
    const giveUp = new AbortController();
    function* body() {
      yield noise(9_000_000);
      giveUp.abort();
      yield noise(10);
    }
    await expect(store.put('a', body(), { signal: giveUp.signal })).rejects.toMatchObject({ code: 'WRITE_ABORTED' });
    expect(await place.residue()).toEqual([]);
  });

  test('lists by prefix in the order of keys, and removes in silence what is not there', async () => {
    for (const key of ['r/b/2', 'r/a/1', 'r/a/10', 'r/ab/1', 'q']) await store.put(key, [bytesOf(key)]);
    const keys = async (prefix: string) => (await place.two.list(prefix)).map(({ key }) => key);
    expect(await keys('')).toEqual(['q', 'r/a/1', 'r/a/10', 'r/ab/1', 'r/b/2']);
    expect(await keys('r/a')).toEqual(['r/a/1', 'r/a/10', 'r/ab/1']);
    expect(await keys('r/a/')).toEqual(['r/a/1', 'r/a/10']);
    expect(await keys('nothing/')).toEqual([]);
    await store.remove(['r/a/1', 'r/a/none', 'none/at/all', 'r/a/10']);
    expect(await keys('r')).toEqual(['r/ab/1', 'r/b/2']);
    await store.put('r/a/1', [bytesOf('again')]);
    expect(await keys('r/a/')).toEqual(['r/a/1']);
  });

  test('says what is not there', async () => {
    await expect(store.read('none')).rejects.toMatchObject({ code: 'NO_SUCH_OBJECT' });
    await expect(async () => {
      for await (const piece of store.stream('none')) void piece;
    }).rejects.toMatchObject({ code: 'NO_SUCH_OBJECT' });
  });

  test.each(['', '/a', 'a/', '../a', 'a/../../b', 'a//b', '.hidden', 'a/.b.partial', 'a\\b', 'a\0b', 'a b', 'x'.repeat(300)])(
    'refuses the key %j',
    async (key) => {
      await expect(store.put(key, [])).rejects.toMatchObject({ code: 'BAD_KEY' });
      await expect(store.read(key)).rejects.toMatchObject({ code: 'BAD_KEY' });
      await expect(store.remove([key])).rejects.toMatchObject({ code: 'BAD_KEY' });
      expect(await place.residue()).toEqual([]);
    },
  );

  test('has one identity for all who see the same objects, and another elsewhere', async () => {
    const [a, b] = await Promise.all([place.one.identity(), place.two.identity()]);
    expect(a).toBe(b);
    const elsewhere = (await PLACES[name]!()).one;
    expect(await elsewhere.identity()).not.toBe(a);
    if (elsewhere instanceof S3Store) await elsewhere.close();
  });
});

describe('a folder', () => {
  test('takes no identity from anybody that was told it: its maker died at any moment, and then the power went', async () => {
    let operationsLeft = 0;
    for (let operations = 0; operationsLeft <= 0; operations++) {
      const disk = new FaultyDisk();
      await disk.makeFolder('/store');
      await disk.syncFolder('/');
      operationsLeft = operations;
      disk.before = () => {
        if (operationsLeft-- <= 0) throw diskError('EIO', 'its process has died');
      };
      await new LocalStore('/store', disk).identity().catch(() => undefined);
      disk.before = () => undefined;
      const told = await new LocalStore('/store', disk).identity();
      expect(await new LocalStore('/store', disk.survivor('all-lost')).identity(), `after ${operations} operations`).toBe(told);
    }
  });

  test('removes what dead writers left, once it is idle, and not what is being written', async () => {
    let nowMs = 0;
    const disk = new FaultyDisk(undefined, () => nowMs);
    const store = new LocalStore('/store', disk, () => nowMs);
    disk.before = ({ kind }) => (kind === 'sync' ? disk.stop() : undefined);
    await expect(store.put('runs/x/a', [bytesOf('half')])).rejects.toMatchObject({ code: 'STORE_UNAVAILABLE' });
    const after = disk.survivor('process');
    expect(after.files().join()).toMatch(/^\/store\/runs\/x\/\.a\..*\.partial$/);
    const next = new LocalStore('/store', after, () => nowMs);
    expect(await next.list('')).toEqual([]);
    nowMs = 999;
    expect(await next.removeUnfinished('runs/', 1000)).toBe(0);
    nowMs = 1001;
    expect(await next.removeUnfinished('runs/', 1000)).toBe(1);
    expect(after.files()).toEqual([]);
  });

  test.each(['EACCES', 'EROFS', 'EIO', 'EDQUOT'])('says what %s means', async (code) => {
    const disk = new FaultyDisk();
    disk.before = ({ kind, path: at }) => {
      if (kind === 'write') throw diskError(code, at);
    };
    const meanings: Record<string, string> = {
      EACCES: 'STORE_FORBIDDEN',
      EROFS: 'STORE_FORBIDDEN',
      EIO: 'STORE_UNAVAILABLE',
      EDQUOT: 'DISK_FULL',
    };
    await expect(openStore('/store', disk).put('a', [bytesOf('x')])).rejects.toMatchObject({ code: meanings[code] });
    expect(disk.files()).toEqual([]);
  });
});

describe('S3', () => {
  afterEach(() => void (s3.fault = () => 'none'));
  const open = (deadlineMs?: number): S3Store => new S3Store(parseS3Url(s3.url(`test-${++made}`)), deadlineMs);

  test('lists over many pages', async () => {
    const store = open();
    s3.pageObjects = 3;
    for (let i = 0; i < 8; i++) await store.put(`k/${i}`, [bytesOf(`${i}`)]);
    expect((await store.list('k/')).map(({ key }) => key)).toEqual([0, 1, 2, 3, 4, 5, 6, 7].map((i) => `k/${i}`));
    s3.pageObjects = 1000;
    await store.close();
  });

  test('tries again after refusals, resets and lost answers', async () => {
    const store = open();
    let faults = 0;
    const answers = [503, 'reset', 'lose-answer'] as const;
    s3.fault = () => answers[faults++] ?? 'none';
    await store.put('a', [bytesOf('kept')]);
    expect(faults).toBe(4);
    faults = 0;
    expect(await textOf(store, 'a')).toBe('kept');
    expect(faults).toBe(4);
    await store.close();
  });

  test('gives up on an endpoint that is silent, and leaves no part behind when it is heard again', async () => {
    const store = open(1500);
    const before = s3.uploads.size;
    let isSilent = true;
    s3.fault = ({ query }) => (query.get('partNumber') === '2' && isSilent ? 'silence' : 'none');
    await expect(store.put('big', [noise(20_000_000)])).rejects.toMatchObject({ code: 'STORE_UNAVAILABLE' });
    isSilent = false;
    expect(s3.uploads.size).toBe(before);
    expect(await store.list('')).toEqual([]);
    await store.close();
  });

  test('holds no more than one part of a large object', async () => {
    const store = open();
    s3.largestBodyBytes = 0;
    function* body() {
      for (let i = 0; i < 30; i++) yield noise(1 << 20);
    }
    await store.put('big', body());
    expect(s3.largestBodyBytes).toBe(8 << 20);
    await store.close();
  });

  test('refuses a conditional multipart upload of a key that is taken', async () => {
    const store = open();
    await store.put('big', [bytesOf('there')]);
    await expect(store.put('big', [noise(9_000_000)], { ifAbsent: true })).rejects.toMatchObject({ code: 'ALREADY_EXISTS' });
    expect(await textOf(store, 'big')).toBe('there');
    await store.close();
  });

  test.each([false, true])(
    'takes its own object for written when the answer to the completion was lost, ifAbsent: %s',
    async (ifAbsent) => {
      const store = open();
      const losesCompletion = (): void => {
        let isLost = false;
        s3.fault = ({ method, query }) => {
          if (isLost || method !== 'POST' || !query.has('uploadId')) return 'none';
          isLost = true;
          return 'lose-answer';
        };
      };
      losesCompletion();
      const { bytes } = await store.put('big', [noise(9_000_000)], { ifAbsent });
      expect([bytes, (await store.list('')).map((each) => each.bytes)]).toEqual([9_000_000, [9_000_000]]);
      losesCompletion();
      const again = store.put('big', [noise(9_500_000)], { ifAbsent });
      if (ifAbsent) await expect(again).rejects.toMatchObject({ code: 'ALREADY_EXISTS' });
      else await again;
      expect((await store.list('')).map((each) => each.bytes)).toEqual([ifAbsent ? 9_000_000 : 9_500_000]);
      await store.close();
    },
  );

  test('an upload that somebody ended is no object that was written', async () => {
    const store = open();
    await store.put('big', [noise(9_000_000)]);
    s3.fault = ({ method, query }) => {
      if (method === 'POST' && query.has('uploadId')) s3.uploads.clear();
      return 'none';
    };
    await expect(store.put('big', [noise(9_500_000)])).rejects.toMatchObject({ code: 'NO_SUCH_OBJECT' });
    await store.close();
  });

  test('removes uploads that are older than a day', async () => {
    const store = open();
    let isCut = false;
    s3.fault = ({ method, query }) => ((isCut ||= query.get('partNumber') === '2' || (isCut && method === 'DELETE')) ? 403 : 'none');
    await expect(store.put('big', [noise(20_000_000)])).rejects.toMatchObject({ code: 'STORE_FORBIDDEN' });
    s3.fault = () => 'none';
    expect(await store.removeUnfinished('', 1000)).toBe(0);
    for (const upload of s3.uploads.values()) upload.initiatedAt = new Date(Date.now() - 100_000_000);
    expect(await store.removeUnfinished('', 1000)).toBe(1);
    await store.close();
  });

  test('says that the credentials are wrong, and that there is no such bucket', async () => {
    const elsewhere = openStore(s3.url().replace('s3://checkpoints', 's3://elsewhere'));
    await expect(elsewhere.list('')).rejects.toThrow(/STORE_UNAVAILABLE.*no such bucket/);
    process.env['AWS_ACCESS_KEY_ID'] = 'somebody-else';
    const store = open();
    await expect(store.list('')).rejects.toMatchObject({ code: 'STORE_FORBIDDEN' });
    Object.assign(process.env, S3_TEST_CREDENTIALS);
    await store.close();
  });

  test.each([
    's3://',
    's3://b',
    's3://UPPER/x',
    's3://user:hush-hush@bucket/x',
    's3://bucket/../x',
    's3://bucket/a b',
    's3://bucket?endpoint=ftp://x',
    's3://bucket?secret=1',
    's3://bucket:9000/x',
    'http://bucket/x',
    '',
  ])('refuses the address %j', (url) => {
    expect(() => openStore(url)).toThrow(/STORE_URL_INVALID/);
    expect(() => openStore(url)).not.toThrow(/hush/);
  });
});
