/** Checkpoints in S3, against the S3 server of the tests. */
import { Checkpoints, openStore } from '@paceline/storage';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { checkpointFault, checkpointAt, FIXTURE_RUN_ID, manifestOf, tensorsOf, writeCheckpoint } from './checkpoint-fixture.js';
import { S3_TEST_CREDENTIALS, S3TestServer } from './s3-server.js';

let s3: S3TestServer;
beforeAll(async () => {
  Object.assign(process.env, S3_TEST_CREDENTIALS);
  s3 = await S3TestServer.start();
});
afterAll(() => s3.stop());

const rounds = async (checkpoints: Checkpoints): Promise<number[]> => (await checkpoints.list(FIXTURE_RUN_ID)).map(({ round }) => round);

test('checkpoints in S3: written, read, one manifest wins, and a lost answer does no harm', async () => {
  const [one, two] = [0, 1].map(() => new Checkpoints(openStore(s3.url('runs-of-a-team')))) as [Checkpoints, Checkpoints];
  const id = checkpointAt(1, 10);
  const shards = [
    await one.writeShard(id, 0, tensorsOf(id, 0), { servers: 2 }),
    await two.writeShard(id, 1, tensorsOf(id, 1), { servers: 2 }),
  ];
  const results = await Promise.allSettled([
    one.publish(manifestOf(id, shards, { loss: 1 })),
    two.publish(manifestOf(id, shards, { loss: 2 })),
  ]);
  expect(results.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected']);
  expect(await checkpointFault(two, id)).toBeUndefined();
  let isLost = false;
  s3.fault = ({ method, key }) =>
    method === 'PUT' && key.endsWith('manifest.json') && !isLost ? ((isLost = true), 'lose-answer') : 'none';
  await writeCheckpoint(one, checkpointAt(1, 20));
  expect(isLost).toBe(true);
  expect(await rounds(two)).toEqual([20, 10]);
});

test('a sweep removes manifests and files from S3, the manifest of each first', async () => {
  const checkpoints = new Checkpoints(openStore(s3.url('swept')));
  for (const round of [10, 20, 30]) await writeCheckpoint(checkpoints, checkpointAt(1, round));
  s3.requests.length = 0;
  await checkpoints.sweep(FIXTURE_RUN_ID, { keepLast: 1, keepBest: false });
  expect(await rounds(checkpoints)).toEqual([30]);
  const removed = s3.requests.filter(({ method }) => method === 'DELETE').map(({ key }) => key.replace(/.*checkpoints\//, ''));
  expect(removed).toEqual([
    'a1-r10/manifest.json',
    'a1-r10/shard-0-of-2.safetensors',
    'a1-r10/shard-1-of-2.safetensors',
    'a1-r20/manifest.json',
    'a1-r20/shard-0-of-2.safetensors',
    'a1-r20/shard-1-of-2.safetensors',
  ]);
});

test('a file that changed in S3 is found before anything of it is handed out', async () => {
  const checkpoints = new Checkpoints(openStore(s3.url('flipped')));
  await writeCheckpoint(checkpoints, checkpointAt(1, 10));
  const key = [...s3.objects.keys()].find((name) => name.startsWith('flipped/') && name.includes('shard-1'))!;
  s3.objects.get(key)![1500]! ^= 4;
  expect(await checkpointFault(checkpoints, checkpointAt(1, 10))).toMatch(/^CHECKPOINT_INVALID: .*shard-1-of-2.*SHA-256/);
});
