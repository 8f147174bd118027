import { createHash } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { datasetShardKey, featurePlanSchema, featuresSchema, fieldLength, type DatasetManifest, type FeaturePlan } from '@paceline/spec';
import { StorageError, type ObjectStore } from '@paceline/storage';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { RowBuffers, RowSplit } from '../contract.js';
import { resolveFeatures } from '../features/resolve-features.js';
import { MemoryBudget } from './memory-budget.js';
import { openPreparedRows } from './prepared-rows.js';
import { FIXTURE_TEAM, localStoreAt, writePrepared, type Row } from './prepared.fixture.js';
import { storeShardSource, type ShardSource } from './shard-source.js';

let folder: string;
let store: ObjectStore;
beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'paceline-prepared-'));
  store = localStoreAt(folder);
});
afterAll(() => rm(folder, { recursive: true }));

const CITIES = ['Rome', 'Oslo', 'Bern'];
const ROWS: Row[] = Array.from({ length: 50 }, (_, i) => ({
  age: i % 7 === 3 ? null : i / 2,
  height: 150 + ((i * 37) % 50),
  city: i % 11 === 5 ? null : CITIES[(i * 5) % 3]!,
  kind: ['b', 'a'][i % 2]!,
  pixels: [i, 2 * i, 255 - i, 7],
  steps: Array.from({ length: i % 5 }, (_, k) => i + k),
  weight: 1 + (i % 3),
}));

/** A copy for each test, of what is written once. */
const table = async (): Promise<DatasetManifest> => structuredClone(await (written ??= writtenTable()));
let written: Promise<DatasetManifest> | undefined;

const writtenTable = () =>
  writePrepared(store, {
    columns: [
      { name: 'age', kind: 'number' },
      { name: 'height', kind: 'number' },
      { name: 'city', kind: 'category' },
      { name: 'kind', kind: 'category' },
      { name: 'pixels', kind: 'array', dtype: 'U8', shape: [2, 2] },
      { name: 'steps', kind: 'sequence', dtype: 'I32', shape: [] },
      { name: 'weight', kind: 'number' },
    ],
    splits: { train: ROWS.slice(0, 40), test: ROWS.slice(40) },
    label: 'kind',
    isOrdered: true,
    rowsPerShard: 7,
  });

function planOf(manifest: DatasetManifest, features: unknown): FeaturePlan {
  const result = resolveFeatures(manifest, featuresSchema.parse(features));
  if (!result.ok) throw new Error(JSON.stringify(result.issues));
  // A plan is kept as JSON.
  return featurePlanSchema.parse(JSON.parse(JSON.stringify(result.plan)));
}

function buffersFor({ rowFormat }: FeaturePlan, examples: number): RowBuffers {
  return {
    inputs: rowFormat.inputs.map((field) => new Float32Array(examples * fieldLength(field)).fill(NaN)),
    targets: rowFormat.targets.map((field) => new Float32Array(examples * fieldLength(field)).fill(NaN)),
    weights: rowFormat.isWeighted ? new Float32Array(examples).fill(NaN) : undefined,
  };
}

async function rowsOf(plan: FeaturePlan, split: RowSplit, indices: readonly number[]): Promise<RowBuffers> {
  const into = buffersFor(plan, indices.length);
  await split.gather(Int32Array.from(indices), 0, indices.length, into);
  return into;
}

const BOTH = {
  inputs: {
    x: [
      { kind: 'number' as const, columns: ['height', 'age'] },
      { kind: 'category' as const, column: 'city' },
      { kind: 'category' as const, column: 'city', encode: 'index' as const },
    ],
    p: [{ kind: 'array' as const, column: 'pixels', scale: 'unit' as const }],
    s: [{ kind: 'sequence' as const, column: 'steps', length: 3 }],
  },
  weightColumn: 'weight',
};

