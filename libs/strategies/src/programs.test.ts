/** Strategies in programs of people: short examples of the page, Ctrl-C, and what a strategy of one process does not open. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import * as tf from '@tensorflow/tfjs-core';
import { LocalUpdateStrategy } from './local-update.js';
import { compiled, mlp, oneHot, QUIET, rows } from './models.fixture.js';
import { Programs } from './programs.fixture.js';
import { CentralStorageStrategy, MirroredStrategy } from './thread-strategies.js';
import type { FromThread } from './threads/protocol.js';
import type { ThreadPool } from './threads/thread-pool.js';

let programs: Programs;
beforeAll(() => void (programs = new Programs()));
afterAll(() => programs.dispose());

const page = readFileSync(join(import.meta.dirname, '../../../docs/library.md'), 'utf8');
/** The example that imports that and nothing else of paceline. */
const exampleOf = (name: string): string =>
  [...page.matchAll(/```js\n([\s\S]*?)```/g)]
    .map(([, source]) => source!)
    .find((source) => source.includes(`import { ${name} } from 'paceline'`))!;

it.each(['OneDeviceStrategy', 'CentralStorageStrategy'])('the example of %s trains, as it is pasted', async (name) => {
  const source = exampleOf(name);
  expect(source.split('\n').length).toBeLessThanOrEqual(31);
  const { status, output, errors } = await programs.start(source).ended;
  expect(status, errors).toBe(0);
  const losses = /loss ([\d. ]+)/.exec(output)![1]!.trim().split(' ').map(Number);
  expect(losses).toHaveLength(5);
  expect(losses[4]!).toBeLessThan(losses[0]! / 5);
});

describe('Ctrl-C', () => {
  /** Trains until somebody ends it. */
  const endless = (handler: string): string =>
    exampleOf('MirroredStrategy')
      .replace('const history', `${handler}\nconst history`)
      .replace('epochs: 5', 'epochs: 1e6, callbacks: { onEpochEnd: (epoch) => epoch === 0 && console.log("trains") }');
  const interrupted = async (handler: string) => {
    const { child, said, ended } = programs.start(endless(handler));
    await said('trains');
    child.kill('SIGINT');
    const result = await ended;
    return { signal: child.signalCode, ...result };
  };

  it('ends a program and all its threads while it trains', async () => {
    expect(await interrupted('')).toMatchObject({ status: null, signal: 'SIGINT' });
  });

  it('is heard by the handler of the program, whose exit ends the threads too', async () => {
    const result = await interrupted("process.on('SIGINT', () => { console.log('heard'); process.exit(3); });");
    expect(result).toMatchObject({ status: 3, signal: null, output: expect.stringContaining('heard') as string });
  });

  it('may dispose the strategy: fit fails with that, and the program ends by itself', async () => {
    const result = await interrupted("process.once('SIGINT', () => void strategy.dispose());");
    expect(result).toMatchObject({ status: 1, signal: null, errors: expect.stringContaining('STRATEGY_DISPOSED') as string });
  });
});

it('MirroredStrategy and CentralStorageStrategy open no socket and start no process', async () => {
  for (const name of ['MirroredStrategy', 'CentralStorageStrategy']) {
    const { status, output, errors } = await programs.start(
      exampleOf(name)
        .replace("from 'paceline';", "from 'paceline';\nimport { readdirSync, readFileSync, readlinkSync } from 'node:fs';\n" + COUNTS)
        .replace(/const strategy = new \w+\(.*\);/, `const before = counts();\nconst strategy = new ${name}({ threads: 2 });`)
        .replace('await strategy.dispose();', "console.log('counts', JSON.stringify([before, counts()]));\nawait strategy.dispose();"),
    ).ended;
    expect(status, errors).toBe(0);
    const [before, during] = JSON.parse(/counts (.*)/.exec(output)![1]!) as { sockets: number; children: number; threads: number }[];
    expect(during).toMatchObject({ sockets: before!.sockets, children: 0 });
    expect(during!.threads).toBeGreaterThanOrEqual(before!.threads + 2);
  }
});
const COUNTS = `
const counts = () => ({
  sockets: readdirSync('/proc/self/fd').filter((fd) => { try { return readlinkSync('/proc/self/fd/' + fd).startsWith('socket:'); } catch { return false; } }).length,
  children: readFileSync('/proc/self/task/' + process.pid + '/children', 'utf8').trim().split(' ').filter(Boolean).length,
  threads: readdirSync('/proc/self/task').length,
});`;

it('with MirroredStrategy all threads update, each its part, and with CentralStorageStrategy one; all threads copy the parameters', async () => {
  await tf.setBackend('cpu');
  const steps = 6;
  const countsOf = async (strategy: MirroredStrategy | CentralStorageStrategy) => {
    const model = strategy.scope(() => compiled(mlp(), () => tf.train.adam(0.01)));
    await model.fit(rows(32), oneHot(32), { ...QUIET, epochs: steps, batchSize: 32 });
    const { pool } = (strategy as unknown as { exchange: { pool: ThreadPool } }).exchange;
    const answers = pool.ask({ kind: 'counts', model: 0 }) as readonly Extract<FromThread, { kind: 'ok' }>[];
    const parameters = model.countParams();
    await strategy.dispose();
    return answers.map(({ counts }) => ({ loads: counts!.loads, updates: counts!.updated / parameters }));
  };
  const mirrored = await countsOf(new MirroredStrategy({ threads: 2 }));
  for (const { updates } of mirrored) expect(updates / steps).toBeCloseTo(0.5, 1);
  expect(mirrored[0]!.updates + mirrored[1]!.updates).toBe(steps);
  // The first step loads them, and each loads those of the next one.
  expect(mirrored.map(({ loads }) => loads)).toEqual([steps + 1, steps + 1]);
  expect(await countsOf(new CentralStorageStrategy({ threads: 2 }))).toEqual([
    { loads: steps, updates: steps },
    { loads: steps, updates: 0 },
  ]);
});

it('LocalUpdateStrategy says what it is as a run of the service', async () => {
  const local = (options = {}) => new LocalUpdateStrategy({ threads: 1, replicas: 4, localSteps: 5, ...options });
  const strategies = [
    local(),
    local({ outer: 'nesterov', outerLearningRate: 0.5, outerMomentum: 0.8 }),
    local({ outer: 'elastic', movingRate: 0.2 }),
  ];
  const run = { kind: 'local-update', threads: 1, localSteps: 5, innerState: 'keep' };
  expect(strategies.map((strategy) => strategy.toRun())).toEqual([
    { strategy: { ...run, outerOptimizer: 'sgd' }, replicas: 4 },
    { strategy: { ...run, outerOptimizer: 'nesterov', outerLearningRate: 0.5, outerMomentum: 0.8 }, replicas: 4 },
    { strategy: { ...run, outerOptimizer: 'elastic', movingRate: 0.2 }, replicas: 4 },
  ]);
  await Promise.all(strategies.map((strategy) => strategy.dispose()));
});
