/** Parameter servers and workers in processes of their own, which one program after the other coordinates. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { ParameterServerStrategy } from './parameter-server.js';
import type { Ended, Programs, Running } from './programs.fixture.js';
import { BUILD, ServedCluster, WORKERS } from './served-cluster.fixture.js';

let cluster: ServedCluster;
let programs: Programs;
beforeAll(async () => void ({ programs } = cluster = await ServedCluster.start()));
afterAll(() => cluster.dispose());

const coordinate = (source: string): Running => cluster.coordinate(source);
const lastLine = ({ status, output, errors }: Ended): Record<string, unknown> => {
  expect(status, errors).toBe(0);
  return JSON.parse(output.trim().split('\n').at(-1)!) as Record<string, unknown>;
};
const result = async (running: Running): Promise<Record<string, unknown>> => lastLine(await running.ended);

interface State {
  readonly task: { readonly type: string };
  readonly pid: number;
  readonly parameterBytes: number;
  readonly slotBytes: number;
  readonly sentBytes: number;
  readonly receivedBytes: number;
}

const TRAIN = (strategy: string): string => `import { optimizers } from 'paceline';
${BUILD}
const strategy = ${strategy};
const model = strategy.scope(() => build());
const { history } = await fit(model);
const half = await digest(model);
const weights = model.getWeights().map((weight) => tf.mul(weight, 0.5));
model.setWeights(weights);
model.layers[0].trainable = false;
const decay = { weightDecay: 0.1, weightDecayExclude: ['*/bias'] };
model.compile({ optimizer: optimizers.lion({ learningRate: 0.01, ...decay }), loss: 'sparseCategoricalCrossentropy' });
await fit(model);
const [answers, measured] = [model.predict(xs, { batchSize: 31 }), model.evaluate(xs, ys)];
const states = strategy.servers?.();
await strategy.dispose();
say({ history, half, digest: await digest(model), replicas: strategy.numReplicasInSync, answers: [...answers.dataSync()], measured: [measured].flat().map((value) => value.dataSync()[0]), states, pid: process.pid });
`;

it('ends with the History and the bits of MirroredStrategy, while parameters and slots live in the servers', async () => {
  const {
    states: _,
    pid: __,
    ...alone
  } = await result(programs.start(TRAIN(`new MirroredStrategy({ replicas: ${WORKERS}, threads: 1 })`)));
  const { states, pid, ...served } = await result(coordinate(TRAIN('new ParameterServerStrategy()')));
  expect(served).toEqual(alone);
  const all = states as State[];
  expect(new Set([...all.map((state) => state.pid), pid]).size).toBe(WORKERS + 3);
  const total = 8 * 16 + 16 + 4 * 16 + 16 * 3 + 3;
  const sum = (of: 'parameterBytes' | 'slotBytes', type: string): number =>
    all.filter(({ task }) => task.type === type).reduce((bytes, state) => bytes + state[of], 0);
  expect(sum('parameterBytes', 'ps')).toBe(total * 4);
  expect(sum('slotBytes', 'ps')).toBe((total - 32) * 4);
  expect(sum('parameterBytes', 'worker') + sum('slotBytes', 'worker')).toBe(0);
});

it('HybridStrategy has the bits of as many replicas, and sends the sums of each worker once', async () => {
  const { states: _, pid: __, ...alone } = await result(programs.start(TRAIN('new MirroredStrategy({ replicas: 4, threads: 1 })')));
  const { states: ___, pid: ____, ...served } = await result(coordinate(TRAIN('new HybridStrategy(undefined, { replicasPerWorker: 2 })')));
  expect(served).toEqual(alone);
  const { plain, hybrid, total, hybridRun } = (await result(
    coordinate(`${BUILD}
const steps = 8;
const bytesOf = async (strategy) => {
  const model = strategy.scope(() => build());
  await model.trainOnBatch(xs, ys);
  const sent = () => strategy.servers().map(({ task, sentBytes, receivedBytes }) => task.type === 'ps' ? [sentBytes, receivedBytes] : [0, 0]);
  const before = sent();
  for (let i = 0; i < steps; i++) await model.trainOnBatch(xs, ys);
  const bytes = sent().flatMap((counts, i) => counts.map((count, way) => count - before[i][way]));
  await strategy.dispose();
  return bytes.reduce((sum, count) => sum + count, 0) / steps;
};
const plain = await bytesOf(new ParameterServerStrategy());
const hybridRun = new HybridStrategy(undefined, { replicasPerWorker: 2 }).toRun();
say({ hybridRun, plain: plain / ${WORKERS}, hybrid: await bytesOf(new HybridStrategy(new TfConfigResolver(), { replicasPerWorker: 2 })) / 4, total: ${(8 * 16 + 16 + 4 * 16 + 16 * 3 + 3) * 4} });
`),
  )) as Record<string, number>;
  expect(plain).toBe(2 * total!); // of a replica: its gradient, and the parameters
  const strategy = { kind: 'hybrid', servers: cluster.tasks['ps']!.length, threads: 2 };
  expect(hybridRun).toEqual({ strategy, replicas: 2 * WORKERS });
  expect(hybrid).toBe(total); // half of that: two replicas of a worker share both
});

it('with a codec gradients take a third of the bytes here, every run has the same bits, and it trains as without', async () => {
  const { status, output, errors } = await coordinate(`${BUILD}
