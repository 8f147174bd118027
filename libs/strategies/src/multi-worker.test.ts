/** Several processes that train one model: equal bits, whatever their number; what happens when one fails, differs or dies. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ArgumentError, ClusterConfigError } from './errors.js';
import { MultiWorkerMirroredStrategy, withDefaults } from './multi-worker.js';
import { BUILD, results, started } from './processes.fixture.js';
import { Programs, type Ended } from './programs.fixture.js';

/** `npm run soak` has these too. */
const IS_SOAK = process.env['PACELINE_SOAK'] === '1';

let programs: Programs;
beforeAll(() => {
  programs = new Programs();
});
afterAll(() => programs.dispose());

const TRAIN = `${BUILD}
const strategy = process.env.TF_CONFIG ? new MultiWorkerMirroredStrategy({ replicas: 4, threads: 1 }) : new MirroredStrategy({ replicas: 4, threads: 1 });
const model = strategy.scope(() => build());
const { history } = await fit(model);
const [answers, measured] = [model.predict(xs, { batchSize: 31 }), model.evaluate(xs, ys)];
say({ history, digest: await digest(model), replicas: strategy.numReplicasInSync, answers: [...answers.dataSync()], measured: measured.map((value) => value.dataSync()[0]) });
await strategy.dispose();
`;

it('3 processes end with the History and the bits of one with MirroredStrategy, and 2 and 4 in `npm run soak`', async () => {
  const alone = await results([programs.start(TRAIN)]);
  for (const processes of process.env['PACELINE_SOAK'] === '1' ? [2, 3, 4] : [3])
    for (const result of await results(await started(programs, TRAIN, processes)))
      expect(result, `${processes} processes`).toEqual(alone[0]);
});

it('with a part of the optimizer in each process the bits are those of one process, also of state that is read, written and begun with', async () => {
  const source = `import { optimizers } from 'paceline';
${BUILD}
const options = { replicas: 4, threads: 2 };
const strategy = process.env.TF_CONFIG
  ? new MultiWorkerMirroredStrategy({ ...options, threads: 1 + Number(process.env.TF_CONFIG.includes('"index":0')), communication: 'tree', optimizerSharding: 'sharded' })
  : new MirroredStrategy(options);
const model = built(seeded, optimizers.adamw({ learningRate: 0.01, weightDecay: 0.1, weightDecayExclude: ['*/bias'] }));
model.getLayer('drop').rate = 0; // tf.js drops by chance
await fit(model); // tf.js alone
const scaled = async (factor) => {
  const [iterations, ...slots] = await model.optimizer.getWeights();
  await model.optimizer.setWeights([iterations, ...slots.map(({ name, tensor }) => ({ name, tensor: tf.mul(tensor, factor) }))]);
};
if (strategy.task?.index === 1) await scaled(0); // those of the first process count
strategy.distribute(model);
const { history } = await fit(model);
const digests = [await digest(model)];
await scaled(0.5);
await fit(model);
digests.push(await digest(model));
await model.trainOnBatch(xs, ys);
const { communication } = strategy;
await strategy.dispose();
digests.push(await digest(model));
say({ history, digests, slotBytes: communication?.models[0].slotBytes });
`;
  const [alone] = await results([programs.start(source)]);
  const together = await results(await started(programs, source, 3));
  const { slotBytes: _, ...expected } = alone!;
  for (const { slotBytes: __, ...result } of together) expect(result).toEqual(expected);
  const trainable = 8 * 16 + 16 + 2 * 16 + 16 * 3 + 3;
  expect(together.reduce((sum, { slotBytes }) => sum + Number(slotBytes), 0)).toBe(2 * trainable * 4);
  for (const { slotBytes } of together) expect(Number(slotBytes)).toBeLessThanOrEqual(Math.ceil((trainable + 32) / 3) * 8);
});