describe('rows of a prepared dataset', () => {
  it('numbers are standardised, categories one-hot by the sorted vocabulary, classes by theirs', async () => {
    const manifest = await table();
    const plan = planOf(manifest, BOTH);
    const rows = openPreparedRows(manifest, plan, storeShardSource(store, FIXTURE_TEAM));
    const { inputs, targets, weights } = await rowsOf(plan, rows.train, [39, 3, 5]);

    const heights = ROWS.slice(0, 40).map(({ height }) => height as number);
    const mean = heights.reduce((sum, each) => sum + each) / 40;
    const deviation = Math.sqrt(heights.reduce((sum, each) => sum + (each - mean) ** 2, 0) / 40);
    const [x, p, s] = inputs;
    expect(x![0]).toBeCloseTo((heights[39]! - mean) / deviation, 5);
    // Row 3 has no age: it is the mean, so 0 after scaling. Row 5 has no city.
    expect(x![7]).toBe(0);
    expect([...x!.slice(2, 6)]).toEqual([0, 0, 1, 3]);
    expect([...x!.slice(14, 18)]).toEqual([0, 0, 0, 0]);
    expect([...p!.slice(0, 4)]).toEqual([39, 78, 216, 7].map((byte) => Math.fround(byte / 255)));
    expect([...s!]).toEqual([39, 40, 41, 3, 4, 5, 0, 0, 0]);
    expect([...targets[0]!]).toEqual([0, 0, 0]);
    expect([...weights!]).toEqual([1, 1, 3]);
    expect((await rowsOf(plan, rows.evaluation, [0])).targets[0]).toEqual(Float32Array.of(1));
    expect(plan.targets[0]!.labels).toEqual(['a', 'b']);
    await rows.close();
  });

  it('has the same bits however little memory there is, and never holds more than it may', async () => {
    const manifest = await table();
    const plan = planOf(manifest, BOTH);
    const indices = [17, 0, 39, 6, 7, 17, 22, 21, 35, 1];
    const results: RowBuffers[] = [];
    for (const bytes of [1 << 20, 5000, 0]) {
      const memory = new MemoryBudget(bytes);
      const rows = openPreparedRows(manifest, plan, storeShardSource(store, FIXTURE_TEAM), { memory });
      results.push(await rowsOf(plan, rows.train, indices), await rowsOf(plan, rows.train, indices));
      expect(memory.usedBytes).toBeLessThanOrEqual(bytes);
      if (bytes > 0) expect(memory.usedBytes).toBeGreaterThan(0);
      await rows.close();
      expect(memory.usedBytes).toBe(0);
    }
    for (const result of results) expect(result).toEqual(results[0]);
  });

  it('is copied at once when all of it lies in memory', async () => {
    const manifest = await table();
    const plan = planOf(manifest, { inputs: { x: BOTH.inputs.x } });
    const rows = openPreparedRows(manifest, plan, storeShardSource(store, FIXTURE_TEAM));
    await rowsOf(plan, rows.train, [...Array(40).keys()]);
    expect(rows.train.gather(Int32Array.of(0, 39), 0, 2, buffersFor(plan, 2))).toBeUndefined();
    await rows.close();
  });

  it('has all shards in memory when they just fit, although several are fetched at once', async () => {
    const manifest = await table();
    const plan = planOf(manifest, { inputs: { x: BOTH.inputs.x } });
    const all = [...Array(40).keys()];
    const wide = new MemoryBudget(1 << 20);
    const first = openPreparedRows(manifest, plan, storeShardSource(store, FIXTURE_TEAM), { memory: wide });
    await rowsOf(plan, first.train, all);
    const bytes = wide.usedBytes + Math.max(...manifest.splits.train.shards.map((shard) => shard.bytes));
    await first.close();
    const rows = openPreparedRows(manifest, plan, storeShardSource(store, FIXTURE_TEAM), { memory: new MemoryBudget(bytes) });
    await rowsOf(plan, rows.train, all);
    expect(rows.train.gather(Int32Array.from(all), 0, 40, buffersFor(plan, 40))).toBeUndefined();
    await rows.close();
  });

  it('windows that are longer than a split are refused with the figures', async () => {
    const result = resolveFeatures(
      await table(),
      featuresSchema.parse({
        inputs: { x: [{ kind: 'window', columns: ['height', 'weight'], lookback: 9, step: 4 }] },
        targets: { y: { kind: 'window', columns: ['height'], delay: 2 } },
      }),
    );
    expect(result).toEqual({
      ok: false,
      issues: [{ path: 'features', message: 'an example spans 11 rows and the test split has 10: make lookback or delay smaller' }],
    });
  });

  it('windows go over shards, and every row of them is the right one', async () => {
    const manifest = await table();
    for (const [step, memory] of [
      [1, 1 << 20],
      [3, 1 << 20],
      [2, 0],
    ] as const) {
      const plan = planOf(manifest, {
        inputs: { x: [{ kind: 'window', columns: ['height', 'weight'], lookback: 5, step, scale: 'none' }] },
        targets: { y: { kind: 'window', columns: ['height'], delay: 2, scale: 'none' } },
      });
      const rows = openPreparedRows(manifest, plan, storeShardSource(store, FIXTURE_TEAM), { memory: new MemoryBudget(memory) });
      expect(rows.train.count).toBe(34);
      expect(rows.evaluation.count).toBe(4);
      const { inputs, targets } = await rowsOf(plan, rows.train, [0, 33, 5]);
      // The second time from memory alone, where there is some.
      expect(await rowsOf(plan, rows.train, [0, 33, 5])).toEqual({ inputs, targets, weights: undefined });
      const expected = [0, 33, 5].map((example) => {
        const seen = [];
        for (let row = example + 4; row >= example; row -= step) seen.unshift(row);
        return { x: seen.flatMap((row) => [ROWS[row]!['height'], ROWS[row]!['weight']]), y: ROWS[example + 6]!['height'] };
      });
      expect([...inputs[0]!]).toEqual(expected.flatMap(({ x }) => x));
      expect([...targets[0]!]).toEqual(expected.map(({ y }) => y));
      await rows.close();
    }
  });

  it('classes weigh in training alone, and balanced ones by the inverse of their share', async () => {
    const manifest = await table();
    const plan = planOf(manifest, { inputs: { x: BOTH.inputs.x }, classWeights: { b: 5 }, weightColumn: 'weight' });
    const rows = openPreparedRows(manifest, plan, storeShardSource(store, FIXTURE_TEAM));
    expect([...(await rowsOf(plan, rows.train, [0, 1, 2])).weights!]).toEqual([5, 2, 15]);
    expect([...(await rowsOf(plan, rows.evaluation, [0, 2])).weights!]).toEqual([2, 1]);
    await rows.close();
    expect(planOf(manifest, { inputs: { x: BOTH.inputs.x }, balanceClasses: true }).weight.classes).toEqual([1, 1]);
  });

  it('an autoencoder has its input as the target', async () => {
    const manifest = await table();
    const plan = planOf(manifest, { inputs: { p: BOTH.inputs.p }, targets: { y: { kind: 'same' } } });
    const rows = openPreparedRows(manifest, plan, storeShardSource(store, FIXTURE_TEAM));
    const { inputs, targets } = await rowsOf(plan, rows.train, [9, 20]);
    expect(targets[0]).toEqual(inputs[0]);
    expect(plan.rowFormat.targets).toEqual([{ name: 'y', kind: 'values', shape: [2, 2] }]);
    await rows.close();
  });
});

