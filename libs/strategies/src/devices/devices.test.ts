/** Replicas in processes of devices: the bits of threads, how many processes there are and what goes to and fro, and what happens when one fails or ends. */
import { readFileSync } from 'node:fs';
import { createHash } from 'node:crypto';
import * as tf from '@tensorflow/tfjs-core';
import * as tfl from '@tensorflow/tfjs-layers';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { DeviceError, ReplicaError } from '../errors.js';
import { compiled, CLASSES, labels, mlp, oneHot, QUIET, rows, values } from '../models.fixture.js';
import { PerReplica, ReduceOp } from '../replicas/per-replica.js';
import { MirroredStrategy } from '../thread-strategies.js';

const DEVICES = ['cpu:0', 'cpu:1'];
/** Five replicas: the devices have two and three of them, and the second adds up two nodes of the tree. */
const REPLICAS = 5;

let [threads, devices]: MirroredStrategy[] = [];
beforeAll(async () => {
  await tf.setBackend('cpu');
  devices = new MirroredStrategy({ devices: DEVICES, replicas: REPLICAS });
  threads = new MirroredStrategy({ threads: 2, replicas: REPLICAS, engine: 'wasm' });
});
afterAll(() => Promise.all([threads!.dispose(), devices!.dispose()]));
const both = () => [threads!, devices!];

/** It lives, or is a zombie: somebody has to wait for it still. */
const isThere = (pid: number): boolean => {
  try {
    return readFileSync(`/proc/${pid}/stat`, 'latin1').length > 0;
  } catch {
    return false;
  }
};

const kernel = (seed: number) => tfl.initializers.glorotUniform({ seed });
const stateful = (): tfl.Sequential =>
  compiled(
    tfl.sequential({
      layers: [
        tfl.layers.dense({ units: 16, activation: 'relu', inputShape: [12], kernelInitializer: kernel(1), name: 'first' }),
        tfl.layers.batchNormalization({ name: 'norm' }),
        tfl.layers.dropout({ rate: 0.3, name: 'drop' }),
        tfl.layers.dense({
          units: CLASSES,
          activation: 'softmax',
          kernelInitializer: kernel(2),
          kernelRegularizer: tfl.regularizers.l2({ l2: 0.01 }),
          name: 'last',
        }),
      ],
    }),
    () => tf.train.adam(0.01),
  );

async function digest(model: tfl.LayersModel): Promise<string> {
  const hash = createHash('sha256');
  const slots = await model.optimizer.getWeights();
  for (const tensor of [...model.getWeights(), ...slots.map((slot) => slot.tensor)])
    hash.update(new Uint8Array(tensor.dataSync().slice().buffer));
  return hash.digest('hex');
}