const trained = async (options) => {
  const strategy = new HybridStrategy(undefined, { replicasPerWorker: 2, ...options });
  const model = strategy.scope(() => build());
  await model.trainOnBatch(xs, ys);
  const counted = () => strategy.servers().map(({ task, receivedBytes }) => task.type === 'ps' ? receivedBytes : 0).reduce((sum, bytes) => sum + bytes, 0);
  const before = counted();
  await model.trainOnBatch(xs, ys);
  const received = (counted() - before) / ${WORKERS};
  const { history } = await fit(model, { epochs: 6 });
  const state = model.layers[1].getWeights().slice(2).flatMap((weight) => [...weight.dataSync()]);
  say({ received, loss: history.loss, digest: await digest(model), state });
  await strategy.dispose();
};
for (const options of [{}, { codec: 'int8', seed: 4 }, { codec: 'sign' }, { codec: 'int8', seed: 4 }, { codec: 'int8', seed: 5 }]) await trained(options);
// Batches without rows, of which sgd learns nothing, and steps that fail in one worker: neither what was kept nor the state of layers is lost by them.
const bad = tf.tensor2d(Float32Array.from({ length: examples }, (_, i) => (i === examples - 1 ? 7 : 0)), [examples, 1]);
for (const between of [[], [tf.slice(ys, 0, 0)], [bad], [bad, bad, tf.slice(ys, 0, 0)]]) {
  const strategy = new ParameterServerStrategy(new TfConfigResolver(), { codec: 'sign' });
  const model = strategy.scope(() => {
    const net = tf.sequential({ layers: [
      tf.layers.dense({ units: 16, activation: 'relu', inputShape: [8], kernelInitializer: seeded(1) }),
      tf.layers.batchNormalization(),
      tf.layers.dense({ units: 3, activation: 'softmax', kernelInitializer: seeded(2) }),
    ] });
    net.compile({ optimizer: tf.train.sgd(0.05), loss: 'sparseCategoricalCrossentropy' });
    return net;
  });
  await model.trainOnBatch(xs, ys);
  for (const targets of between) await model.trainOnBatch(tf.slice(xs, 0, targets.shape[0]), targets).catch(() => undefined);
  for (let i = 0; i < 2; i++) await model.trainOnBatch(xs, ys);
  say(model.getWeights().map((weight) => [...weight.dataSync()]));
  await strategy.dispose();
}
const asked = async (strategy) => {
  try { say(strategy.toRun()); } catch (error) { told(error); }
  await strategy.dispose();
};
await asked(new ParameterServerStrategy(undefined, { codec: 'int8' }));
await asked(new ParameterServerStrategy(undefined, { codec: 'sign' }));
await asked(new HybridStrategy(undefined, { codec: 'int8' }));
`).ended;
  expect(status, errors).toBe(0);
  const lines = output
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as Record<string, unknown>);
  const [dense, packed, signs, again, otherSeed, whole, withEmpty, withBad, withBoth, int8Run, signRun, hybridRun] = lines as [
    Record<string, unknown>,
    Record<string, unknown>,
    Record<string, unknown>,
    ...Record<string, unknown>[],
  ];
  expect(again).toEqual(packed);
  expect(withEmpty).toEqual(whole);
  expect(withBad).toEqual(whole);
  expect(withBoth).toEqual(whole);
  expect(otherSeed!['digest']).not.toBe(packed['digest']);
  const total = 8 * 16 + 16 + 4 * 16 + 16 * 3 + 3;
  expect(dense).toMatchObject({ received: total * 4 });
  // A byte for each of 129 and 98 elements, up to a multiple of 16, the scale of each part, and float32 for 32 moving averages.
  expect(packed).toMatchObject({ received: 148 + 116 + 32 * 4 });
  // A bit for each, and the magnitude of each 512.
  expect(signs).toMatchObject({ received: 24 + 20 + 32 * 4 });
  expect(packed['digest']).not.toBe(dense['digest']);
  expect(int8Run).toMatchObject({ codec: { kind: 'int8' } });
  expect(signRun).toMatchObject({ codec: { kind: 'sign', errorFeedback: true } });
  expect(hybridRun).toMatchObject({ message: expect.stringContaining('the sum of several replicas') as string });
  const [with_, without] = [packed, dense].map(({ loss }) => (loss as number[]).at(-1)!);
  expect(Math.abs(with_! / without! - 1)).toBeLessThan(0.05);
  expect((signs['loss'] as number[]).at(-1)! / without!).toBeLessThan(1.5);
});

it('a replica that throws is named, nothing has changed, and training goes on; a second strategy waits for dispose; another secret and another task are refused', async () => {
  const source = `${BUILD}