describe('shards that are not what they should be', () => {
  const gatherAll = async (manifest: DatasetManifest, from: ObjectStore, memory: number): Promise<unknown> => {
    const plan = planOf(manifest, BOTH);
    const rows = openPreparedRows(manifest, plan, storeShardSource(from, FIXTURE_TEAM, { backoffMs: 1 }), {
      memory: new MemoryBudget(memory),
    });
    return rowsOf(plan, rows.train, [...Array(40).keys()]).finally(() => rows.close());
  };

  it('one byte that differs is found by the hash', async () => {
    const manifest = await table();
    const changed: ObjectStore = Object.create(store, {
      read: {
        value: async (key: string, from: number, to: number) => {
          const bytes = await store.read(key, from, to);
          bytes[bytes.length - 1]! ^= 1;
          return bytes;
        },
      },
    }) as ObjectStore;
    await expect(gatherAll(manifest, changed, 1 << 20)).rejects.toMatchObject({
      code: 'DATASET_MALFORMED',
      message: expect.stringMatching(/^shard [0-9a-f]{12}: .*SHA-256.*import the data again/) as string,
    });
  });

  it('a store that fails twice is asked a third time, and then no more', async () => {
    const manifest = await table();
    let failures = 2;
    const failing = Object.create(store, {
      read: {
        value: (key: string, from: number, to: number) =>
          failures-- > 0 ? Promise.reject(new StorageError('STORE_UNAVAILABLE', 'the disk is away')) : store.read(key, from, to),
      },
    }) as ObjectStore;
    const plan = planOf(manifest, BOTH);
    const source = storeShardSource(failing, FIXTURE_TEAM, { backoffMs: 1 });
    expect(await source.whole(manifest.splits.train.shards[0]!)).toBeInstanceOf(Uint8Array);
    failures = 3;
    await expect(source.whole(manifest.splits.train.shards[0]!)).rejects.toMatchObject({
      code: 'DATASET_AWAY',
      message: expect.stringContaining('3 tries') as string,
    });
    expect(plan.span).toBe(1);
  });

  it('a shard that is gone is named, with what to do', async () => {
    const manifest = await table();
    const key = datasetShardKey(FIXTURE_TEAM, manifest.splits.train.shards[2]!.sha256);
    const bytes = await store.read(key);
    await store.remove([key]);
    for (const memory of [1 << 20, 0])
      await expect(gatherAll(manifest, store, memory)).rejects.toMatchObject({
        code: 'DATASET_UNREADABLE',
        message: expect.stringContaining(manifest.splits.train.shards[2]!.sha256.slice(0, 12)) as string,
      });
    await store.put(key, [bytes]);
  });

  it.each([
    ['a column of another type', (text: string) => text.replace('"age":{"dtype":"F32"', '"age":{"dtype":"I32"'), /"age" is I32 \[7\]/],
    ['a column that is not there', (text: string) => text.replace('"age"', '"agx"'), /no tensor "age"/],
    ['fewer rows', (text: string) => text.replace('"shape":[7]', '"shape":[07]'), /header is not JSON/],
  ])('%s is told', async (_, change, message) => {
    const manifest = await table();
    const shard = manifest.splits.train.shards[0]!;
    const bytes = await store.read(datasetShardKey(FIXTURE_TEAM, shard.sha256));
    const file = Buffer.from(change(Buffer.from(bytes).toString('latin1')).slice(0, bytes.length), 'latin1');
    const sha256 = createHash('sha256').update(file).digest('hex');
    await store.put(datasetShardKey(FIXTURE_TEAM, sha256), [file]);
    Object.assign(shard, { sha256, bytes: file.length });
    for (const memory of [1 << 20, 0])
      await expect(gatherAll(manifest, store, memory)).rejects.toMatchObject({
        code: 'DATASET_MALFORMED',
        message: expect.stringMatching(message) as string,
      });
  });

  it('offsets that fall are refused', async () => {
    const manifest = await table();
    const shard = manifest.splits.train.shards[0]!;
    const bytes = Buffer.from(await store.read(datasetShardKey(FIXTURE_TEAM, shard.sha256)));
    const headerBytes = Number(bytes.readBigUInt64LE(0));
    const header = JSON.parse(bytes.subarray(8, 8 + headerBytes).toString()) as Record<string, { data_offsets: [number, number] }>;
    bytes.writeBigInt64LE(99n, 8 + headerBytes + header['steps:offsets']!.data_offsets[0] + 16);
    const sha256 = createHash('sha256').update(bytes).digest('hex');
    await store.put(datasetShardKey(FIXTURE_TEAM, sha256), [bytes]);
    Object.assign(shard, { sha256 });
    for (const memory of [1 << 20, 0])
      await expect(gatherAll(manifest, store, memory)).rejects.toMatchObject({
        code: 'DATASET_MALFORMED',
        message: expect.stringMatching(/offset . of "steps" is/) as string,
      });
  });
});

