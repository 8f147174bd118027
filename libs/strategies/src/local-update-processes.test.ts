/** Several processes whose replicas train alone between averages: the bits of one process, bytes by the number of averages, and deaths. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { Programs, tfConfigs, type Ended, type Running } from './programs.fixture.js';

let programs: Programs;
beforeAll(() => {
  programs = new Programs();
});
afterAll(() => programs.dispose());

const SECRET = { PACELINE_CLUSTER_SECRET: 'a secret of these tests' };

/** 144 examples in batches of 36 are four steps an epoch. The last but one layer has state, and adam has slots. */
const PROGRAM = `
import { createHash } from 'node:crypto';
import * as tf from '@tensorflow/tfjs';
import { LocalUpdateStrategy } from 'paceline';
const examples = 144;
const xs = tf.tensor2d(Float32Array.from({ length: examples * 8 }, (_, i) => Math.sin(i * 1.7)), [examples, 8]);
const ys = tf.tensor2d(Float32Array.from({ length: examples }, (_, i) => i % 3), [examples, 1]);
const seeded = (seed) => tf.initializers.glorotUniform({ seed });
const build = () => {
  const net = tf.sequential({
    layers: [
      tf.layers.dense({ units: 16, activation: 'relu', inputShape: [8], kernelInitializer: seeded(1) }),
      tf.layers.batchNormalization(),
      tf.layers.dense({ units: 3, activation: 'softmax', kernelInitializer: seeded(2) }),
    ],
  });
  net.compile({ optimizer: tf.train.adam(0.01), loss: 'sparseCategoricalCrossentropy', metrics: ['accuracy'] });
  return net;
};
const digest = async (model) => {
  const hash = createHash('sha256');
  for (const weight of [...model.getWeights(), ...await model.optimizer.getWeights()]) hash.update(Buffer.from((weight.tensor ?? weight).dataSync().buffer));
  return hash.digest('hex');
};
const say = (value) => console.log(JSON.stringify(value));
const told = (error) => say({ code: error.code, name: error.constructor.name, message: error.message, members: error.members });
const options = JSON.parse(process.env.OPTIONS);
const { index } = JSON.parse(process.env.TF_CONFIG ?? '{"task":{"index":0}}').task;
`;

const FIT = `${PROGRAM}
const strategy = new LocalUpdateStrategy({ replicas: 4, threads: 1, ...options });
const model = strategy.scope(build);
const { history } = await model.fit(xs, ys, { epochs: 3, batchSize: 36, verbose: 0, shuffle: false, validationData: [xs, ys] });
const { val_loss, loss, acc } = history;
say({ val_loss, digest: await digest(model), loss, acc, rows: strategy.communication });
await strategy.dispose();
`;

async function started(source: string, processes: number, options: (index: number) => object): Promise<Running[]> {
  const configs = await tfConfigs(processes);
  return configs.map((config, i) => programs.start(source, { ...SECRET, OPTIONS: JSON.stringify(options(i)), TF_CONFIG: config }));
}
const lastLine = ({ status, output, errors }: Ended): Record<string, unknown> => {
  expect(status, errors).toBe(0);
  return JSON.parse(output.trim().split('\n').at(-1)!) as Record<string, unknown>;
};
const results = async (running: readonly Running[]) => (await Promise.all(running.map(({ ended }) => ended))).map(lastLine);

const IS_SOAK = process.env['PACELINE_SOAK'] === '1';
/** `npm run soak` has each outer step, with 2 and with 3 processes. */
it.each([
  { outer: 'nesterov', fragments: 3, delay: 1 },
  ...(IS_SOAK
    ? [
        { outer: 'average', syncSteps: 2 },
        { outer: 'elastic', movingRate: 0.2 },
      ]
    : []),
])('processes end with the weights, the optimizer and the validations of one: %o', async (outer) => {
  const options = { localSteps: 3, ...outer };
  const [alone] = await results([programs.start(FIT, { OPTIONS: JSON.stringify(options) })]);
  for (const processes of IS_SOAK ? [2, 3] : [3]) {
    const all = await results(await started(FIT, processes, () => options));
    for (const { digest, val_loss } of all)
      expect([processes, digest, val_loss]).toEqual([processes, alone!['digest'], alone!['val_loss']]);
    // A process knows the losses of its own rows: 36 rows over 4 replicas are 9 rows each, so with 2 processes the mean is that of all.
    if (processes === 2)
      for (const [epoch, whole] of (alone!['loss'] as number[]).entries())
        expect((all[0]!['loss'] as number[])[epoch]! / 2 + (all[1]!['loss'] as number[])[epoch]! / 2).toBeCloseTo(whole, 5);
    expect(all[0]!['loss']).not.toEqual(all[1]!['loss']);
  }
});

