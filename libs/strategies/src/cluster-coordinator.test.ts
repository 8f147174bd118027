/** Functions of a ClusterCoordinator in the workers, and what the program sees of what they have learned. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { Running } from './programs.fixture.js';
import { BUILD, ServedCluster, WORKERS } from './served-cluster.fixture.js';

/** Each call of `step` takes 0.01 from every weight: the optimizer is sgd with momentum 0, which has slots. */
const FUNCTIONS = `
export async function step({ tf }, model) {
  const weights = await model.read();
  await model.applyGradients(Object.fromEntries(Object.entries(weights).map(([name, weight]) => [name, tf.onesLike(weight)])));
}
/** With the gradients of these parameters alone. */
export async function stepOf({ tf }, model, names) {
  const weights = await model.read();
  await model.applyGradients(Object.fromEntries(names.map((name) => [name, tf.onesLike(weights[name] ?? weights['dense/kernel'])])));
  return process.pid;
}
export async function stepAfter(context, model, ms) {
  await waits(context, ms);
  await step(context, model);
}
export const numbers = function* (_, from) {
  for (let i = from; ; i++) yield i;
};
export const next = async (_, rows) => (await rows.next()).value;
export const waits = (_, ms) => new Promise((resolve) => setTimeout(resolve, ms, 'waited'));
export const fails = () => { throw new Error('no such row'); };
export const exits = () => process.exit();
`;

/** The program's model begins with zeros. */
const PROGRAM = `${BUILD}
const fn = (name) => ({ module: new URL('./coordinated.mjs', import.meta.url), name });
const zeros = (units, more = {}) => tf.layers.dense({ units, useBias: false, kernelInitializer: 'zeros', ...more });
const strategy = new ParameterServerStrategy();
const model = strategy.scope(() => {
  const net = tf.sequential({ layers: [zeros(1, { inputShape: [4], name: 'dense' })] });
  net.compile({ optimizer: tf.train.momentum(0.01, 0), loss: 'meanSquaredError' });
  return net;
});
const coordinator = new ClusterCoordinator(strategy);
const steps = (count) => Array.from({ length: count }, () => coordinator.schedule(fn('step'), [model]));
const until = async (isTrue) => { while (!isTrue()) await new Promise((resolve) => setTimeout(resolve, 5)); };
const shown = (weight = model.getWeights()[0]) => [...weight.dataSync()].map((value) => Math.round(value * 100));
`;

let cluster: ServedCluster;
beforeAll(async () => {
  cluster = await ServedCluster.start();
  cluster.programs.write('coordinated.mjs', FUNCTIONS);
});
afterAll(() => cluster.dispose());

async function said(running: Running): Promise<unknown[]> {
  const { status, output, errors } = await running.ended;
  expect(status, errors).toBe(0);
  return output
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as unknown);
}

it('what functions have learned is there when done() says so, and when their values are fetched; to read the optimizer loses nothing of it', async () => {
  const lines = await said(
    cluster.coordinate(`${PROGRAM}
steps(10);
await coordinator.join();
say([shown()[0], model.optimizer.iterations]);
steps(10);
await until(() => coordinator.done());
await model.optimizer.getWeights();
steps(1);
await until(() => coordinator.done());
say([shown()[0], model.optimizer.iterations, (await model.optimizer.getWeights()).length]);
await coordinator.fetch(steps(3));
say([Math.round(model.predict(tf.ones([1, 4])).dataSync()[0] * 25), shown()[0], model.optimizer.iterations]);
await coordinator.fetch(steps(2));
model.setWeights([tf.mul(model.getWeights()[0], 2)]);
await coordinator.fetch(steps(1));
await model.optimizer.setWeights((await model.optimizer.getWeights()).map(({ name, tensor }, i) => ({ name, tensor: i === 0 ? tf.scalar(100, 'int32') : tensor })));
await coordinator.fetch(steps(1));
say([shown()[0], model.optimizer.iterations]);
steps(1);
await until(() => coordinator.done());
await strategy.dispose();
say([shown(), model.optimizer.iterations]);
`),
  );
  expect(lines).toEqual([
    [-10, 10],
    [-21, 21, 2],
    [-24, -24, 24],
    [-54, 101],
    [[-55, -55, -55, -55], 102],
  ]);
});