describe('as threads', () => {
  it('a training has the bits of threads: weights, optimizer, History, callbacks, what is evaluated and predicted', async () => {
    const seen = await Promise.all(
      both().map(async (strategy) => {
        const model = strategy.scope(stateful);
        const heard: unknown[] = [];
        const onBatchEnd = (batch: number, logs?: tfl.Logs): void =>
          void heard.push([batch, logs?.['loss'], model.getWeights()[0]!.dataSync()[0]]);
        const sampleWeight = tf.tensor1d(values(50, 3).map(Math.abs));
        const more = { epochs: 3, initialEpoch: 1, batchSize: 16, validationSplit: 0.2, sampleWeight, classWeight: { 0: 1, 1: 2, 2: 0.5 } };
        const { history, epoch } = await model.fit(rows(), oneHot(), { ...QUIET, ...more, callbacks: { onBatchEnd } });
        // Batches of fewer rows than replicas: devices without any.
        await model.trainOnBatch(rows(2), oneHot(2));
        model.setWeights(model.getWeights().map((weight) => tf.mul(weight, 0.9)));
        await model.fitDataset({ iterator: () => Promise.resolve(batches()) } as never, { epochs: 1, verbose: 0 });
        const measured = (model.evaluate(rows(), oneHot(), { batchSize: 7 }) as tf.Scalar[]).map((value) => value.dataSync()[0]);
        const answers = [
          ...(model.predict(rows(1), { batchSize: 1 }) as tf.Tensor).dataSync(),
          ...(model.predict(rows()) as tf.Tensor).dataSync(),
        ];
        return { history, epoch, heard, measured, answers, digest: await digest(model), iterations: model.optimizer.iterations };
      }),
    );
    expect(seen[1]).toEqual(seen[0]);
    expect(seen[1]!.heard.length).toBe(6);
    expect(devices!.numReplicasInSync).toBe(REPLICAS);
  });

  it('a loss that is no number is one here too', async () => {
    const wrong = rows(16).dataSync().slice();
    wrong[0] = Number.NaN;
    const losses = await Promise.all(
      both().map((strategy) =>
        strategy.scope(() => compiled(mlp(), () => 'sgd', { metrics: [] })).trainOnBatch(tf.tensor2d(wrong, [16, 12]), oneHot(16)),
      ),
    );
    expect(losses).toEqual([Number.NaN, Number.NaN]);
  });

  it('several models go side by side, one is released, and functions of tf.js train it on', async () => {
    const digests = await Promise.all(
      both().map(async (strategy) => {
        const [one, two] = [strategy.scope(stateful), strategy.scope(() => compiled(mlp(), () => 'sgd'))];
        for (let i = 0; i < 3; i++) for (const model of [one, two]) await model.fit(rows(), oneHot(), { ...QUIET, epochs: 1 });
        strategy.release(two);
        await two.fit(rows(), oneHot(), { ...QUIET, epochs: 1 });
        return Promise.all([one, two].map(digest));
      }),
    );
    expect(digests[1]).toEqual(digests[0]);
  });
});

async function* endless(): AsyncGenerator<{ xs: tf.Tensor; ys: tf.Tensor }> {
  for (const count of [16, 5, 1]) yield { xs: rows(count), ys: oneHot(count) };
}
const batches = () => endless();

const MODULE = `
export const where = ({ replicaIdInSyncGroup: id, tf, state }) => ({ id, pid: process.pid, backend: tf.getBackend(), calls: (state.calls = (state.calls ?? 0) + 1) });
export const sums = async ({ replicaIdInSyncGroup: id, tf, allReduce, allGather, mergeCall }, own, all) => {
  const sum = await allReduce('sum', { own, number: 0.1 * 3 ** id });
  const mean = await allReduce('mean', all);
  const rows = await allGather(tf.fill([id + 1, 2], id));
  return { sum, mean, rows, merged: await mergeCall((values) => values.length, id) };
};
export const fails = async ({ replicaIdInSyncGroup: id, allReduce }, at) => {
  await allReduce('sum', 1);
  if (id === at) throw new Error('no such example');
  await allReduce('sum', 2);
};
export const differs = ({ replicaIdInSyncGroup: id, allReduce }) => (id === 4 ? 0 : allReduce('sum', 1));
`;
const module = `data:text/javascript,${encodeURIComponent(MODULE)}`;
const fn = (name: string) => ({ module, name });