const strategy = new ParameterServerStrategy();
const model = strategy.scope(() => build());
await fit(model);
const before = await digest(model);
const bad = tf.tensor2d(Float32Array.from({ length: 30 }, (_, i) => (i === 29 ? 7 : 0)), [30, 1]);
await model.trainOnBatch(tf.slice(xs, 0, 30), bad).catch(told);
say((await digest(model)) === before);
const { history } = await fit(model);
const next = new ParameterServerStrategy();
const model2 = next.scope(() => build());
await fit(model2).catch(told);
await strategy.dispose();
await fit(model2);
await next.dispose();
say((await digest(model2)) === before);
await fit(new ParameterServerStrategy(undefined, { secret: 'not the secret of the others' }).scope(() => build())).catch(told);
`;
  const { status, output, errors } = await coordinate(source).ended;
  expect(status, errors).toBe(0);
  const [replica, isSame, second, isNext, secret] = output
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as unknown);
  expect(replica).toMatchObject({ code: 'STRATEGY_REPLICA', replica: WORKERS - 1, step: 8 });
  expect(isSame).toBe(true);
  expect(second).toMatchObject({ code: 'STRATEGY_CLUSTER' });
  expect((second as { message: string }).message).toContain(
    'another strategy of this program coordinates these servers and workers: dispose()',
  );
  expect(isNext).toBe(true);
  expect(secret).toMatchObject({ code: 'STRATEGY_CLUSTER' });
  expect((secret as { message: string }).message).toContain('the proof of the shared secret is wrong');
  const resolver = { resolve: () => undefined };
  expect(() => new ParameterServerStrategy(resolver)).toThrow('no cluster is given');
});

it('functions of a coordinator train with the servers; that of a worker which is killed goes to another, and the worker comes back', async () => {
  programs.write(
    'functions.mjs',
    `export function* batches({ tf, workerIndex }, size) {
  for (let i = workerIndex; ; i += 2) yield i * size;
}
export async function train({ tf, state, workerIndex }, model, rows, xs) {
  const { value: first } = await rows.next();
  const { 'dense/kernel': kernel, 'dense/bias': bias } = await model.read();
  const loss = (kernel, bias) => tf.losses.meanSquaredError(tf.sum(xs, 1, true), tf.add(tf.matMul(xs, kernel), bias));
  const { value, grads: [ofKernel, ofBias] } = tf.valueAndGrads(loss)([kernel, bias]);
  await model.applyGradients({ 'dense/kernel': ofKernel, 'dense/bias': ofBias });
  return { loss: value, first, workerIndex, calls: (state.calls = (state.calls ?? 0) + 1) };
}
export const waits = async ({ workerIndex }, ms) => { await new Promise((resolve) => setTimeout(resolve, ms)); return [workerIndex, process.pid]; };
export const fails = () => { throw new Error('no such row'); };
`,
  );
  const source = `${BUILD}
