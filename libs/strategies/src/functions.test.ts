/** run, reduce, gather and distributed datasets: functions of the program in the replicas, and values per replica. */
import * as tf from '@tensorflow/tfjs-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ArgumentError, FunctionError, ReplicaError } from './errors.js';
import { values } from './models.fixture.js';
import { PerReplica, ReduceOp } from './replicas/per-replica.js';
import { MirroredStrategy } from './thread-strategies.js';

const REPLICAS = 4;
let strategy: MirroredStrategy;
beforeAll(async () => {
  await tf.setBackend('cpu');
  strategy = new MirroredStrategy({ threads: 2, replicas: REPLICAS });
});
afterAll(() => strategy.dispose());

const MODULE = `
export const who = ({ replicaIdInSyncGroup, numReplicasInSync, tf }, own, all, nested) => ({
  id: replicaIdInSyncGroup, of: numReplicasInSync, own, both: [tf.add(own.x, all), nested.values.length], backend: tf.getBackend(),
});
export const sums = async ({ replicaIdInSyncGroup: id, allReduce }, tensor) => {
  const first = await allReduce('sum', { tensor, numbers: [id, 0.1], floats: Float32Array.of(id, 1e8, -1e8) });
  return { first, mean: await allReduce('mean', id) };
};
export const count = ({ state }) => (state.calls = (state.calls ?? 0) + 1);
export const fails = async ({ replicaIdInSyncGroup: id, allReduce }, at) => {
  await allReduce('sum', 1);
  if (id === at) throw new Error('no such example');
  await allReduce('sum', 2).catch((error) => { throw error; });
};
export const returnsEarly = ({ replicaIdInSyncGroup: id, allReduce }) => (id === 2 ? 0 : allReduce('sum', 1));
export const shapes = ({ replicaIdInSyncGroup: id, allReduce }) => allReduce('sum', new Float32Array(id === 3 ? 2 : 1));
export const twice = ({ allReduce }) => Promise.all([allReduce('sum', 1), allReduce('sum', 2)]);
const turn = () => new Promise((resolve) => setImmediate(resolve));
export const notAwaited = async ({ replicaIdInSyncGroup: id, allReduce }) => {
  if (id !== 1) await turn();
  const sum = allReduce('sum', 1);
  return id === 1 ? 0 : sum;
};
export const throwsBefore = async ({ replicaIdInSyncGroup: id, allReduce }) => {
  if (id === 3) throw new Error('no such example');
  const sum = allReduce('sum', 1);
  await turn();
  await turn();
  return sum;
};
export const writes = ({ tf }, { common, floats }, replica) => {
  floats[0] = 10 + replica;
  return { sums: tf.sum(common).dataSync()[0], floats };
};
export const gathers = async ({ replicaIdInSyncGroup: id, tf, allGather }) => {
  const rows = tf.tensor2d(Float32Array.from({ length: (id + 1) * 2 }, (_, i) => (id === 2 && i === 0 ? -0 : id * 10 + i)), [id + 1, 2]);
  const given = { rows, floats: Float32Array.of(id, -id), cube: tf.fill([2, 1, 2], id + 0.5) };
  return { first: await allGather(given.rows), last: await allGather([given.cube, given.cube], -1), floats: await allGather(given.floats), empty: await allGather(new Float32Array(0)) };
};
export const gathersOther = async ({ replicaIdInSyncGroup: id, tf, allGather }) => allGather(tf.zeros(id === 3 ? [2, 3] : [3, 2]), 0);
export const gathersWrong = async ({ allGather }, value, axis) => allGather(value, axis);
export const gathersTwice = ({ allGather }) => Promise.all([allGather(Float32Array.of(1)), allGather(Float32Array.of(2))]);
export const gathersNotAwaited = ({ allGather }) => (void allGather(Float32Array.of(1)), 1);
export const gathersKeys = ({ replicaIdInSyncGroup: id, allGather }) => allGather(id === 3 ? { b: Float32Array.of(1), a: Float32Array.of(2) } : { a: Float32Array.of(1), b: Float32Array.of(2) });
export const merges = async ({ replicaIdInSyncGroup: id, tf, mergeCall }) => {
  const own = { rows: tf.fill([id, 2], id + 0.5), floats: Float32Array.of(-0, id), count: id };
  const merge = (all) => ({ rows: tf.concat(all.map(({ rows }) => rows)), floats: all[2].floats, sum: all.reduce((sum, { count }) => sum + count, 0), replicas: all.length });
  const merged = await mergeCall(merge, own);
  own.rows.dispose();
  return merged;
};
export const mergesLate = ({ mergeCall }) => mergeCall(async ([first]) => { await turn(); if (first > -1) throw new Error('no such merge'); }, 1);
export const mergesOther = ({ replicaIdInSyncGroup: id, mergeCall }) => mergeCall((all) => all, id === 1 ? [1, 2] : [1]);
export const mergesWrong = ({ mergeCall }, merge, value) => mergeCall(merge === 'none' ? 1 : () => 1, value);
export const mergesNotAwaited = ({ mergeCall }) => (void mergeCall(() => 1, 2), 1);
export const nothing = () => undefined;
export const notSent = () => () => 1;
export const tensors = ({ tf }) => tf.memory().numTensors;
/** Linear regression with an optimizer of the replica's own. */
export const train = async ({ tf, state, allReduce }, xs, ys) => {
  state.weights ??= tf.variable(tf.zeros([xs.shape[1], 1]));
  state.optimizer ??= tf.train.momentum(0.1, 0.9);
  const { value, grads } = tf.variableGrads(() => tf.losses.meanSquaredError(ys, tf.matMul(xs, state.weights)), [state.weights]);
  const mean = await allReduce('mean', { loss: value, grads });
  tf.dispose([value, grads]);
  state.optimizer.applyGradients(mean.grads);
  return { loss: mean.loss, weights: state.weights };
};
`;
const module = `data:text/javascript,${encodeURIComponent(MODULE)}`;
const fn = (name: string) => ({ module, name });
const perReplica = <T>(of: (replica: number) => T) => new PerReplica(Array.from({ length: REPLICAS }, (_, replica) => of(replica)));
const valuesOf = (value: unknown): number[] => [...(value as tf.Tensor).dataSync()];

