/** Functions of a ClusterCoordinator in the workers, and what the program sees of what they have learned. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { Running } from './programs.fixture.js';
import { BUILD, ServedCluster } from './served-cluster.fixture.js';

/** Each call of `step` takes 0.01 from every weight: the optimizer is sgd with momentum 0, which has slots. */
const FUNCTIONS = `
export async function step({ tf }, model) {
  const weights = await model.read();
  await model.applyGradients(Object.fromEntries(Object.entries(weights).map(([name, weight]) => [name, tf.onesLike(weight)])));
}
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
