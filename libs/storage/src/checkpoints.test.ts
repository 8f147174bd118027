import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { comparableConfig, parseRunSpec } from '@paceline/spec';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { configHash } from './canonical-json.js';
import { Checkpoints, type TensorSource } from './checkpoints.js';
import { manifestKey, type CheckpointId, type Manifest } from './manifest.js';
import { openStore } from './open-store.js';

let folder: string;
beforeEach(async () => void (folder = await mkdtemp(path.join(tmpdir(), 'paceline-checkpoints-'))));
afterEach(() => rm(folder, { recursive: true, force: true }));

const runId = '0b8f7c1e-7a53-4b0e-9d8c-3f6f1c0d2a11';
const parsed = parseRunSpec({});
if (!parsed.ok) throw new Error('the default spec is valid');
const { spec } = parsed;

const at = (attempt: number, round: number): CheckpointId => ({ runId, attempt, round });
const floats = (...values: number[]): Uint8Array => new Uint8Array(Float32Array.from(values).buffer);
const tensor = (name: string, ...values: number[]): TensorSource => ({ name, shape: [values.length], read: () => floats(...values) });

function manifestOf(id: CheckpointId, shards: Manifest['shards'], more: Partial<Manifest> = {}): Manifest {
  return {
    version: 1,
    ...id,
    lineage: [],
    createdAtMs: 1000 * id.round,
    servers: shards.length,
    replicas: 4,
    layoutHash: 'layout',
    chunks: 2,
    configHash: configHash(spec),
    config: { ...comparableConfig(spec) } as Manifest['config'],
    mode: 'sync',
    schedule: { totalRounds: 100, roundsPerEpoch: 10 },
    sampler: { epoch: 0, roundInEpoch: id.round },
    ledger: { examples: 256 * id.round, exceptions: [] },
    optimizer: { name: 'momentum', slots: ['velocity'] },
    residuals: [],
    loss: null,
    reason: 'cadence',
    shards,
    ...more,
  };
}

async function write(checkpoints: Checkpoints, id: CheckpointId, more: Partial<Manifest> = {}): Promise<void> {
  const shards = [
    await checkpoints.writeShard(id, 0, [tensor('parameters/0', 1, 2, id.round), tensor('slots/velocity/0', 4, 5, 6)], { servers: 2 }),
    await checkpoints.writeShard(id, 1, [tensor('parameters/1', 7), tensor('slots/velocity/1', 8)], { servers: 2 }),
  ];
  await checkpoints.publish(manifestOf(id, shards, more));
}

test('a checkpoint is written, listed and read back from whichever file holds a tensor', async () => {
  const checkpoints = new Checkpoints(openStore(folder));
  await write(checkpoints, at(1, 5), { loss: 0.5 });
  const [summary] = await new Checkpoints(openStore(folder)).list(runId);
  expect(summary).toMatchObject({ ...at(1, 5), loss: 0.5, servers: 2, reason: 'cadence', key: manifestKey(at(1, 5)) });
  const reader = await checkpoints.open(at(1, 5));
  expect(reader.manifest.ledger.examples).toBe(1280);
  expect(reader.tensorNames).toEqual(['parameters/0', 'slots/velocity/0', 'parameters/1', 'slots/velocity/1']);
  expect(await reader.tensor('slots/velocity/0')).toEqual(floats(4, 5, 6));
  expect(await reader.tensor('parameters/1')).toEqual(floats(7));
  expect(await reader.shape('parameters/0')).toEqual([3]);
  await expect(reader.tensor('parameters/9')).rejects.toMatchObject({ code: 'CHECKPOINT_INVALID' });
});

test('a cut without a manifest is no checkpoint', async () => {
  const checkpoints = new Checkpoints(openStore(folder));
  await checkpoints.writeShard(at(1, 5), 0, [tensor('parameters/0', 1)], { servers: 1 });
  expect(await checkpoints.list(runId)).toEqual([]);
  await expect(checkpoints.open(at(1, 5))).rejects.toThrow(/CHECKPOINT_INVALID: .*manifest.json: there is no manifest/);
});

describe('publishing', () => {
  test('is refused while a file is not there', async () => {
    const checkpoints = new Checkpoints(openStore(folder));
    const shard = await checkpoints.writeShard(at(1, 5), 0, [tensor('parameters/0', 1)], { servers: 1 });
    await checkpoints.store.remove([shard.key]);
    await expect(checkpoints.publish(manifestOf(at(1, 5), [shard]))).rejects.toThrow('it has no bytes, the manifest says');
    expect(await checkpoints.list(runId)).toEqual([]);
  });

  test('the same again is fine, another manifest is refused, and so is writing the files again', async () => {
    const checkpoints = new Checkpoints(openStore(folder));
    const shard = await checkpoints.writeShard(at(1, 5), 0, [tensor('parameters/0', 1)], { servers: 1 });
    const first = await checkpoints.publish(manifestOf(at(1, 5), [shard]));
    expect(await checkpoints.publish(manifestOf(at(1, 5), [shard]))).toEqual(first);
    const other = manifestOf(at(1, 5), [shard], { loss: 1 });
    await expect(checkpoints.publish(other)).rejects.toMatchObject({ code: 'ALREADY_EXISTS' });
    const again = checkpoints.writeShard(at(1, 5), 0, [tensor('parameters/0', 2)], { servers: 1 });
    await expect(again).rejects.toMatchObject({ code: 'ALREADY_EXISTS' });
    expect((await checkpoints.open(at(1, 5))).sha256).toBe(first.sha256);
  });

  test('of two different manifests at the same time exactly one wins', async () => {
    const checkpoints = new Checkpoints(openStore(folder));
    const shard = await checkpoints.writeShard(at(1, 5), 0, [tensor('parameters/0', 1)], { servers: 1 });
    const results = await Promise.allSettled([1, 2, 3].map((loss) => checkpoints.publish(manifestOf(at(1, 5), [shard], { loss }))));
    expect(results.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected', 'rejected']);
    const winner = results.findIndex(({ status }) => status === 'fulfilled');
    expect((await checkpoints.list(runId))[0]!.loss).toBe(winner + 1);
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
  const writing = checkpoints.writeShard(at(1, 5), 0, sources, { servers: 1, signal: giveUp.signal });
  await expect(writing).rejects.toMatchObject({ code: 'WRITE_ABORTED' });
  expect({ held, mostHeld }).toEqual({ held: 0, mostHeld: 1 });
  expect(await checkpoints.store.list('')).toEqual([]);
});

test('a tensor with other bytes than its shape is refused, and the file does not appear', async () => {
  const checkpoints = new Checkpoints(openStore(folder));
  const wrong = { name: 'parameters/0', shape: [2], read: () => new Uint8Array(4) };
  await expect(checkpoints.writeShard(at(1, 5), 0, [wrong], { servers: 1 })).rejects.toThrow('has 4 bytes, its shape says 8');
  expect(await checkpoints.store.list('')).toEqual([]);
});

test('writes keep to the rate that they are given', async () => {
  let nowMs = 0;
  const time = { nowMs: () => nowMs, sleep: (ms: number) => Promise.resolve(void (nowMs += ms)), yield: () => Promise.resolve() };
  const checkpoints = new Checkpoints(openStore(folder), time);
  const source = { name: 'parameters/0', shape: [1 << 20], read: () => new Uint8Array(4 << 20) };
  await checkpoints.writeShard(at(1, 5), 0, [source], { servers: 1, bytesPerSecond: 1 << 20 });
  expect(nowMs).toBeGreaterThan(3990);
  expect(nowMs).toBeLessThan(4010);
});