describe('functions of run', () => {
  const plain = (value: unknown): unknown => {
    if (value instanceof tf.Tensor) return { shape: value.shape, values: [...value.dataSync()] };
    if (value instanceof PerReplica) return value.values.map(plain);
    if (Array.isArray(value)) return value.map(plain);
    if (typeof value === 'object' && value !== null)
      return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, plain(each)]));
    return value;
  };

  it('run in the processes, keep what they keep, and combine values with the bits of threads', async () => {
    const own = new PerReplica(Array.from({ length: REPLICAS }, (_, replica) => tf.tensor1d([replica * 0.3, 1e8, -1e8])));
    const results = await Promise.all(both().map(async (strategy) => plain(await strategy.run(fn('sums'), [own, tf.scalar(7)]))));
    expect(results[1]).toEqual(results[0]);
    for (const calls of [1, 2]) {
      const where = plain(await devices!.run(fn('where'))) as Record<string, unknown[]>;
      const [first, second] = devices!.devices.map(({ pid }) => pid);
      expect(where).toMatchObject({ id: [0, 1, 2, 3, 4], pid: [first, first, second, second, second], calls: Array(REPLICAS).fill(calls) });
    }
    const values = (await devices!.run(fn('where'))) as { id: PerReplica };
    for (const strategy of both()) expect(plain(strategy.reduce(ReduceOp.SUM, values.id))).toEqual({ shape: [], values: [10] });
  });

  it('name the replica and the device that fails, and those that do other things, and go on', async () => {
    for (const [at, device] of [
      [0, 'cpu:0'],
      [3, 'cpu:1'],
    ] as const) {
      const error = (await devices!.run(fn('fails'), [at]).catch((reason: unknown) => reason)) as ReplicaError;
      expect(error).toBeInstanceOf(ReplicaError);
      expect(error.message).toBe(`replica ${at}: no such example (on device ${device})`);
    }
    await expect(devices!.run(fn('differs'))).rejects.toThrow(/every replica must make the same calls/);
    await expect(devices!.run(fn('missing'))).rejects.toMatchObject({ code: 'STRATEGY_FUNCTION' });
    expect(((await devices!.run(fn('where'))) as { calls: PerReplica }).calls.values[0]).toBe(4);
  });
});

it('a label that is no class names replica, step and device; nothing of the step counts, and the next one does', async () => {
  const model = devices!.scope(() => compiled(mlp(), () => 'adam', { loss: 'sparseCategoricalCrossentropy' }));
  await model.trainOnBatch(rows(), labels());
  const before = await digest(model);
  const wrong = labels().dataSync().slice();
  wrong[49] = 7;
  const error = (await model.trainOnBatch(rows(), tf.tensor2d(wrong, [50, 1])).catch((reason: unknown) => reason)) as ReplicaError;
  expect(error).toBeInstanceOf(ReplicaError);
  expect(error).toMatchObject({ replica: 4, step: 1 });
  expect(error.message).toMatch(/^replica 4, step 1.*\(on device cpu:1\)$/);
  expect(await digest(model)).toBe(before);
  await model.trainOnBatch(rows(), labels());
  expect(model.optimizer.iterations).toBe(2);
});

it('a layer that fails is named, and a model that the engine does not train is refused', async () => {
  const encoded = devices!.scope(() =>
    compiled(
      tfl.sequential({
        layers: [
          tfl.layers.reshape({ targetShape: [1], inputShape: [1] }),
          tfl.layers.categoryEncoding({ numTokens: 4, outputMode: 'oneHot', name: 'encoded' } as never),
          tfl.layers.dense({ units: CLASSES, activation: 'softmax' }),
        ],
      }),
      () => 'sgd',
    ),
  );
  const wrong = tf.tensor2d([0, 1, 2, 3, 9], [5, 1]);
  await expect(encoded.trainOnBatch(wrong, oneHot(5))).rejects.toMatchObject({ replica: 4, layer: 'encoded', code: 'STRATEGY_REPLICA' });
  const masked = tfl.sequential({ layers: [tfl.layers.dense({ units: 2, inputShape: [4], kernelConstraint: 'nonNeg' })] });
  expect(() => devices!.scope(() => compiled(masked, () => 'sgd', { loss: 'meanSquaredError' }))).toThrow(
    expect.objectContaining({ code: 'STRATEGY_UNSUPPORTED' }) as Error,
  );
});