it('coordinators of one strategy share workers and keep their datasets apart; another strategy has none; what fails and what is cancelled has a code', async () => {
  const [values, refused, lost, cancelled, lostAgain] = await said(
    cluster.coordinate(`${PROGRAM}
const second = new ClusterCoordinator(strategy);
const rows = [coordinator, second].map((each, i) => each.createPerWorkerDataset(fn('numbers'), [i * 1000]));
const nextOf = async (i) => Math.floor((await [coordinator, second][i].fetch([coordinator, second][i].schedule(fn('next'), [rows[i]]))) / 1000);
const apart = [await nextOf(0), await nextOf(1), await nextOf(0)];
const both = [coordinator, second].flatMap((each) => [0, 1].map(() => each.schedule(fn('waits'), [50])));
say([apart, await coordinator.fetch(both)]);
try { new ClusterCoordinator(new MirroredStrategy()); } catch (error) { told(error); }
const exits = coordinator.schedule(fn('exits'));
const waits = Array.from({ length: ${WORKERS} }, () => coordinator.schedule(fn('waits'), [60000]));
await coordinator.fetch(exits).catch(told);
await coordinator.fetch(waits.at(-1)).catch(told);
try { coordinator.done(); } catch (error) { told(error); }
await strategy.dispose();
`),
  );
  expect(values).toEqual([[0, 1, 0], Array(4).fill('waited')]);
  expect(refused).toMatchObject({ code: 'STRATEGY_ARGUMENT', message: expect.stringContaining('ParameterServerStrategy') as string });
  expect(lost).toMatchObject({ code: 'STRATEGY_MEMBER', message: expect.stringContaining('lost its worker 5 times') as string });
  for (const { type } of (lost as { members: { type: string }[] }).members) expect(type).toBe('worker');
  expect((lost as { members: unknown[] }).members).not.toEqual([]);
  expect(cancelled).toMatchObject({ code: 'STRATEGY_CANCELLED' });
  expect(lostAgain).toEqual(lost);
});

it('frozen layers need no gradient, in a worker that was started again too; gradients of what is no parameter are refused', async () => {
  const running = cluster.coordinate(`${PROGRAM}
const deep = strategy.scope(() => {
  const net = tf.sequential({ layers: [zeros(2, { inputShape: [4], name: 'base', trainable: false }), zeros(1, { name: 'dense' })] });
  net.compile({ optimizer: tf.train.momentum(0.01, 0), loss: 'meanSquaredError' });
  return net;
});
const stepOf = (...names) => coordinator.schedule(fn('stepOf'), [deep, names]);
const pids = new Set(await coordinator.fetch(strategy.servers().map((_, i) => stepOf('dense/kernel', ...(i === 0 ? ['base/kernel'] : [])))));
console.log('"kill"');
let isBack = false;
while (!isBack) {
  const waits = Array.from({ length: ${WORKERS} }, () => coordinator.schedule(fn('waits'), [200]));
  const now = await coordinator.fetch(Array.from({ length: ${WORKERS} }, () => stepOf('dense/kernel')));
  isBack = now.some((pid) => !pids.has(pid));
}
const [frozen, trained] = deep.layers.flatMap((layer) => layer.getWeights()).map((weight) => [...weight.dataSync()]);
say([frozen, trained.every((value) => value < 0)]);
deep.layers[0].trainable = true;
deep.compile({ optimizer: tf.train.momentum(0.01, 0), loss: 'meanSquaredError' });
await coordinator.fetch(stepOf('dense/kernel')).catch(told);
await coordinator.join().catch(() => undefined);
await coordinator.fetch(stepOf('dense/kernel', 'base/kernel', 'dense/kernal')).catch(told);
await coordinator.join().catch(() => undefined);
await strategy.dispose();
`);
  await running.said('"kill"');
  await cluster.killed('worker', 0);
  const [, [frozen, isTrained], missing, unknown] = (await said(running)) as [unknown, unknown[], unknown, unknown];
  expect(frozen).toEqual(Array(8).fill(0));
  expect(isTrained).toBe(true);
  expect(missing).toMatchObject({ code: 'STRATEGY_REPLICA', message: expect.stringContaining('no gradient of base/kernel') as string });
  expect(unknown).toMatchObject({
    code: 'STRATEGY_REPLICA',
    message: expect.stringContaining('no parameter dense/kernal; there are base/kernel, dense/kernel') as string,
  });
});

it('when a parameter server dies, functions fail at once with an error that names it', async () => {
  const running = cluster.coordinate(`${PROGRAM.replace('Strategy()', 'Strategy(undefined, { deadlineMs: 600000 })')}
const later = coordinator.schedule(fn('stepAfter'), [model, 3000]);
const waits = coordinator.schedule(fn('waits'), [600000]);
const cancelled = coordinator.schedule(fn('waits'), [600000]);
console.log('"waits"');
for (const value of [later, waits, cancelled]) await coordinator.fetch(value).catch(told);
await coordinator.join().catch(told);
await coordinator.fetch(coordinator.schedule(fn('step'), [model])).catch(told);
await strategy.dispose().catch(told);
`);
  await running.said('"waits"');
  await cluster.killed('ps', 1);
  const [, later, waits, cancelled, joined, scheduled] = await said(running);
  const gone = { code: 'STRATEGY_MEMBER', members: [{ type: 'ps', index: 1 }] };
  expect([later, waits, joined, scheduled]).toMatchObject([gone, gone, gone, gone]);
  expect(cancelled).toMatchObject({ code: 'STRATEGY_CANCELLED' });
});
