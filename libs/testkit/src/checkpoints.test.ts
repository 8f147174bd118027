import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Checkpoints, manifestKey, openStore, type TensorSource } from '@paceline/storage';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { checkpointFault, checkpointAt, FIXTURE_RUN_ID, manifestOf, writeCheckpoint } from './checkpoint-fixture.js';

let folder: string;
beforeEach(async () => void (folder = await mkdtemp(path.join(tmpdir(), 'paceline-checkpoints-'))));
afterEach(() => rm(folder, { recursive: true, force: true }));

const floats = (...values: number[]): Uint8Array => new Uint8Array(Float32Array.from(values).buffer);
const tensor = (name: string, ...values: number[]): TensorSource => ({ name, shape: [values.length], read: () => floats(...values) });

test('a checkpoint is written, listed and read back from whichever file holds a tensor', async () => {
  const checkpoints = new Checkpoints(openStore(folder));
  await writeCheckpoint(checkpoints, checkpointAt(1, 5), { loss: 0.5 });
  const [summary] = await new Checkpoints(openStore(folder)).list(FIXTURE_RUN_ID);
  expect(summary).toMatchObject({ ...checkpointAt(1, 5), loss: 0.5, servers: 2, reason: 'cadence', key: manifestKey(checkpointAt(1, 5)) });
  const reader = await checkpoints.open(checkpointAt(1, 5));
  expect(reader.manifest.ledger.examples).toBe(1280);
  expect(reader.tensorNames).toEqual(['parameters/0', 'slots/velocity/0', 'parameters/1', 'slots/velocity/1']);
  expect(await checkpointFault(checkpoints, checkpointAt(1, 5))).toBeUndefined();
  expect(await reader.shape('parameters/0')).toEqual([300]);
  await expect(reader.tensor('parameters/9')).rejects.toMatchObject({ code: 'CHECKPOINT_INVALID' });
});

test('a checkpoint without a manifest is no checkpoint', async () => {
  const checkpoints = new Checkpoints(openStore(folder));
  await checkpoints.writeShard(checkpointAt(1, 5), 0, [tensor('parameters/0', 1)], { servers: 1 });
  expect(await checkpoints.list(FIXTURE_RUN_ID)).toEqual([]);
  await expect(checkpoints.open(checkpointAt(1, 5))).rejects.toThrow(/CHECKPOINT_INVALID: .*manifest.json: there is no manifest/);
});

describe('publishing', () => {
  test('is refused while a file is not there', async () => {
    const checkpoints = new Checkpoints(openStore(folder));
    const shard = await checkpoints.writeShard(checkpointAt(1, 5), 0, [tensor('parameters/0', 1)], { servers: 1 });
    await checkpoints.store.remove([shard.key]);
    await expect(checkpoints.publish(manifestOf(checkpointAt(1, 5), [shard]))).rejects.toThrow('it has no bytes, the manifest says');
    expect(await checkpoints.list(FIXTURE_RUN_ID)).toEqual([]);
  });

  test('the same again is fine, another manifest is refused, and so is writing the files again', async () => {
    const checkpoints = new Checkpoints(openStore(folder));
    const shard = await checkpoints.writeShard(checkpointAt(1, 5), 0, [tensor('parameters/0', 1)], { servers: 1 });
    const first = await checkpoints.publish(manifestOf(checkpointAt(1, 5), [shard]));
    expect(await checkpoints.publish(manifestOf(checkpointAt(1, 5), [shard]))).toEqual(first);
    const other = manifestOf(checkpointAt(1, 5), [shard], { loss: 1 });
    await expect(checkpoints.publish(other)).rejects.toMatchObject({ code: 'ALREADY_EXISTS' });
    const again = checkpoints.writeShard(checkpointAt(1, 5), 0, [tensor('parameters/0', 2)], { servers: 1 });
    await expect(again).rejects.toMatchObject({ code: 'ALREADY_EXISTS' });
    expect((await checkpoints.open(checkpointAt(1, 5))).sha256).toBe(first.sha256);
  });

  test('of two different manifests at the same time exactly one wins', async () => {
    const checkpoints = new Checkpoints(openStore(folder));
    const shard = await checkpoints.writeShard(checkpointAt(1, 5), 0, [tensor('parameters/0', 1)], { servers: 1 });
    const results = await Promise.allSettled(
      [1, 2, 3].map((loss) => checkpoints.publish(manifestOf(checkpointAt(1, 5), [shard], { loss }))),
    );
    expect(results.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected', 'rejected']);
    const winner = results.findIndex(({ status }) => status === 'fulfilled');
    expect((await checkpoints.list(FIXTURE_RUN_ID))[0]!.loss).toBe(winner + 1);
  });
});

test('a write reads one tensor at a time, gives each back, and leaves nothing when it is given up', async () => {
  const checkpoints = new Checkpoints(openStore(folder));
  const giveUp = new AbortController();
  let held = 0;
  let mostHeld = 0;
  const sources = [0, 1, 2, 3].map((i) => ({
    name: `parameters/${i}`,
    shape: [1 << 16],
    read: () => {
      mostHeld = Math.max(mostHeld, ++held);
      if (i === 3) giveUp.abort();
      return new Uint8Array(1 << 18);
    },
    done: () => void held--,
  }));
  const writing = checkpoints.writeShard(checkpointAt(1, 5), 0, sources, { servers: 1, signal: giveUp.signal });
  await expect(writing).rejects.toMatchObject({ code: 'WRITE_ABORTED' });
  expect({ held, mostHeld }).toEqual({ held: 0, mostHeld: 1 });
  expect(await checkpoints.store.list('')).toEqual([]);
});

test('a tensor with other bytes than its shape is refused, and the file does not appear', async () => {
  const checkpoints = new Checkpoints(openStore(folder));
  const wrong = { name: 'parameters/0', shape: [2], read: () => new Uint8Array(4) };
  await expect(checkpoints.writeShard(checkpointAt(1, 5), 0, [wrong], { servers: 1 })).rejects.toThrow('has 4 bytes, its shape says 8');
  expect(await checkpoints.store.list('')).toEqual([]);
});

test('writes keep to the rate that they are given', async () => {
  let nowMs = 0;
  const time = { nowMs: () => nowMs, sleep: (ms: number) => Promise.resolve(void (nowMs += ms)), yield: () => Promise.resolve() };
  const checkpoints = new Checkpoints(openStore(folder), time);
  const source = { name: 'parameters/0', shape: [1 << 20], read: () => new Uint8Array(4 << 20) };
  await checkpoints.writeShard(checkpointAt(1, 5), 0, [source], { servers: 1, bytesPerSecond: 1 << 20 });
  expect(nowMs).toBeGreaterThan(3990);
  expect(nowMs).toBeLessThan(4010);
});