it('has one process for each device; parameters go to each once a step, gradients and outputs come back, and nothing else', async () => {
  const strategy = new MirroredStrategy({ devices: DEVICES });
  const pids = strategy.devices.map(({ pid }) => pid);
  expect(new Set(pids).size).toBe(2);
  expect(pids.map(isThere)).toEqual([true, true]);
  for (const pid of pids) expect(/^PPid:\s+(\d+)$/m.exec(readFileSync(`/proc/${pid}/status`, 'latin1'))![1]).toBe(String(process.pid));
  const model = strategy.scope(() => compiled(mlp(), () => 'sgd', { metrics: [] }));
  await model.trainOnBatch(rows(48), oneHot(48));
  const before = strategy.devices;
  const steps = 4;
  await model.fit(rows(48), oneHot(48), { ...QUIET, epochs: steps, batchSize: 48 });
  const parameters = (12 * 16 + 16 + 16 * CLASSES + CLASSES) * 4;
  const rowBytes = (12 + CLASSES + 1) * 24 * 4;
  for (const [i, { name, engine, sentBytes, receivedBytes }] of strategy.devices.entries()) {
    expect([name, engine]).toEqual([`cpu:${i}`, 'wasm']);
    expect(sentBytes - before[i]!.sentBytes).toBe(steps * (parameters + rowBytes));
    expect(receivedBytes - before[i]!.receivedBytes).toBe(steps * parameters);
  }
  await strategy.dispose();
  expect(pids.map(isThere)).toEqual([false, false]);
});

describe('a process that', () => {
  const started = async (more: object = {}) => {
    const strategy = new MirroredStrategy({ devices: DEVICES, ...more });
    const model = strategy.scope(() => compiled(mlp(), () => 'sgd'));
    await model.trainOnBatch(rows(), oneHot());
    return { strategy, model, pids: strategy.devices.map(({ pid }) => pid) };
  };
  const failed = (model: tfl.LayersModel) =>
    model.trainOnBatch(rows(), oneHot()).catch((reason: unknown) => reason) as Promise<DeviceError>;

  it('was killed is named at the next step, the others end, and the model goes on as one of tf.js after dispose', async () => {
    const strategy = devices!; // no other test needs it any more
    const model = strategy.scope(() => compiled(mlp(), () => 'sgd'));
    await model.trainOnBatch(rows(), oneHot());
    const pids = strategy.devices.map(({ pid }) => pid);
    process.kill(pids[1]!, 'SIGKILL'); // this thread hears of it after the step
    const error = await failed(model);
    expect(error).toBeInstanceOf(DeviceError);
    expect(error).toMatchObject({ code: 'STRATEGY_DEVICE', device: 'cpu:1' });
    expect(error.message).toMatch(new RegExp(`^device cpu:1 \\(process ${pids[1]}\\): `));
    await expect.poll(() => pids.map(isThere)).toEqual([false, false]);
    expect(await failed(model)).toBe(error);
    await strategy.dispose();
    await model.trainOnBatch(rows(), oneHot());
    expect(model.optimizer.iterations).toBe(2);
  });

  it.runIf(process.env['PACELINE_SOAK'] === '1')('has ended while nobody asked is known by its signal', async () => {
    const { strategy, model, pids } = await started();
    process.kill(pids[0]!, 'SIGTERM');
    await expect.poll(() => isThere(pids[1]!)).toBe(false);
    expect((await failed(model)).message).toBe(`device cpu:0 (process ${pids[0]}): it ended by SIGTERM`);
    await strategy.dispose();
  });

  it('hangs is given up after the deadline, by name, and killed', async () => {
    const { strategy, model, pids } = await started({ deadlineMs: 2_000 });
    process.kill(pids[1]!, 'SIGSTOP');
    const error = await failed(model);
    expect(error).toMatchObject({ code: 'STRATEGY_DEVICE', device: 'cpu:1' });
    expect(error.message).toContain('waited 2000 ms for device cpu:1 to answer "step"');
    await expect.poll(() => pids.map(isThere)).toEqual([false, false]);
    await strategy.dispose();
  });

  it('ends before it is ready is named too, and leaves no folder behind', async () => {
    const strategy = new MirroredStrategy({ devices: DEVICES });
    const { pid } = strategy.devices[0]!;
    process.kill(pid, 'SIGKILL');
    const model = strategy.scope(() => compiled(mlp(), () => 'sgd'));
    expect(await failed(model)).toMatchObject({ device: 'cpu:0', message: `device cpu:0 (process ${pid}): it ended before it was ready` });
    await strategy.dispose();
  });
});