it.runIf(IS_SOAK)(
  'predictions between a fit of tf.js, reads of the optimizer and fits leave the parts of its state as they are',
  async () => {
    const source = `${BUILD}
const options = { replicas: 2, threads: 1 };
const strategy = process.env.TF_CONFIG ? new MultiWorkerMirroredStrategy({ ...options, optimizerSharding: 'sharded' }) : new MirroredStrategy(options);
const model = build();
model.getLayer('drop').rate = 0; // tf.js drops by chance
await fit(model); // tf.js alone
strategy.distribute(model);
const seen = [];
const predict = () => seen.push([...model.predict(xs).dataSync()]);
predict();
seen.push(await digest(model));
model.setWeights(model.getWeights().map((weight) => tf.mul(weight, 0.9)));
predict();
await fit(model);
seen.push(await digest(model));
predict();
await strategy.dispose();
seen.push(await digest(model));
say({ seen });
`;
    const [alone] = await results([programs.start(source)]);
    for (const result of await results(await started(programs, source, 2))) expect(result).toEqual(alone);
  },
);

it.runIf(IS_SOAK)(
  'a way that depends on the members ends in the same bits in all, and a choice by measurement says its numbers',
  async () => {
    const source = (communication: string): string => `${BUILD}
const strategy = new MultiWorkerMirroredStrategy({ threads: 1, communication: '${communication}', hosts: ['a', 'a', 'b'] });
const model = strategy.scope(() => build());
const { history } = await fit(model);
say({ history, digest: await digest(model), communication: strategy.communication });
await strategy.dispose();
`;
    const [ring, auto] = await Promise.all(['ring', 'auto'].map(async (each) => results(await started(programs, source(each), 3))));
    for (const all of [ring!, auto!])
      for (const { history, digest } of all)
        expect({ history, digest }).toMatchObject({ history: all[0]!['history'], digest: all[0]!['digest'] });
    expect(ring![0]!['communication']).toMatchObject({ requested: 'ring', models: [{ topology: 'ring', keepsOrder: false }] });
    const { timings, models } = auto![2]!['communication'] as {
      timings: object[];
      models: { topology: string; estimates: { topology: string }[] }[];
    };
    expect(timings.length).toBe(8);
    expect(models[0]!.estimates.map(({ topology }) => topology)).toContain(models[0]!.topology);
    expect(auto![0]!['communication']).toMatchObject({ timings, models: [{ estimates: models[0]!.estimates }] });
  },
);

it.runIf(IS_SOAK)('begins with the weights of the first process, takes the same shuffled rows, and what is set later in all', async () => {
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
  const [a, b] = await results(await started(programs, source, 2));
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
  const ended = await Promise.all((await started(programs, source, 3)).map((each) => each.ended));
  const lines = ended.map(({ output, errors }) => {
    expect(errors).not.toContain('Error');
    return output.trim().split('\n').slice(-3);
  });
  expect(JSON.parse(lines[0]![0]!)).toMatchObject({ code: 'STRATEGY_REPLICA', replica: 2 });
  expect(lines[0]![1]).toBe('true');
  for (const other of lines.slice(1)) expect(other).toEqual(lines[0]);
});

it('a process that is killed is named by all others, at once; the state of the optimizer that it kept is gone, and they say so', async () => {
  const source = `${BUILD}
const strategy = new MultiWorkerMirroredStrategy({ threads: 1, replicas: 3, optimizerSharding: 'sharded' });
const model = strategy.scope(() => build());
const other = strategy.scope(() => build());
await other.trainOnBatch(xs, ys);
const callbacks = {
  onEpochEnd: (epoch) => {
    if (strategy.task.index === 0 && epoch === 0 && model.optimizer.iterations !== 4) throw new Error('iterations'); // one alone may read it
    if (epoch === 1) console.log('trains');
  },
};
await fit(model, { epochs: 1_000_000, callbacks }).catch(told);
await model.trainOnBatch(xs, ys).catch(told);
await strategy.dispose();
for (const each of [model, other]) await fit(each, { epochs: 1 }); // tf.js alone
say({ iterations: [model.optimizer.iterations, other.optimizer.iterations] });
`;
  const running = await started(programs, source, 3);
  await Promise.all(running.map(({ said }) => said('trains')));
  running[1]!.child.kill('SIGKILL');
  for (const { ended } of [running[0]!, running[2]!]) {
    const { status, output, errors } = await ended;
    expect(status, errors).toBe(0);
    expect(errors).toMatch(/OPTIMIZER_STATE.*the optimizer keeps its state of step 0 of \d+/);
    expect(errors.match(/OPTIMIZER_STATE/g)!.length).toBe(2);
    const [first, second, third] = output
      .trim()
      .split('\n')
      .slice(-3)
      .map((line) => JSON.parse(line) as Record<string, unknown>);
    expect(first).toMatchObject({ code: 'STRATEGY_MEMBER', name: 'MemberError', members: [{ type: 'worker', index: 1 }] });
    expect(first!['message']).toContain('worker 1 (127.0.0.1:');
    expect(second).toEqual(first);
    expect(third).toEqual({ iterations: [4, 4] }); // from the state that was read last
  }
});

