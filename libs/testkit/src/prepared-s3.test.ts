/** Rows of a prepared dataset from S3: the same bits as from memory, through faults, and from the disk cache without a request. */
import { createHash } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import {
  builtInTable,
  cachedShardSource,
  openPreparedRows,
  openRunRows,
  preparedRunData,
  resolveFeatures,
  rowBuffers,
  storeShardSource,
  type RunRowsSettings,
  type ShardSource,
} from '@paceline/data';
import { datasetManifestKey, datasetShardKey, fieldLength, parseRunSpec } from '@paceline/spec';
import { canonicalJson, openStore, type ObjectStore } from '@paceline/storage';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { S3_TEST_CREDENTIALS, S3TestServer } from './s3-server.js';

const TEAM = '22222222-2222-4222-8222-222222222222';
const { manifest, source: memory } = builtInTable('made-up-regression');
let server: S3TestServer;
let store: ObjectStore;
let folder: string;

beforeAll(async () => {
  Object.assign(process.env, S3_TEST_CREDENTIALS);
  server = await S3TestServer.start();
  store = openStore(server.url('data'));
  folder = await mkdtemp(path.join(tmpdir(), 'paceline-prepared-s3-'));
  for (const split of [manifest.splits.train, manifest.splits.test!])
    for (const shard of split.shards) await store.put(datasetShardKey(TEAM, shard.sha256), [await memory.whole(shard)]);
});
afterAll(async () => {
  await server.stop();
  await rm(folder, { recursive: true });
});

async function rowsFrom(source: ShardSource) {
  const resolved = resolveFeatures(manifest);
  if (!resolved.ok) throw new Error('no plan');
  const { plan } = resolved;
  const rows = openPreparedRows(manifest, plan, source);
  const into = {
    inputs: plan.rowFormat.inputs.map((field) => new Float32Array(100 * fieldLength(field))),
    targets: plan.rowFormat.targets.map((field) => new Float32Array(100 * fieldLength(field))),
    weights: undefined,
  };
  const indices = Int32Array.from({ length: 100 }, (_, i) => (i * 37) % 500);
  await untilInMemory(() => rows.evaluation.gather(indices, 0, 100, into));
  await rows.close();
  return into;
}

/** The first rows of a bucket are read by their position while whole shards come; rows of shards that are there come at once. */
async function untilInMemory(gather: () => Promise<void> | void): Promise<void> {
  for (let coming = gather(); coming !== undefined; coming = gather()) {
    await coming;
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}

it('has the same bits as memory, and the second time without a request', async () => {
  const expected = await rowsFrom(memory);
  expect(await rowsFrom(storeShardSource(store, TEAM))).toEqual(expected);
  expect(await rowsFrom(cachedShardSource(storeShardSource(store, TEAM), { folder }))).toEqual(expected);
  const before = server.requests.length;
  expect(await rowsFrom(cachedShardSource(storeShardSource(store, TEAM), { folder }))).toEqual(expected);
  expect(server.requests.length).toBe(before);
});

it('goes on after answers that break off', async () => {
  let faults = 0;
  server.fault = ({ method }) => (method === 'GET' && faults++ < 2 ? 'reset' : 'none');
  expect(await rowsFrom(storeShardSource(store, TEAM, { backoffMs: 1 }))).toEqual(await rowsFrom(memory));
  expect(faults).toBeGreaterThan(2);
  server.fault = () => 'none';
});

it('another team does not find the shards', async () => {
  const other = storeShardSource(store, '33333333-3333-4333-8333-333333333333', { backoffMs: 1 });
  await expect(rowsFrom(other)).rejects.toMatchObject({
    code: 'DATASET_UNREADABLE',
    message: expect.stringContaining('is not in s3://') as string,
  });
});

describe('as a worker opens the data of a run', () => {
  const manifestBytes = Buffer.from(canonicalJson(manifest));
  const version = createHash('sha256').update(manifestBytes).digest('hex');
  let told: string[];
  beforeAll(() => store.put(datasetManifestKey(TEAM, version), [manifestBytes]));
  beforeEach(() => (told = []));

  async function firstRows(settings: Partial<RunRowsSettings>) {
    const resolved = resolveFeatures(manifest);
    const parsed = parseRunSpec({ dataset: `made-up@${version}` });
    if (!resolved.ok || !parsed.ok) throw new Error('no plan');
    const data = preparedRunData(resolved.plan, { teamId: TEAM, version });
    const rows = await openRunRows(data, parsed.spec, Object.assign({ dataStore: server.url('data') }, settings), (why) => told.push(why));
    const into = rowBuffers(rows.format, 10);
    const indices = Int32Array.from({ length: 10 }, (_, i) => i * 7);
    const gather = () => rows.train.gather(indices, 0, 10, into);
    if (settings.memoryBytes === 0) await gather();
    else await untilInMemory(gather);
    await rows.close();
    return into;
  }

  it('keeps shards in its folder, and the manifest is all that it asks for the second time', async () => {
    const cacheFolder = path.join(folder, 'of-worker');
    const expected = await firstRows({ cacheFolder: undefined });
    expect(await firstRows({ cacheFolder })).toEqual(expected);
    const before = server.requests.length;
    expect(await firstRows({ cacheFolder })).toEqual(expected);
    expect(server.requests.slice(before).map(({ key }) => key)).toEqual([expect.stringContaining(version)]);
    expect(told).toEqual([]);
  });

  it('reads without the cache when its folder cannot be written, and says so once', async () => {
    const file = path.join(folder, 'a-file');
    await writeFile(file, '');
    expect(await firstRows({ cacheFolder: path.join(file, 'cache') })).toEqual(await firstRows({}));
    expect(told).toEqual([expect.stringMatching(/^the cache of datasets in .* is not used any more.*make room on the disk/)]);
  });

  it('has the same rows when no memory is left for them', async () => {
    expect(await firstRows({ memoryBytes: 0 })).toEqual(await firstRows({}));
  });

  it('names the dataset, the shard and what to do', async () => {
    const other = firstRows({ dataStore: server.url('elsewhere') });
    await expect(other).rejects.toMatchObject({
      code: 'DATASET_UNREADABLE',
      message: expect.stringMatching(
        /^dataset made-up@.{12}: it is not in s3:.*set PACELINE_DATA_STORE of the worker to what the api has/,
      ) as string,
    });
    const [shard] = manifest.splits.train.shards;
    const key = [...server.objects.keys()].find((name) => name.includes(shard!.sha256))!;
    const intact = server.objects.get(key)!;
    const damaged = Buffer.from(intact);
    damaged[damaged.length - 1]! ^= 1;
    server.objects.set(key, damaged);
    await expect(firstRows({})).rejects.toMatchObject({
      code: 'DATASET_MALFORMED',
      message: expect.stringMatching(/^shard .{12} of dataset made-up@.{12}: its bytes in s3:.*import the data again/) as string,
    });
    server.objects.set(key, intact);
  });
});