const strategy = new ParameterServerStrategy();
const model = strategy.scope(() => {
  const net = tf.sequential({ layers: [tf.layers.dense({ units: 1, inputShape: [4], name: 'dense', kernelInitializer: 'zeros' })] });
  net.compile({ optimizer: tf.train.adam(0.05), loss: 'meanSquaredError' });
  return net;
});
const coordinator = new ClusterCoordinator(strategy);
const fn = (name) => ({ module: new URL('./functions.mjs', import.meta.url), name });
const rows = coordinator.createPerWorkerDataset(fn('batches'), [32]);
const made = tf.randomUniform([32, 4], -1, 1, 'float32', 3);
const values = [];
for (let i = 0; i < 200; i++) values.push(coordinator.schedule(fn('train'), [model, rows, made]));
await coordinator.join();
const all = await coordinator.fetch(values);
const losses = all.map(({ loss }) => loss.dataSync()[0]);
const [first, last] = [Math.max(...losses), losses.at(-1)]; // the function that was scheduled first may be the last to begin
const answer = model.predict(tf.ones([1, 4])).dataSync()[0];
say({ first, last, answer, workers: [...new Set(all.map(({ workerIndex }) => workerIndex))].sort(), iterations: model.optimizer.iterations, steps: (await model.fit(made, tf.sum(made, 1, true), { verbose: 0, epochs: 1 })).history.loss.length });
coordinator.schedule(fn('fails'));
await coordinator.join().catch(told);
const long = [0, 1].map(() => coordinator.schedule(fn('waits'), [3000]));
console.log('waits');
say(await coordinator.fetch(long));
let later;
do later = await coordinator.fetch([0, 1].map(() => coordinator.schedule(fn('waits'), [500])));
while (new Set(later.map(([, pid]) => pid)).size < 2); // until the one that was started again has joined
say(later);
await strategy.dispose();
`;
  const running = coordinate(source);
  await running.said('waits');
  await cluster.killed('worker', 1);
  const { status, output, errors } = await running.ended;
  expect(status, errors).toBe(0);
  const [trained, failed, , long, later] = output
    .trim()
    .split('\n')
    .map((line) => (line === 'waits' ? undefined : (JSON.parse(line) as unknown)));
  const { first, last, answer, ...rest } = trained as Record<string, number>;
  expect(last!).toBeLessThan(first! / 20);
  expect(Math.abs(answer! - 4)).toBeLessThan(0.5);
  expect(rest).toEqual({ workers: [0, 1], iterations: 200, steps: 1 });
  expect(failed).toMatchObject({ code: 'STRATEGY_REPLICA', message: expect.stringContaining('no such row') as string });
  expect((long as number[][]).length).toBe(2);
  expect(new Set((later as number[][]).map(([, pid]) => pid)).size).toBe(2);
});

it('the examples of the page train, as they are pasted', async () => {
  const page = readFileSync(join(import.meta.dirname, '../../../docs/library.md'), 'utf8');
  const [, section] = /\n## Parameter servers\n([\s\S]*?)\n## /.exec(page)!;
  // That of groups has a test of its own, with more workers.
  const [plain, hybrid, , functions, scheduled] = [...section!.matchAll(/```js\n([\s\S]*?)```/g)].map(([, source]) => source!);
  programs.write('functions.mjs', functions!);
  for (const source of [plain, hybrid, functions, scheduled]) expect(source!.split('\n').length).toBeLessThanOrEqual(31);
  // Scheduled functions are asynchronous, and their weights begin by chance.
  for (const [source, said, share] of [
    [plain, /^ps 1 \d+$/mu, 0.25],
    [hybrid, /^replicas 4$/mu, 0.25],
    [scheduled, /Tensor/u, 0.9],
  ] as const) {
    const { status, output, errors } = await coordinate(source!).ended;
    expect(status, errors).toBe(0);
    expect(output).toMatch(said);
    const losses = /loss ([\d. to]+)/u
      .exec(output)![1]!
      .trim()
      .split(/[ to]+/u)
      .map(Number);
    expect(losses.at(-1)!, output).toBeLessThan(losses[0]! * share);
  }
});

it('a parameter server that is killed is named, and so is a worker', async () => {
  const source = `${BUILD}
const strategy = new ParameterServerStrategy(undefined, { deadlineMs: 90000 });
const model = strategy.scope(() => build());
const callbacks = { onEpochEnd: (epoch) => epoch === 1 && console.log('trains') };
await fit(model, { epochs: idles ? 2 : 1000000, callbacks }).catch(told);
if (idles) {
  console.log('idles');
  await new Promise((resolve) => setTimeout(resolve, 1500));
  await model.trainOnBatch(xs, ys).catch(told);
}
await model.trainOnBatch(xs, ys).catch(told);
await strategy.dispose();
`;
  for (const [type, index, when] of [
    ['worker', 0, 'trains'],
    ...(process.env['PACELINE_SOAK'] === '1' ? ([['ps', 1, 'trains']] as const) : []),
    ['ps', 0, 'idles'],
  ] as const) {
    const running = coordinate(`const idles = ${when === 'idles'};\n${source}`);
    await running.said(when);
    const victim = cluster.processOf(type, index);
    victim.child.kill('SIGKILL');
    const killedMs = performance.now();
    const { status, output, errors } = await running.ended;
    expect(performance.now() - killedMs, 'it is told at once, and not by the deadline').toBeLessThan(45_000);
    expect(status, errors).toBe(0);
    const lines = output.trim().split('\n').slice(-2);
    for (const line of lines) expect(JSON.parse(line)).toMatchObject({ code: 'STRATEGY_MEMBER', members: [{ type, index }] });
    await victim.ended;
    await cluster.serve(type, index).said('serves');
  }
});