it('says what differs between the processes', async () => {
  const program = (more: string): string => `${BUILD}
const strategy = new MultiWorkerMirroredStrategy({ threads: 1, deadlineMs: 20_000 });
await fit(strategy.scope(() => build()), ${more}).catch(told);
await strategy.dispose();
`;
  const [a, b] = await results(await started(programs, [program('{}'), program('{ batchSize: 50 }')], 2));
  expect(a).toMatchObject({ code: 'STRATEGY_MEMBER', members: [{ type: 'worker', index: 1 }] });
  expect(a!['message']).toMatch(
    /worker 1 \(\S+\) is at "step 1 of model 0: 50 examples.*", and worker 0 \(\S+\) at "step 1 of model 0: 40 examples/,
  );
  expect(b).toMatchObject({ code: 'STRATEGY_MEMBER' });
});

it('a step of the program has the bits of one process, and names what fails anywhere', async () => {
  programs.write(
    'own-step.mjs',
    `export const train = async ({ replicaIdInSyncGroup: id, tf, state, allReduce, allGather, mergeCall }, xs, ys, failing) => {
  state.weights ??= tf.variable(tf.zeros([8, 1]));
  const loss = () => tf.losses.meanSquaredError(ys, tf.matMul(xs, state.weights));
  const { value, grads: { [state.weights.name]: gradient } } = tf.variableGrads(loss, [state.weights]);
  if (failing === 'throws' && id === 2) throw new Error('no such row');
  const mean = await allReduce('mean', failing === 'differs' && id > 0 ? [value] : [value, gradient]);
  state.weights.assign(tf.sub(state.weights, tf.mul(mean[1], 0.1)));
  return { loss: mean[0], weights: state.weights, id, all: await allGather(Float32Array.from({ length: id + 1 }, (_, i) => -id * i)), merged: await mergeCall((each) => Float32Array.from(each, ([own]) => own), [id + 0.5]) };
};
`,
  );
  const source = `${BUILD}
const one = process.env.TF_CONFIG ? new MultiWorkerMirroredStrategy({ replicas: 3, threads: 1 }) : new MirroredStrategy({ replicas: 3, threads: 1 });
const fn = { module: new URL('./own-step.mjs', import.meta.url), name: 'train' };
const seen = [];
const batches = () => [0, 1, 2].map((i) => ({ x: tf.slice(xs, i * 50, 50), y: tf.slice(ys, i * 50, 50) }));
for await (const { x, y } of one.distributeDataset(batches())) {
  const { loss, weights, id, all, merged } = await one.run(fn, [x, y]);
  seen.push(one.reduce('mean', loss).dataSync()[0], ...one.gather(weights, 1).dataSync(), ...one.gather({ x }, 0).x.shape, one.reduce('sum', id).dataSync()[0], 'gathered', [...all.values[0]].map((value) => (Object.is(value, -0) ? '-0' : value)).join() + ' merged ' + merged.values[0].join());
}
for await (const { x, y } of one.distributeDataset(batches().slice(1)))
  await one.run(fn, [x, y, seen.length % 2 === 0 ? 'throws' : 'differs']).catch(({ code, replica, message }) => seen.push({ code, replica, message }));
for await (const { x, y } of one.distributeDataset(batches())) seen.push((await one.run(fn, [x, y])).id.values.length);
if (process.env.TF_CONFIG)
  for (const act of [() => one.reduce('mean', 3), () => one.gather(xs, 0)])
    try { act(); seen.length = 0; } catch (error) { if (!error.message.includes('is no PerReplica')) throw error; }
say(seen.slice(0, -3));
say(seen.slice(-3));
await one.dispose();
`;
  const [alone] = await Promise.all([programs.start(source)].map((each) => each.ended));
  const ended = await Promise.all((await started(programs, source, 2)).map((each) => each.ended));
  const linesOf = ({ status, output, errors }: Ended): unknown[] => {
    expect(status, errors).toBe(0);
    return output
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as unknown);
  };
  const [[expected], ...processes] = [alone!, ...ended].map(linesOf) as unknown as [[unknown[]], ...unknown[][]];
  expect(expected).toContainEqual(expect.stringContaining('merged 0.5,1.5,2.5'));
  expect(expected.slice(-2)).toMatchObject([
    { code: 'STRATEGY_REPLICA', replica: 2, message: 'replica 2: no such row' },
    { code: 'STRATEGY_REPLICA', message: expect.stringContaining('every replica must make the same calls') as string },
  ]);
  const errors = (values: unknown[]) => (values.at(-1) as { message: string }).message;
  for (const [i, [values, own]] of processes.entries()) {
    expect((values as unknown[]).slice(0, -1)).toEqual(expected.slice(0, -1));
    expect(errors(values as unknown[])).toContain('every replica must make the same calls');
    expect(own).toEqual(i === 0 ? [1, 1, 1] : [2, 2, 2]);
  }
});

