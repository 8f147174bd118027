/** Several processes that train one model: equal bits, whatever their number; what happens when one fails, differs or dies. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ArgumentError, ClusterConfigError } from './errors.js';
import { MultiWorkerMirroredStrategy, withDefaults } from './multi-worker.js';
import { Programs, tfConfigs, type Ended, type Running } from './programs.fixture.js';

let programs: Programs;
beforeAll(() => {
  programs = new Programs();
});
afterAll(() => programs.dispose());

const SECRET = { PACELINE_CLUSTER_SECRET: 'a secret of these tests' };

/** Has dropout, the state of batch normalisation, an optimizer with slots, metrics, a last batch that is smaller, and initial weights by chance. */
const BUILD = `
import { createHash } from 'node:crypto';
import * as tf from '@tensorflow/tfjs';
import { MirroredStrategy, MultiWorkerMirroredStrategy } from 'paceline';
const examples = 150;
const xs = tf.tensor2d(Float32Array.from({ length: examples * 8 }, (_, i) => Math.sin(i * 1.7)), [examples, 8]);
const ys = tf.tensor2d(Float32Array.from({ length: examples }, (_, i) => i % 3), [examples, 1]);
const seeded = (seed) => tf.initializers.glorotUniform({ seed });
const build = (kernel = seeded) => {
  const net = tf.sequential({
    layers: [
      tf.layers.dense({ units: 16, activation: 'relu', inputShape: [8], kernelInitializer: kernel(1) }),
      tf.layers.batchNormalization(),
      tf.layers.dropout({ rate: 0.2, name: 'drop' }),
      tf.layers.dense({ units: 3, activation: 'softmax', kernelInitializer: kernel(2) }),
    ],
  });
  net.compile({ optimizer: tf.train.adam(0.01), loss: 'sparseCategoricalCrossentropy', metrics: ['accuracy'] });
  return net;
};
const fit = (model, more = {}) => model.fit(xs, ys, { epochs: 2, batchSize: 40, verbose: 0, validationSplit: 0.1, shuffle: false, ...more });
const digest = async (model) => {
  const hash = createHash('sha256');
  for (const weight of [...model.getWeights(), ...await model.optimizer.getWeights()]) hash.update(Buffer.from((weight.tensor ?? weight).dataSync().buffer));
  return hash.digest('hex');
};
const say = (value) => console.log(JSON.stringify(value));
const told = (error) => say({ code: error.code, name: error.constructor.name, message: error.message, members: error.members, replica: error.replica, layer: error.layer });
`;
const TRAIN = `${BUILD}
const strategy = process.env.TF_CONFIG ? new MultiWorkerMirroredStrategy({ replicas: 4, threads: 1 }) : new MirroredStrategy({ replicas: 4, threads: 1 });
const model = strategy.scope(() => build());
const { history } = await fit(model);
say({ history, digest: await digest(model), replicas: strategy.numReplicasInSync });
await strategy.dispose();
`;

async function started(
  source: string | readonly string[],
  processes: number,
  env: Readonly<Record<string, string>> = {},
): Promise<Running[]> {
  const configs = await tfConfigs(processes);
  return configs.map((config, i) =>
    programs.start(typeof source === 'string' ? source : source[i]!, { ...SECRET, ...env, TF_CONFIG: config }),
  );
}
const lastLine = ({ status, output, errors }: Ended): Record<string, unknown> => {
  expect(status, errors).toBe(0);
  return JSON.parse(output.trim().split('\n').at(-1)!) as Record<string, unknown>;
};
const results = async (running: readonly Running[]) => (await Promise.all(running.map(({ ended }) => ended))).map(lastLine);

it('2, 3 and 4 processes end with the History and the bits of one with MirroredStrategy', async () => {
  const alone = await results([programs.start(TRAIN)]);
  for (const processes of [2, 3, 4])
    for (const result of await results(await started(TRAIN, processes))) expect(result, `${processes} processes`).toEqual(alone[0]);
});

it('begins with the weights of the first process, takes the same shuffled rows, and what is set later in all', async () => {
  const source = `${BUILD}
const strategy = new MultiWorkerMirroredStrategy({ threads: 1, transport: 'tcp' });
const model = strategy.scope(() => build(() => 'glorotUniform'));
const digests = [];
await fit(model, { shuffle: true });
digests.push(await digest(model));
model.setWeights(model.getWeights().map((weight) => tf.mul(weight, 0.5)));
const { history } = await fit(model, { shuffle: true });
digests.push(await digest(model));
const batch = await model.trainOnBatch(xs, ys);
say({ digests, history, batch });
`;
  const [a, b] = await results(await started(source, 2));
  expect(b).toEqual(a);
});

it('a replica that throws is named by all, nothing has changed, and training goes on', async () => {
  const source = `${BUILD}
const strategy = new MultiWorkerMirroredStrategy({ threads: 1, replicas: 3 });
const model = strategy.scope(() => build());
await fit(model);
const before = await digest(model);
const bad = tf.tensor2d(Float32Array.from({ length: 30 }, (_, i) => (i === 29 ? 7 : 0)), [30, 1]);
await model.trainOnBatch(tf.slice(xs, 0, 30), bad).catch(told);
say((await digest(model)) === before);
await fit(model);
say({ digest: await digest(model) });
await strategy.dispose();
`;
  const ended = await Promise.all((await started(source, 3)).map((each) => each.ended));
  const lines = ended.map(({ output, errors }) => {
    expect(errors).not.toContain('Error');
    return output.trim().split('\n').slice(-3);
  });
  expect(JSON.parse(lines[0]![0]!)).toMatchObject({ code: 'STRATEGY_REPLICA', replica: 2 });
  expect(lines[0]![1]).toBe('true');
  for (const other of lines.slice(1)) expect(other).toEqual(lines[0]);
});