describe('run', () => {
  it('gives each replica its context and its own values, and their structure back', async () => {
    const own = perReplica((replica) => ({ x: tf.tensor1d([replica, 10]) }));
    const result = (await strategy.run(fn('who'), [own, tf.scalar(5), { values: [1, 2] }])) as Record<string, PerReplica & PerReplica[]>;
    expect(result['id']!.values).toEqual([0, 1, 2, 3]);
    expect(result['of']!.values).toEqual([4, 4, 4, 4]);
    expect(result['backend']!.values).toEqual(['wasm', 'wasm', 'wasm', 'wasm']);
    expect(result['both']![0]!.values.map(valuesOf)).toEqual([0, 1, 2, 3].map((replica) => [replica + 5, 15]));
    expect(result['both']![1]!.values).toEqual([2, 2, 2, 2]);
    expect(await strategy.run(fn('nothing'))).toBeUndefined();
  });

  it('adds values of all replicas up, in the order of the tree', async () => {
    const tensors = perReplica((replica) => tf.tensor2d([[replica], [0.1 * 3 ** replica]]));
    const { first, mean } = (await strategy.run(fn('sums'), [tensors])) as {
      first: { tensor: PerReplica; numbers: PerReplica[]; floats: PerReplica };
      mean: PerReplica;
    };
    const f = Math.fround;
    const [a, b, c, d] = [0, 1, 2, 3].map((i) => f(0.1 * 3 ** i)) as [number, number, number, number];
    for (const sum of first.tensor.values) {
      expect((sum as tf.Tensor).shape).toEqual([2, 1]);
      expect(valuesOf(sum)).toEqual([6, f(f(a + b) + f(c + d))]);
    }
    expect(first.numbers.map(({ values: [value] }) => value)).toEqual([6, f(0.4)]);
    expect(first.floats.values[3]).toEqual(Float32Array.of(6, 4e8, -4e8));
    expect(mean.values).toEqual([1.5, 1.5, 1.5, 1.5]);
  });

  it('reads and copies what replicas have in common once, and gives each replica values of its own', async () => {
    const common = tf.ones([1000]);
    let reads = 0;
    const dataSync = common.dataSync.bind(common);
    common.dataSync = (() => (reads++, dataSync())) as never;
    const floats = Float32Array.of(1, 2);
    const result = (await strategy.run(fn('writes'), [{ common, floats }, perReplica((replica) => replica)])) as Record<string, PerReplica>;
    expect(reads).toBe(1);
    expect(result['sums']!.values).toEqual([1000, 1000, 1000, 1000]);
    expect(result['floats']!.values).toEqual([0, 1, 2, 3].map((replica) => Float32Array.of(10 + replica, 2)));
    expect([...floats]).toEqual([1, 2]);
  });

  it('keeps what a replica keeps, and leaves no tensor behind', async () => {
    await strategy.run(fn('count'));
    expect(await strategy.run(fn('count'))).toEqual(new PerReplica([2, 2, 2, 2]));
    const before = await strategy.run(fn('tensors'));
    await strategy.run(fn('sums'), [tf.ones([3])]);
    expect(await strategy.run(fn('tensors'))).toEqual(before);
  });

  it('trains with a step of the program, with the same bits on 1 and 2 threads, as tf.js does', async () => {
    const [rows, width] = [24, 5];
    const xs = tf.tensor2d(values(rows * width, 1), [rows, width]);
    const ys = tf.matMul(xs, tf.tensor2d([1, -2, 3, 0.5, 0], [width, 1]));
    const train = async (of: MirroredStrategy): Promise<[losses: number[], weights: number[]]> => {
      const losses: number[] = [];
      const batches = Array.from({ length: 20 }, () => ({ x: xs.clone(), y: ys.clone() }));
      let weights: number[] = [];
      for await (const batch of of.distributeDataset(batches)) {
        const { x, y } = batch as Record<string, PerReplica>;
        const result = (await of.run(fn('train'), [x, y])) as Record<string, PerReplica>;
        const all = result['weights']!.values.map(valuesOf);
        expect(new Set(all.map(String)).size).toBe(1);
        [weights] = all as [number[]];
        losses.push(valuesOf(of.reduce(ReduceOp.MEAN, result['loss']))[0]!);
      }
      return [losses, weights];
    };
    const one = new MirroredStrategy({ threads: 1, replicas: REPLICAS });
    const [losses, weights] = await train(strategy);
    expect(await train(one)).toEqual([losses, weights]);
    await one.dispose();
    const alone = tf.variable(tf.zeros([width, 1]));
    const optimizer = tf.train.momentum(0.1, 0.9);
    for (let i = 0; i < 20; i++) optimizer.minimize(() => tf.losses.meanSquaredError(ys, tf.matMul(xs, alone)), false, [alone]);
    valuesOf(alone).forEach((value, i) => expect(weights[i]).toBeCloseTo(value, 5));
    expect(losses.at(-1)!).toBeLessThan(losses[0]! / 5);
  });

  it('gathers values of all replicas, of unequal lengths, along any axis, with their bits', async () => {
    const result = (await strategy.run(fn('gathers'))) as Record<'first' | 'floats' | 'empty', PerReplica> & { last: PerReplica[] };
    const rows = [0, 1, 2, 3].flatMap((id) => Array.from({ length: (id + 1) * 2 }, (_, i) => (id === 2 && i === 0 ? -0 : id * 10 + i)));
    for (const first of result.first.values as tf.Tensor[]) {
      expect(first.shape).toEqual([10, 2]);
      expect([...first.dataSync()]).toEqual(rows); // toEqual tells −0 from 0
    }
    for (const last of result.last.flatMap(({ values: each }) => each) as tf.Tensor[]) {
      expect(last.shape).toEqual([2, 1, 8]);
      expect([...last.dataSync()]).toEqual([0, 1].flatMap(() => [0.5, 0.5, 1.5, 1.5, 2.5, 2.5, 3.5, 3.5]));
    }
    for (const floats of result.floats.values) expect([...(floats as Float32Array)]).toEqual([0, -0, 1, -1, 2, -2, 3, -3]);
    for (const empty of result.empty.values) expect(empty).toEqual(new Float32Array(0));
    const failed = (name: string, ...args: unknown[]) => expect(strategy.run(fn(name), args)).rejects;
    await failed('gathersOther').toThrow('every replica must make the same calls, with values of the same shapes');
    await failed('gathersNotAwaited').toThrow(/returned before its allReduce or allGather was over|every replica must/);
    await failed('gathersKeys').toThrow('every replica must make the same calls');
    await failed('gathersTwice').toThrow('a second allReduce or allGather begins');
    await failed('gathersWrong', [{ deep: 'text' }]).toThrow(
      'joins tensors of float32 and Float32Array, and value[0].deep is something else',
    );
    await failed('gathersWrong', tf.scalar(1)).toThrow('value has 0 dimensions, and so no axis 0');
    await failed('gathersWrong', tf.zeros([2, 2]), 2).toThrow('no axis 2');
  });

  it('calls a function in each replica with the values of all', async () => {
    const before = await strategy.run(fn('tensors'));
    const result = (await strategy.run(fn('merges'))) as Record<'rows' | 'floats' | 'sum' | 'replicas', PerReplica>;
    for (const rows of result.rows.values as tf.Tensor[]) {
      expect(rows.shape).toEqual([6, 2]);
      expect([...rows.dataSync()]).toEqual([1, 2, 2, 3, 3, 3].flatMap((id) => [id + 0.5, id + 0.5]));
    }
    for (const floats of result.floats.values) expect([...(floats as Float32Array)]).toEqual([-0, 2]);
    expect(result.sum.values).toEqual([6, 6, 6, 6]);
    expect(result.replicas.values).toEqual([4, 4, 4, 4]);
    const failed = (name: string, ...args: unknown[]) => expect(strategy.run(fn(name), args)).rejects;
    await failed('mergesLate').toThrow('replica 0: no such merge');
    await failed('mergesOther').toThrow('every replica must make the same calls');
    await failed('mergesWrong', 'none', 1).toThrow('mergeCall takes a function and values');
    await failed('mergesWrong', 'some', { deep: ['text'] }).toThrow(
      'mergeCall takes tensors of float32, Float32Array and numbers, and value.deep[0] is something else',
    );
    await failed('mergesNotAwaited').toThrow(/returned before its allReduce or allGather was over|every replica must/);
    expect(((await strategy.run(fn('tensors'))) as PerReplica).values, 'nothing is left behind').toEqual((before as PerReplica).values);
  });

  it('names the replica that throws or makes other calls, and goes on', async () => {
    const failed = (name: string, ...args: unknown[]) =>
      strategy.run(fn(name), args).then(
        () => undefined,
        (error: unknown) => error,
      );
    for (const at of [0, 3]) {
      const error = await failed('fails', at);
      expect(error).toBeInstanceOf(ReplicaError);
      expect(error).toMatchObject({ code: 'STRATEGY_REPLICA', replica: at, message: `replica ${at}: no such example` });
    }
    expect(await failed('returnsEarly')).toMatchObject({ message: expect.stringContaining('replica 2 has returned') as string });
    expect(await failed('shapes')).toMatchObject({
      message: expect.stringContaining('(a sum of 2 numbers): every replica must') as string,
    });
    expect(await failed('twice')).toMatchObject({ message: expect.stringContaining('a second allReduce or allGather begins') as string });
    expect(await failed('notAwaited')).toMatchObject({
      replica: 1,
      message: expect.stringContaining('returned before its allReduce or allGather was over') as string,
    });
    expect(await failed('throwsBefore')).toMatchObject({ replica: 3, message: 'replica 3: no such example' });
    expect(await failed('notSent')).toMatchObject({ message: expect.stringContaining('a function cannot be sent') as string });
    expect(await strategy.run(fn('count'))).toEqual(new PerReplica([3, 3, 3, 3]));
  });

  it('refuses closures, modules and arguments that threads cannot have', async () => {
    const refused = (given: unknown, args?: unknown) => expect(strategy.run(given as never, args as never)).rejects;
    await refused(() => 1).toMatchObject({
      code: 'STRATEGY_FUNCTION',
      message: expect.stringContaining('export it from a module') as string,
    });
    await refused(fn('missing')).toThrow(/exports no function of that name; it exports .*train/);
    await refused({ module: 'file:///nowhere/step.mjs', name: 'step' }).toBeInstanceOf(FunctionError);
    for (const given of [undefined, { module: './step.mjs', name: 'step' }, { module }]) await refused(given).toBeInstanceOf(ArgumentError);
    await refused(fn('count'), [{ deep: [() => 1] }]).toThrow('argument 0.deep[0]: a function cannot be sent');
    await refused(fn('count'), [new Map()]).toThrow('an object of the class Map');
    await refused(fn('count'), [new PerReplica([1, 2])]).toThrow('a value of 2 replicas, and this process has 4');
    await refused(fn('count'), 1).toThrow('as an array');
  });
});