it.runIf(IS_SOAK)('says when the processes predict for different rows', async () => {
  const program = (more: string): string => `${BUILD}
const strategy = new MultiWorkerMirroredStrategy({ threads: 1, deadlineMs: 20_000 });
const model = strategy.scope(() => build());
try { model.predict(${more}); } catch (error) { told(error); }
await strategy.dispose();
`;
  const [a, b] = await results(await started(programs, [program('xs'), program('tf.neg(xs)')], 2));
  expect(a).toMatchObject({ code: 'STRATEGY_MEMBER', members: [{ type: 'worker', index: 1 }] });
  expect(a!['message']).toMatch(/at "a prediction of model 0 after step 0: 150 examples, rows [0-9a-f]+"/);
  expect(b).toMatchObject({ code: 'STRATEGY_MEMBER' });
});

it('the example of the page trains in two processes, as it is pasted', async () => {
  const page = readFileSync(join(import.meta.dirname, '../../../docs/library.md'), 'utf8');
  const [, example] = /```js\n([^`]*MultiWorkerMirroredStrategy[\s\S]*?)```/.exec(page)!;
  expect(example!.split('\n').length).toBeLessThanOrEqual(31);
  const ended = await Promise.all((await started(programs, example!, 2)).map((each) => each.ended));
  const losses = ended.map(({ output, errors }) => /loss ([\d. ]+)/.exec(output)?.[1] ?? errors);
  expect(losses[1]).toBe(losses[0]);
  const [first, ...rest] = losses[0]!.trim().split(' ').map(Number);
  expect(rest.at(-1)!).toBeLessThan(first! / 2);
});

it('the tutorial trains in two processes, as it is pasted', async () => {
  const page = readFileSync(join(import.meta.dirname, '../../../docs/tutorials/multi-worker.md'), 'utf8');
  const [setup, main] = [...page.matchAll(/```js\n([\s\S]*?)```/g)].map(([, source]) => source!);
  programs.write('setup.mjs', setup!);
  const ended = await Promise.all((await started(programs, main!, 2)).map((each) => each.ended));
  const lines = ended.map(({ output, errors }) => /replicas \d+ loss ([\d. ]+)/.exec(output)?.[0] ?? errors);
  expect(lines[1]).toBe(lines[0]);
  const accuracies = ended.map(({ output }) => /accuracy ([\d.]+)/.exec(output)?.[1]);
  expect(accuracies[1]).toBeUndefined();
  expect(Number(accuracies[0])).toBeGreaterThan(0.95);
});

it('is as a run of the service: as many workers as processes', async () => {
  const { GivenResolver } = await import('@paceline/collectives');
  const alone = new MultiWorkerMirroredStrategy({
    cluster: new GivenResolver({ worker: ['127.0.0.1:1'] }, { type: 'worker', index: 0 }),
    replicas: 3,
    threads: 1,
  });
  expect(alone.toRun()).toEqual({ strategy: { kind: 'multi-worker-mirrored', workers: 1, threads: 1 }, replicas: 3 });
  await alone.dispose();
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
    for (const [option, value, text] of [
      ['communication', 'star', 'direct, ring, tree, hierarchical or auto, not star'],
      ['optimizerSharding', 'zero', 'replicated or sharded, not zero'],
      ['codec', 'top-k', 'none, fp16, bf16, int8 or power-sgd, not top-k'],
      ['codecRank', 2, 'belongs to the codec power-sgd, and the codec is none'],
      ['onMemberLoss', 'heal', 'stop or continue, not heal'],
      ['hosts', ['a'], 'one for each of the 2 chief and workers'],
      ['listenHost', '', 'an address or a name of this machine'],
    ] as const)
      expect(() => new MultiWorkerMirroredStrategy({ cluster: given, secret, [option]: value as never })).toThrow(text);
    const lowRank = { cluster: given, secret, codec: 'power-sgd' } as const;
    for (const codecRank of [0, 1.5, 33])
      expect(() => new MultiWorkerMirroredStrategy({ ...lowRank, codecRank })).toThrow(`from 1 to 32, not ${codecRank}`);
    expect(() => new MultiWorkerMirroredStrategy({ ...lowRank, optimizerSharding: 'sharded' })).toThrow('leave one of them out');
    const goesOn = { cluster: given, secret, onMemberLoss: 'continue' } as const;
    expect(() => new MultiWorkerMirroredStrategy({ ...goesOn, optimizerSharding: 'sharded' })).toThrow(
      'a part of it is lost with its process',
    );
    expect(() => new MultiWorkerMirroredStrategy({ ...goesOn, codec: 'power-sgd' })).toThrow('what its factors leave out');
    for (const joinDeadlineMs of [0, 86_400_001])
      expect(() => new MultiWorkerMirroredStrategy({ cluster: given, secret, joinDeadlineMs })).toThrow('from 1 to 86400000');
    for (const options of [null, 'TF_CONFIG', []])
      expect(() => new MultiWorkerMirroredStrategy(options as never)).toThrow(/MultiWorkerMirroredStrategy takes an object with/);
    const wrong = new GivenResolver({ worker }, { type: 'worker', index: 2 });
    expect(() => new MultiWorkerMirroredStrategy({ cluster: wrong })).toThrow('task.index must be a whole number below 2');
    expect(() => new MultiWorkerMirroredStrategy({ cluster: 'TF_CONFIG' as never })).toThrow(ArgumentError);
    // Nobody awaits it: what it fails with must not end the process either.
    const promise = Promise.reject(new Error('no such name'));
    expect(() => new MultiWorkerMirroredStrategy({ cluster: promise as never })).toThrow('the promise of one: await it first');
    expect(() => new MultiWorkerMirroredStrategy({ cluster, worker } as never)).toThrow('has no option "worker"');
  });
});

it('has at most 1024 replicas over all processes by default, and 256 threads in each', () => {
  expect(withDefaults({}, 3, 1000)).toEqual({ threads: 256, replicas: 768 });
  expect(withDefaults({}, 7, 256)).toEqual({ threads: 146, replicas: 1022 });
  expect(withDefaults({ replicas: 3 }, 2, 8)).toEqual({ threads: 2, replicas: 3 });
});