it('a process that is killed is named by all others, at once', async () => {
  const source = `${BUILD}
const strategy = new MultiWorkerMirroredStrategy({ threads: 1, replicas: 3 });
const model = strategy.scope(() => build());
const callbacks = { onEpochEnd: (epoch) => void (epoch === 1 && console.log('trains')) };
await fit(model, { epochs: 1_000_000, callbacks }).catch(told);
await model.trainOnBatch(xs, ys).catch(told);
await strategy.dispose();
await fit(model, { epochs: 1 }); // tf.js alone
`;
  const running = await started(source, 3);
  await Promise.all(running.map(({ said }) => said('trains')));
  running[1]!.child.kill('SIGKILL');
  for (const { ended } of [running[0]!, running[2]!]) {
    const { status, output, errors } = await ended;
    expect(status, errors).toBe(0);
    const [first, second] = output
      .trim()
      .split('\n')
      .slice(-2)
      .map((line) => JSON.parse(line) as Record<string, unknown>);
    expect(first).toMatchObject({ code: 'STRATEGY_MEMBER', name: 'MemberError', members: [{ type: 'worker', index: 1 }] });
    expect(first!['message']).toContain('worker 1 (127.0.0.1:');
    expect(second).toEqual(first);
  }
});

it('says what differs between the processes', async () => {
  const program = (more: string): string => `${BUILD}
const strategy = new MultiWorkerMirroredStrategy({ threads: 1, deadlineMs: 20_000 });
await fit(strategy.scope(() => build()), ${more}).catch(told);
await strategy.dispose();
`;
  const [a, b] = await results(await started([program('{}'), program('{ batchSize: 50 }')], 2));
  expect(a).toMatchObject({ code: 'STRATEGY_MEMBER', members: [{ type: 'worker', index: 1 }] });
  expect(a!['message']).toMatch(
    /worker 1 \(\S+\) is at "step 1 of model 0: 50 examples.*", and worker 0 \(\S+\) at "step 1 of model 0: 40 examples/,
  );
  expect(b).toMatchObject({ code: 'STRATEGY_MEMBER' });
});

it('the example of the page trains in two processes, as it is pasted', async () => {
  const page = readFileSync(join(import.meta.dirname, '../../../docs/library.md'), 'utf8');
  const [, example] = /```js\n([^`]*MultiWorkerMirroredStrategy[\s\S]*?)```/.exec(page)!;
  expect(example!.split('\n').length).toBeLessThanOrEqual(31);
  const ended = await Promise.all((await started(example!, 2)).map((each) => each.ended));
  const losses = ended.map(({ output, errors }) => /loss ([\d. ]+)/.exec(output)?.[1] ?? errors);
  expect(losses[1]).toBe(losses[0]);
  const [first, ...rest] = losses[0]!.trim().split(' ').map(Number);
  expect(rest.at(-1)!).toBeLessThan(first! / 2);
});

describe('refused', () => {
  const worker = ['127.0.0.1:1', '127.0.0.1:2'];
  const cluster = { resolve: () => undefined };
  it('a cluster without a secret, or with an option that has no meaning', async () => {
    const { GivenResolver } = await import('@paceline/collectives');
    const given = new GivenResolver({ worker }, { type: 'worker', index: 0 });
    expect(() => new MultiWorkerMirroredStrategy({ cluster: given })).toThrow(ClusterConfigError);
    expect(() => new MultiWorkerMirroredStrategy({ cluster: given })).toThrow('PACELINE_CLUSTER_SECRET');
    expect(() => new MultiWorkerMirroredStrategy({ cluster: given, secret: 'short' })).toThrow('at least 16 characters');
    const secret = 'long enough for a test';
    expect(() => new MultiWorkerMirroredStrategy({ cluster: given, secret, replicas: 1 })).toThrow('without work');
    expect(() => new MultiWorkerMirroredStrategy({ cluster: given, secret, transport: 'udp' as never })).toThrow('auto, tcp or unix');
    for (const joinDeadlineMs of [0, 86_400_001])
      expect(() => new MultiWorkerMirroredStrategy({ cluster: given, secret, joinDeadlineMs })).toThrow('from 1 to 86400000');
    for (const options of [null, 'TF_CONFIG', []])
      expect(() => new MultiWorkerMirroredStrategy(options as never)).toThrow(/MultiWorkerMirroredStrategy takes an object with/);
    const wrong = new GivenResolver({ worker }, { type: 'worker', index: 2 });
    expect(() => new MultiWorkerMirroredStrategy({ cluster: wrong })).toThrow('task.index must be a whole number below 2');
    expect(() => new MultiWorkerMirroredStrategy({ cluster: 'TF_CONFIG' as never })).toThrow(ArgumentError);
    expect(() => new MultiWorkerMirroredStrategy({ cluster, worker } as never)).toThrow('has no option "worker"');
  });
});

it('has at most 1024 replicas over all processes by default, and 256 threads in each', () => {
  expect(withDefaults({}, 3, 1000)).toEqual({ threads: 256, replicas: 768 });
  expect(withDefaults({}, 7, 256)).toEqual({ threads: 146, replicas: 1022 });
  expect(withDefaults({ replicas: 3 }, 2, 8)).toEqual({ threads: 2, replicas: 3 });
});
