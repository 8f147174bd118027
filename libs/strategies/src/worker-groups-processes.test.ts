/** HybridStrategy with groups of several worker processes, which stay while one program after the other coordinates them. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { Running } from './programs.fixture.js';
import { BUILD, ServedCluster } from './served-cluster.fixture.js';

const WORKERS = 4;
let cluster: ServedCluster;
beforeAll(async () => void (cluster = await ServedCluster.start(WORKERS)));
afterAll(() => cluster.dispose());

async function linesOf(running: Running): Promise<Record<string, unknown>[]> {
  const { status, output, errors } = await running.ended;
  expect(status, errors).toBe(0);
  return output
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as Record<string, unknown>);
}

const TRAIN = (strategy: string): string => `${BUILD}
const strategy = ${strategy};
const model = strategy.scope(() => build());
const { history } = await fit(model);
const half = await digest(model);
model.setWeights(model.getWeights().map((weight) => tf.mul(weight, 0.5)));
model.layers[0].trainable = false;
model.compile({ optimizer: tf.train.momentum(0.1, 0.9), loss: 'sparseCategoricalCrossentropy' });
await fit(model);
const [answers, measured] = [model.predict(xs, { batchSize: 31 }), model.evaluate(xs, ys)];
const state = () => strategy.servers?.().map(({ task, pid, sentBytes, receivedBytes }) => ({ ...task, pid, sentBytes, receivedBytes }));
await model.trainOnBatch(xs, ys);
const before = state();
await model.trainOnBatch(xs, ys);
const after = state();
await strategy.dispose();
say({ history, half, digest: await digest(model), replicas: strategy.numReplicasInSync, answers: [...answers.dataSync()], measured: [measured].flat().map((value) => value.dataSync()[0]) });
say({ before, after, pid: process.pid });
`;

interface State {
  readonly type: string;
  readonly index: number;
  readonly pid: number;
  readonly sentBytes: number;
  readonly receivedBytes: number;
}

it('two groups of two processes end with the History and the bits of MirroredStrategy, and half of the bytes of plain parameter servers are at the servers', async () => {
  const [alone] = await linesOf(cluster.programs.start(TRAIN(`new MirroredStrategy({ replicas: ${WORKERS}, threads: 1 })`)));
  const bytesOf = async (strategy: string): Promise<{ readonly result: unknown; readonly bytes: (type: string) => number[] }> => {
    const [result, states] = await linesOf(cluster.coordinate(TRAIN(strategy)));
    const { before, after, pid } = states as unknown as { before: State[]; after: State[]; pid: number };
    expect(new Set([...after.map((state) => state.pid), pid]).size).toBe(WORKERS + 2 + 1);
    const moved = after.map((state, i) => ({
      ...state,
      bytes: state.sentBytes + state.receivedBytes - before[i]!.sentBytes - before[i]!.receivedBytes,
    }));
    return { result, bytes: (type) => moved.filter((state) => state.type === type).map(({ bytes }) => bytes) };
  };
  const plain = await bytesOf('new ParameterServerStrategy()');
  const grouped = await bytesOf('new HybridStrategy(undefined, { workersPerGroup: 2, replicasPerWorker: 1 })');
  expect(plain.result).toEqual(alone);
  expect(grouped.result).toEqual(alone);
  const total = (8 * 16 + 16 + 4 * 16 + 16 * 3 + 3) * 4;
  const sum = (counts: readonly number[]): number => counts.reduce((all, bytes) => all + bytes, 0);
  expect(sum(plain.bytes('ps'))).toBe(2 * WORKERS * total);
  expect(sum(grouped.bytes('ps'))).toBe(2 * 2 * total);
  // A head speaks with the servers and with the other one; what comes from the program is the same for all.
  const [head, member] = grouped.bytes('worker') as [number, number];
  expect(head - plain.bytes('worker')[0]!).toBe(2 * total);
  expect(member - plain.bytes('worker')[1]!).toBe(0);
});

it('a function of run sums over all groups', async () => {
  cluster.programs.write(
    'sums.mjs',
    'export const sums = async ({ allReduce, replicaIdInSyncGroup: replica }) => replica + 10 * (await allReduce("sum", replica + 1));\n',
  );
  const [line] = await linesOf(
    cluster.coordinate(`${BUILD}
const strategy = new HybridStrategy(undefined, { workersPerGroup: 2, replicasPerWorker: 1 });
const result = await strategy.run({ module: new URL('./sums.mjs', import.meta.url), name: 'sums' });
say({ all: strategy.localResults(result) });
await strategy.dispose();
`),
  );
  expect(line).toEqual({ all: [100, 101, 102, 103] });
});

it.runIf(process.env['PACELINE_SOAK'] === '1')(
  'a process of a group that is killed is named at once, whichever it is; the next program trains',
  async () => {
    const source = (epochs: number): string => `${BUILD}
const strategy = new HybridStrategy(undefined, { workersPerGroup: 2, replicasPerWorker: 1, deadlineMs: 90000 });
const model = strategy.scope(() => build());
const callbacks = { onEpochEnd: (epoch) => epoch === 1 && console.log('"trains"') };
await fit(model, { epochs: ${epochs}, callbacks }).then(() => say({ ended: true }), told);
await model.trainOnBatch(xs, ys).catch(told);
await strategy.dispose();
`;
    for (const index of [0, 1, 2, 3]) {
      const running = cluster.coordinate(source(1_000_000));
      await running.said('"trains"');
      const victim = cluster.processOf('worker', index);
      victim.child.kill('SIGKILL');
      const killedMs = performance.now();
      const lines = (await linesOf(running)).slice(-2);
      expect(performance.now() - killedMs, 'it is told at once, and not by the deadline').toBeLessThan(45_000);
      for (const line of lines) expect(line).toMatchObject({ code: 'STRATEGY_MEMBER', members: [{ type: 'worker', index }] });
      await victim.ended;
      await cluster.serve('worker', index).said('serves');
    }
    expect((await linesOf(cluster.coordinate(source(2))))[1]).toEqual({ ended: true });
  },
);

it('the example of the page trains, as it is pasted', async () => {
  const page = readFileSync(join(import.meta.dirname, '../../../docs/library.md'), 'utf8');
  const [, section] = /\n### Groups of several workers\n([\s\S]*?)\n##/.exec(page)!;
  const [, source] = /```js\n([\s\S]*?)```/.exec(section!)!;
  expect(source!.split('\n').length).toBeLessThanOrEqual(31);
  const { status, output, errors } = await cluster.coordinate(source!).ended;
  expect(status, errors).toBe(0);
  const losses = /loss ([\d. ]+)/u.exec(output)![1]!.trim().split(' ').map(Number);
  expect(losses.at(-1)!, output).toBeLessThan(losses[0]! * 0.25);
  expect(output.match(/^ps \d+ \d+ kB$/gmu)).toHaveLength(2);
});