it.each([1 << 20, 0])('no window has rows of two series, with %i bytes of memory', async (memory) => {
  const manifest = await table();
  manifest.splits.train.starts = [5, 7, 30];
  manifest.splits.test!.starts = [4];
  const plan = planOf(manifest, {
    inputs: { past: [{ kind: 'window', columns: ['height'], lookback: 3, scale: 'none' }] },
    targets: { next: { kind: 'window', columns: ['height'], delay: 1, scale: 'none' } },
  });
  // 5, 2, 23 and 10 rows of training; 4 and 6 to measure on; an example spans 4.
  expect(plan.examples).toEqual({ train: 2 + 0 + 20 + 7, test: 1 + 3 });
  const rows = openPreparedRows(manifest, plan, storeShardSource(store, FIXTURE_TEAM), { memory: new MemoryBudget(memory) });
  const height = (row: number) => ROWS[row]!['height'];
  for (const [split, firsts] of [
    [rows.train, [1, 7, 26, 30]],
    [rows.evaluation, [40, 44, 46]],
  ] as const) {
    const { inputs, targets } = await rowsOf(plan, split, split === rows.train ? [1, 2, 21, 22] : [0, 1, 3]);
    expect([...inputs[0]!]).toEqual(firsts.flatMap((first) => [height(first), height(first + 1), height(first + 2)]));
    expect([...targets[0]!]).toEqual(firsts.map((first) => height(first + 3)));
  }
  expect(() => rows.train.gather(Int32Array.of(29), 0, 1, buffersFor(plan, 1))).toThrow('example 29 of 29');
  await rows.close();
});