describe('values of replicas', () => {
  it('are made by a function of the replica', () => {
    const made = strategy.distributeValuesFromFunction(({ replicaIdInSyncGroup: id, numReplicasInSync: of }) => id / of);
    expect(made).toEqual(new PerReplica([0, 0.25, 0.5, 0.75]));
    expect(() => strategy.distributeValuesFromFunction(1 as never)).toThrow('takes a function');
  });

  it('are reduced, over an axis too, and gathered', () => {
    const ragged = new PerReplica([
      tf.tensor2d([[1, 2]]),
      tf.tensor2d([
        [3, 4],
        [5, 6],
      ]),
    ]);
    const whole = new PerReplica([tf.tensor1d([1, 2]), tf.tensor1d([3, 6])]);
    expect(valuesOf(strategy.reduce('sum', whole))).toEqual([4, 8]);
    expect(valuesOf((strategy.reduce('mean', { a: [whole] }) as { a: unknown[] }).a[0])).toEqual([2, 4]);
    expect(valuesOf(strategy.reduce('sum', whole, 0))).toEqual([12]);
    expect(valuesOf(strategy.reduce('mean', ragged, 0))).toEqual([3, 4]);
    expect(valuesOf(strategy.reduce('mean', ragged, -2))).toEqual([3, 4]);
    expect(valuesOf(strategy.reduce('sum', new PerReplica([1, 2.5])))).toEqual([3.5]);
    expect(valuesOf(strategy.gather(ragged, 0))).toEqual([1, 2, 3, 4, 5, 6]);
    expect(strategy.localResults(whole)).toBe(whole.values);
    expect(strategy.localResults(3)).toEqual([3]);
    expect(valuesOf(strategy.reduce('mean', 3))).toEqual([3]);
    for (const [act, message] of [
      [() => strategy.reduce('sum', ragged), 'give an axis'],
      [() => strategy.reduce('sum', [3]), 'value[0]: 4 replicas have this value in common'],
      [() => strategy.reduce('max' as never, whole), 'ReduceOp.SUM or ReduceOp.MEAN, not max'],
      [() => strategy.reduce('sum', whole, 1), 'the axis 1 does not exist'],
      [() => strategy.gather(new PerReplica([1, 2]), 0), 'use localResults'],
      [() => strategy.reduce('sum', new PerReplica(['a'])), 'replicas have a string'],
    ] as const)
      expect(act).toThrow(message);
  });

  it('sources of datasets are closed when nobody asks for more, and not when they have ended', async () => {
    const closed: string[] = [];
    const source = async function* (name: string, batches: number): AsyncGenerator<unknown> {
      try {
        for (let i = 0; i < batches; i++) yield await Promise.resolve({ xs: tf.range(0, REPLICAS) });
      } finally {
        closed.push(name);
      }
    };
    const before = tf.memory().numTensors;
    const leaves = async (dataset: AsyncIterable<unknown>, after: number, error?: Error): Promise<void> => {
      let batches = 0;
      for await (const _ of dataset)
        if (++batches === after) {
          if (error) throw error;
          break;
        }
    };
    await leaves(strategy.distributeDataset(source('rows', 9)), 1);
    await leaves(
      strategy.distributeDatasetsFromFunction(() => source('whole', 9)),
      1,
    );
    expect(closed).toEqual(['rows', 'whole']);
    const thrown = leaves(strategy.distributeDataset(source('thrown', 9)), 2, new Error('the program fails'));
    await expect(thrown).rejects.toThrow('the program fails');
    let returns = 0;
    const next = (value: unknown, done: boolean) => Promise.resolve({ value, done });
    const counted = (values: unknown[]) => ({
      iterator: () => Promise.resolve({ next: () => next(values.shift(), values.length === 0), return: () => returns++ }),
    });
    await leaves(strategy.distributeDataset(counted([tf.ones([4])]) as never), 9);
    expect([closed, returns]).toEqual([['rows', 'whole', 'thrown'], 0]);
    await expect(leaves(strategy.distributeDataset(counted([7, 8]) as never), 9)).rejects.toBeInstanceOf(ArgumentError);
    expect([returns, tf.memory().numTensors]).toEqual([1, before]);
  });

  it('come of datasets: rows of common batches, or whole batches of a function', async () => {
    const seen: number[][][] = [];
    const before = tf.memory().numTensors;
    const batches = () => [5, 2].map((rows) => ({ xs: tf.range(0, rows) }));
    for await (const batch of strategy.distributeDataset(batches())) seen.push((batch as { xs: PerReplica }).xs.values.map(valuesOf));
    expect(seen).toEqual([
      [[0], [1], [2], [3, 4]],
      [[], [0], [], [1]],
    ]);
    const own: unknown[] = [];
    const dataset = strategy.distributeDatasetsFromFunction((context) => {
      expect(context).toMatchObject({ numInputPipelines: 1, inputPipelineId: 0, numReplicasInSync: 4 });
      expect(() => context.getPerReplicaBatchSize(6)).toThrow('shared out evenly');
      const sizes = Array.from({ length: 5 }, () => context.getPerReplicaBatchSize(8));
      const next = () => Promise.resolve({ value: sizes.length > 0 ? [tf.ones([sizes.pop()!])] : null, done: sizes.length === 0 });
      return { iterator: () => Promise.resolve({ next }) } as never;
    });
    for await (const batch of dataset) own.push((batch as PerReplica[])[0]!.values.map((value) => (value as tf.Tensor).shape[0]));
    expect(own).toEqual([
      [2, 2, 2, 2],
      [2, 0, 0, 0],
    ]);
    expect(tf.memory().numTensors).toBe(before);
    await expect(
      strategy
        .distributeDataset(7 as never)
        [Symbol.asyncIterator]()
        .next(),
    ).rejects.toBeInstanceOf(ArgumentError);
  });
});