it('sends in proportion to 1 / localSteps, and nothing between averages', async () => {
  const source = `${PROGRAM}
const all = [];
for (const given of options) {
  const strategy = new LocalUpdateStrategy({ replicas: 2, threads: 1, ...given });
  const model = strategy.scope(build);
  await model.trainOnBatch(xs, ys);
  tf.dispose(model.getWeights()[0].clone()); // the first average, and the weights of the first process before it
  const steps = [];
  for (let step = 0; step < 24; step++) {
    const before = strategy.communication.sentBytes;
    await model.trainOnBatch(xs, ys);
    steps.push(strategy.communication.sentBytes - before);
  }
  all.push(steps);
  await strategy.dispose();
}
say({ all });
`;
  const given = [{ localSteps: 1 }, { localSteps: 12 }, { localSteps: 25 }, { localSteps: 12, fragments: 3, outer: 'nesterov' }];
  const [first, second] = await results(await started(source, 2, () => given));
  expect(first).toEqual(second);
  const steps = first!['all'] as number[][];
  const [every, twelfth, never] = steps.map((bytes) => bytes.reduce((sum, each) => sum + each, 0));
  // Parameters with state, and two slots in vectors of the same length: each process sends a half, and gets the other one.
  const elements = 8 * 16 + 16 + 4 * 16 + 16 * 3 + 3;
  expect(every).toBe(24 * 3 * elements * 4);
  expect([twelfth! * 12, never]).toEqual([every, 0]);
  // A layer is a fragment, and slots stay where they are: nothing is larger than the largest layer, and all are exchanged in twelve steps.
  const exchanged = steps[3]!.map((bytes) => bytes / 4);
  const turn = [4, 8, 12].map((step, i) => [step, [8 * 16 + 16, 4 * 16, 16 * 3 + 3][i]!] as const);
  const due = new Map([...turn, ...turn.map(([step, length]) => [step + 12, length] as const)]);
  expect(exchanged).toEqual(exchanged.map((_, i) => due.get(i + 1) ?? 0));
});

it('takes steps while an exchange is under way, and waits for it when it is due', async () => {
  const source = `${PROGRAM}
import { existsSync, writeFileSync } from 'node:fs';
import { setTimeout } from 'node:timers/promises';
const { went, ...given } = options;
if (index === 0) process.on('exit', () => writeFileSync(went, '')); // nobody waits for a process that has failed
const strategy = new LocalUpdateStrategy({ replicas: 2, threads: 1, localSteps: 4, delay: 3, deadlineMs: 20_000, ...given });
const model = strategy.scope(build);
for (let step = 1; step <= 8; step++) {
  while (index === 1 && step === 4 && !existsSync(went)) await setTimeout(5); // the other one has sent its part by then, and goes on
  await model.trainOnBatch(xs, ys);
  if (index === 0 && step === 6) writeFileSync(went, '');
}
say({ digest: await digest(model) });
await strategy.dispose();
`;
  const folder = mkdtempSync(join(tmpdir(), 'paceline-streaming-'));
  try {
    const [first, second] = await results(await started(source, 2, () => ({ went: join(folder, 'went') })));
    expect(first).toEqual(second);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

it('predicts, meets and steps together with one model while an exchange of another is under way', async () => {
  const source = `${PROGRAM}
import { existsSync, writeFileSync } from 'node:fs';
import { setTimeout } from 'node:timers/promises';
const strategy = new LocalUpdateStrategy({ replicas: 2, threads: 1, localSteps: 4, delay: 3, syncSteps: 1, deadlineMs: 20_000 });
const module = new URL('./meets.mjs', import.meta.url);
const [a, b, c] = [build(), build(), build()];
for (const model of [a, b, c]) strategy.distribute(model);
tf.dispose([b.predict(xs), c.predict(xs)]); // what they need is there
for (let step = 0; step < 5; step++) await a.trainOnBatch(xs, ys);
const seen = [];
const acts = [
  () => seen.push([...b.predict(xs).dataSync()]),
  async () => seen.push((await strategy.run({ module, name: 'meets' })).values[0]),
  async () => seen.push(await c.trainOnBatch(xs, ys)),
];
await strategy.run({ module, name: 'meets' });
for (const [i, act] of acts.entries()) {
  for (let step = 0; step < 3; step++) await a.trainOnBatch(xs, ys);
  const here = options.folder + '/' + i;
  while (index === 1 && !existsSync(here)) await setTimeout(5);
  if (index === 1) await setTimeout(300); // the other one has sent its part by then, and is at its act
  await a.trainOnBatch(xs, ys); // a fragment is sent after it
  if (index === 0) writeFileSync(here, '');
  await act();
}
say({ seen, digest: [await digest(a), await digest(c)] });
await strategy.dispose();
`;
  programs.write('meets.mjs', "export const meets = ({ allReduce }) => allReduce('sum', 1);");
  const folder = mkdtempSync(join(tmpdir(), 'paceline-streaming-'));
  try {
    const [first, second] = await results(await started(source, 2, () => ({ folder })));
    expect(first).toEqual(second);
    expect(first!['seen']).toHaveLength(3);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

it('a process that dies is a MemberError of all others at the next average; other options than the others have are refused', async () => {
  const source = `${PROGRAM}
const strategy = new LocalUpdateStrategy({ replicas: 3, threads: 1, joinDeadlineMs: 20_000, ...options });
try {
  const model = strategy.scope(build);
  for (let step = 1; step <= 40; step++) {
    await model.trainOnBatch(xs, ys);
    if (step === 6 && index === 1) process.kill(process.pid, 'SIGKILL');
    if (step === 6) say('six');
  }
  say('all');
} catch (error) {
  told(error);
}
await strategy.dispose();
`;
  const [first, second, third] = await Promise.all((await started(source, 3, () => ({ localSteps: 4 }))).map(({ ended }) => ended));
  expect(second!.status).toBeNull();
  for (const survivor of [first!, third!])
    expect(lastLine(survivor)).toMatchObject({ name: 'MemberError', members: [{ type: 'worker', index: 1 }] });
  const differing = await started(source, 2, (index) => ({ localSteps: 4 + index, joinDeadlineMs: 3_000, replicas: 2 }));
  for (const result of await results(differing)) expect(result['name']).toMatch(/MemberError|ClusterConfigError/);
});