it('rows and buffers out of range are refused', async () => {
  const manifest = await table();
  const plan = planOf(manifest, BOTH);
  const rows = openPreparedRows(manifest, plan, storeShardSource(store, FIXTURE_TEAM));
  expect(() => rows.train.gather(Int32Array.of(40), 0, 1, buffersFor(plan, 1))).toThrow('example 40 of 40');
  expect(() => rows.train.gather(Int32Array.of(0), 0, 2, buffersFor(plan, 2))).toThrow(RangeError);
  expect(() => rows.train.gather(Int32Array.of(0, 1), 0, 2, buffersFor(plan, 1))).toThrow('too small');
  await rows.close();
});

describe('shards that are far away', () => {
  /** Whole shards come when they are let; parts of them at once. */
  function farSource() {
    const near = storeShardSource(store, FIXTURE_TEAM);
    let arrive!: () => void;
    const arrived = new Promise<void>((resolve) => (arrive = resolve));
    const asked = { whole: 0, parts: 0 };
    const change: { whole?: (bytes: Uint8Array) => Uint8Array } = {};
    const source: ShardSource = {
      place: 'far',
      isFar: true,
      whole: async (shard) => {
        asked.whole++;
        await arrived;
        const bytes = await near.whole(shard);
        return change.whole ? change.whole(bytes) : bytes;
      },
      range: (shard, from, to) => (asked.parts++, near.range(shard, from, to)),
    };
    return { source, arrive, asked, change };
  }

  it('give the rows that are needed first by position, and are in memory later', async () => {
    const manifest = await table();
    const plan = planOf(manifest, { inputs: { x: [{ kind: 'number', columns: ['height', 'age'] }], p: BOTH.inputs.p } });
    const expected = await rowsOf(plan, openPreparedRows(manifest, plan, storeShardSource(store, FIXTURE_TEAM)).train, [39, 3, 5]);
    const { source, arrive, asked } = farSource();
    const { train } = openPreparedRows(manifest, plan, source);
    expect(await rowsOf(plan, train, [39, 3, 5])).toEqual(expected);
    expect(asked.whole).toBe(2);
    arrive();
    const before = asked.parts;
    for (;;) {
      const into = buffersFor(plan, 3);
      if (train.gather(Int32Array.of(39, 3, 5), 0, 3, into) === undefined) break;
      await new Promise((resolve) => setImmediate(resolve));
    }
    const parts = asked.parts;
    expect(await rowsOf(plan, train, [39, 3, 5])).toEqual(expected);
    expect([asked.whole, asked.parts]).toEqual([2, parts]);
    expect(parts).toBeGreaterThanOrEqual(before);
  });

  it('say that they are not what the manifest says as soon as they have come', async () => {
    const manifest = await table();
    const plan = planOf(manifest, { inputs: { x: [{ kind: 'number', columns: ['height'] }] } });
    const { source, arrive, change } = farSource();
    change.whole = (bytes) => bytes.slice(0, 40);
    const { train } = openPreparedRows(manifest, plan, source);
    await rowsOf(plan, train, [3]);
    arrive();
    await expect(
      (async () => {
        for (;;) {
          await rowsOf(plan, train, [3]);
          await new Promise((resolve) => setImmediate(resolve));
        }
      })(),
    ).rejects.toMatchObject({ code: 'DATASET_MALFORMED' });
  });
});
