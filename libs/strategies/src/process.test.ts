/** The library in a program: the example of its page as it is pasted, threads that end, and a process that ends by itself. */
import { once, type EventEmitter } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import * as tf from '@tensorflow/tfjs-core';
import * as tfl from '@tensorflow/tfjs-layers';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { BackendError, ThreadError } from './errors.js';
import { compiled, mlp, oneHot, QUIET, rows } from './models.fixture.js';
import { Programs } from './programs.fixture.js';
import { MirroredStrategy, OneDeviceStrategy } from './thread-strategies.js';

let programs: Programs;
beforeAll(async () => {
  await tf.setBackend('cpu');
  programs = new Programs();
});
afterAll(() => programs.dispose());
const run = (source: string) => programs.start(source).ended;

const page = readFileSync(join(import.meta.dirname, '../../../docs/library.md'), 'utf8');
const [, example] = /```js\n([\s\S]*?)```/.exec(page)!;

it('the example of the page trains, as it is pasted', async () => {
  const { status, output, errors } = await run(example!);
  expect(status, errors).toBe(0);
  const losses = /loss ([\d. ]+)/.exec(output)![1]!.trim().split(' ').map(Number);
  expect(losses.length).toBe(5);
  expect(losses[4]!).toBeLessThan(losses[0]! / 5);
});

it('the example of replicas that train alone', async () => {
  const [, source] = /```js\n([^`]*LocalUpdateStrategy[\s\S]*?)```/.exec(page)!;
  expect(source!.split('\n').length).toBeLessThanOrEqual(31);
  const { status, output, errors } = await run(source!);
  expect(status, errors).toBe(0);
  const losses = /val_loss ([\d. ]+)/.exec(output)![1]!.trim().split(' ').map(Number);
  expect(losses.length).toBe(8);
  expect(losses.at(-1)!).toBeLessThan(losses[0]! / 5);
});

it('the example of a model in stages', async () => {
  const [, source] = /```js\n([^`]*new ModelParallelStrategy[\s\S]*?)```/.exec(page)!;
  expect(source!.split('\n').length).toBeLessThanOrEqual(31);
  const { status, output, errors } = await run(source!);
  expect(status, errors).toBe(0);
  expect(output).toContain('stages [["wide"],["deep","sum"]]');
  const losses = /loss ([\d. ]+)/.exec(output)![1]!.trim().split(' ').map(Number);
  expect(losses.at(-1)!).toBeLessThan(losses[0]! / 5);
});

it('the example of a step of your own trains, as it is pasted', async () => {
  const [step, train] = [...page.split('## Steps of your own')[1]!.matchAll(/```js\n([\s\S]*?)```/g)].map(([, source]) => source!);
  for (const source of [step, train]) expect(source!.split('\n').length).toBeLessThanOrEqual(31);
  programs.write('step.mjs', step!);
  // The number of cores does not decide how many replicas there are, and which of them have no rows.
  const few = train!
    .replaceAll('new MirroredStrategy()', 'new MirroredStrategy({ threads: 1, replicas: 3 })')
    .replaceAll('[64, 20]', '[2, 20]');
  expect(few).toContain('replicas: 3');
  expect(few).toContain('[2, 20]');
  for (const [source, factor] of [
    [train!, 20],
    [few, 2],
  ] as const) {
    const { status, output, errors } = await run(source);
    expect(status, errors).toBe(0);
    const [first, last] = /loss (\S+) to (\S+)/.exec(output)!.slice(1).map(Number) as [number, number];
    expect(last, output).toBeLessThan(first / factor);
  }
});

it('a program ends by itself without dispose, and with an error of its own', async () => {
  const undisposed = example!.replace('await strategy.dispose();', 'console.log("at the end");');
  expect(await run(undisposed)).toMatchObject({ status: 0, output: expect.stringContaining('at the end') as string });
  const failing = example!.replace('console.log(', "throw new Error('of the program');\nconsole.log(");
  expect(await run(failing)).toMatchObject({ status: 1, errors: expect.stringContaining('of the program') as string });
});

it('has as many threads as it is asked for, and none after dispose', async () => {
  const count = (): number => readdirSync('/proc/self/task').length;
  const before = count();
  const strategy = new MirroredStrategy({ threads: 3 });
  const model = strategy.scope(() => compiled(mlp(), () => 'adam'));
  await model.fit(rows(), oneHot(), { ...QUIET, epochs: 1 });
  expect(count()).toBeGreaterThanOrEqual(before + 3);
  await strategy.dispose();
  await expect.poll(count).toBeLessThan(before + 3);
});

it('says when a thread has ended, and goes on as tf.js after dispose', async () => {
  const strategy = new MirroredStrategy({ threads: 2 });
  const model = strategy.scope(() => compiled(mlp(), () => 'adam'));
  await model.fit(rows(), oneHot(), { ...QUIET, epochs: 1 });
  const { exchange } = strategy as unknown as { exchange: { pool: { workers: { terminate(): Promise<number> }[] } } };
  await exchange.pool.workers[1]!.terminate();
  await expect(model.fit(rows(), oneHot(), { ...QUIET, epochs: 1 })).rejects.toBeInstanceOf(ThreadError);
  await strategy.dispose();
  await model.fit(rows(), oneHot(), { ...QUIET, epochs: 1 });
  expect(model.optimizer.iterations).toBe(4);
});

it('notices a thread that ends in the middle of a step, and says so instead of that it made no progress', async () => {
  const strategy = new MirroredStrategy({ threads: 2 });
  const model = strategy.scope(() => compiled(mlp(), () => 'adam'));
  const { exchange } = strategy as unknown as { exchange: { pool: { workers: { terminate(): Promise<number> }[] } } };
  const online = once(exchange.pool.workers[1] as unknown as EventEmitter, 'online');
  await model.trainOnBatch(rows(), oneHot());
  await online;
  await model.trainOnBatch(rows(), oneHot());
  void exchange.pool.workers[1]!.terminate(); // nobody hears of it before the step waits
  await expect(model.trainOnBatch(rows(), oneHot())).rejects.toThrow('a compute thread ended: it was ended from outside');
  await strategy.dispose();
});

it('gives a step up that makes no progress', async () => {
  const strategy = new OneDeviceStrategy({ deadlineMs: 1 });
  const units = 1200;
  const model = strategy.scope(() => {
    const net = tfl.sequential({ layers: [tfl.layers.dense({ units, inputShape: [units] }), tfl.layers.dense({ units })] });
    return compiled(net, () => 'sgd', { loss: 'meanSquaredError', metrics: [] });
  });
  const batch = tf.ones([3000, units]);
  await expect(model.trainOnBatch(batch, batch)).rejects.toMatchObject({ code: 'STRATEGY_THREAD' });
  await expect(model.trainOnBatch(batch, batch)).rejects.toThrow('no compute thread made progress for 1 ms');
  await strategy.dispose();
});

it('says which backend does not give its values at once', async () => {
  const strategy = new OneDeviceStrategy();
  const model = strategy.scope(() => compiled(mlp(), () => 'sgd'));
  const xs = rows();
  xs.dataSync = () => {
    throw new Error('not at once');
  };
  await expect(model.trainOnBatch(xs, oneHot())).rejects.toBeInstanceOf(BackendError);
  await strategy.dispose();
});
