/** `run` of the strategies over parameter servers: functions in the replicas of worker processes. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { Running } from './programs.fixture.js';
import { BUILD, ServedCluster, WORKERS } from './served-cluster.fixture.js';

const IS_SOAK = process.env['PACELINE_SOAK'] === '1';

let cluster: ServedCluster;
beforeAll(async () => void (cluster = await ServedCluster.start()));
afterAll(() => cluster.dispose());

/** Steps of the program's own, with fit between them, and what goes wrong in some. */
const RUN = (strategy: string): string => `${BUILD}
const strategy = ${strategy};
const fn = (name) => ({ module: new URL('./replicas.mjs', import.meta.url), name });
const model = strategy.scope(() => build());
const wide = tf.slice(xs, 0, [48, 8]);
const batches = Array.from({ length: 6 }, () => wide.clone());
const losses = [];
for await (const batch of strategy.distributeDataset(batches)) {
  const { loss, weights } = await strategy.run(fn('step'), [batch, { rate: 0.1, common: tf.ones([3]) }]);
  losses.push(strategy.reduce('mean', loss).dataSync()[0], ...strategy.gather(weights, 0).dataSync());
}
await fit(model, { epochs: 1 });
const calls = await strategy.run(fn('calls'));
await strategy.run(fn('fails'), [2]).catch(told);
await strategy.run(fn('differs')).catch(told);
await strategy.run(fn('absent')).catch(told);
const after = await strategy.run(fn('calls'));
await strategy.dispose();
say({ losses, calls, after, digest: await digest(model) });
`;
const FUNCTIONS = `import { existsSync, writeFileSync } from 'node:fs';
export async function step({ tf, state, replicaIdInSyncGroup: id, numReplicasInSync: of, allReduce }, xs, { rate, common }) {
  state.weights ??= tf.variable(tf.fill([8, 1], 0.1));
  state.optimizer ??= tf.train.adam(rate);
  const { value, grads } = tf.variableGrads(() => tf.sum(tf.square(tf.sub(tf.matMul(xs, state.weights), tf.sum(xs, 1, true)))), [state.weights]);
  const sums = await allReduce('sum', { rows: xs.shape[0], loss: value, grads });
  const mean = await allReduce('mean', [id / of, tf.sum(common)]);
  tf.dispose([value, grads]);
  state.optimizer.applyGradients({ [state.weights.name]: tf.div(sums.grads[state.weights.name], sums.rows) });
  return { loss: sums.loss.dataSync()[0] + mean[0], weights: state.weights };
}
export const calls = ({ state, replicaIdInSyncGroup: id }) => [id, (state.calls = (state.calls ?? 0) + 1)];
export async function fails({ replicaIdInSyncGroup: id, numReplicasInSync: of, allReduce }, last) {
  await allReduce('sum', 1);
  if (id >= of - last + 1) throw new Error('no such example');
  await allReduce('sum', 2);
}
export const differs = ({ replicaIdInSyncGroup: id, numReplicasInSync: of, allReduce }) => (id === of - 1 ? 0 : allReduce('sum', new Float32Array(3)));
export const endless = ({ replicaIdInSyncGroup: id }) => { while (id === 0); };
export function exits() {
  const place = new URL('./exited', import.meta.url);
  if (!existsSync(place)) (writeFileSync(place, ''), process.exit());
  return 1;
}
export const sleeps = async (_, ms) => void (await new Promise((resolve) => setTimeout(resolve, ms)));
export const pidsOf = async ({ allReduce }, ms) => { await new Promise((resolve) => setTimeout(resolve, ms)); return [process.pid, await allReduce('sum', 1)]; };
`;

const HYBRID = ['HybridStrategy', 'new HybridStrategy(undefined, { replicasPerWorker: 2 })', 2 * WORKERS] as const;
it.each([HYBRID, ...(IS_SOAK ? ([['ParameterServerStrategy', 'new ParameterServerStrategy()', WORKERS]] as const) : [])])(
  '%s calls functions in the replicas of all workers, with the bits of one process; what fails is named, and the next call goes on',
  async (_, strategy, replicas) => {
    cluster.programs.write('replicas.mjs', FUNCTIONS);
    const said = async (running: Running): Promise<unknown[]> => {
      const { status, output, errors } = await running.ended;
      expect(status, errors).toBe(0);
      return output
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line) as unknown);
    };
    const alone = await said(cluster.programs.start(RUN(`new MirroredStrategy({ replicas: ${replicas}, threads: 1 })`)));
    const served = await said(cluster.coordinate(RUN(strategy)));
    const but = (lines: unknown[]): unknown[] => lines.filter((line) => !JSON.stringify(line).includes('the same calls')); // the replicas that it names depend on the processes
    expect(but(served)).toEqual(but(alone));
    const [failed, differs, absent, ends] = served as [object, object, object, Record<string, unknown>];
    const last = replicas - 1;
    expect(failed).toMatchObject({
      code: 'STRATEGY_REPLICA',
      replica: last,
      message: expect.stringContaining('no such example') as string,
    });
    const unequal = new RegExp(`replica \\d is in an allReduce or allGather \\(a sum of 3 numbers\\), and replica ${last} has returned`);
    expect(differs).toMatchObject({ code: 'STRATEGY_REPLICA', message: expect.stringMatching(unequal) as string });
    expect(absent).toMatchObject({
      code: 'STRATEGY_FUNCTION',
      message: expect.stringContaining('exports no function of that name') as string,
    });
    const ids = Array.from({ length: replicas }, (__, id) => id);
    const counted = (count: number): unknown => [{ values: ids }, { values: ids.map(() => count) }];
    expect(ends).toMatchObject({ calls: counted(1), after: counted(2) });
    const losses = (ends['losses'] as number[]).filter((___, i) => i % (1 + 8 * replicas) === 0);
    expect(losses).toHaveLength(6);
    expect(losses[5]!).toBeLessThan(losses[0]!);
  },
);

it('replicas of run are in the worker processes, begin anew with each strategy, and a worker that is killed in a call, or does not end, is named', async () => {
  cluster.programs.write('replicas.mjs', FUNCTIONS);
  const source = `${BUILD}
const fn = (name) => ({ module: new URL('./replicas.mjs', import.meta.url), name });
const first = new ParameterServerStrategy();
say([await first.run(fn('calls')), await first.run(fn('pidsOf'), [0])]);
await first.dispose();
const second = new ParameterServerStrategy();
say([await second.run(fn('calls')), await second.run(fn('pidsOf'), [0])]);
console.log('waits');
await second.run(fn('pidsOf'), [3000]).catch(told);
await second.run(fn('calls')).catch(told);
await second.dispose();
const slow = new ParameterServerStrategy(undefined, { deadlineMs: 4000 });
await fit(slow.scope(() => build()), { epochs: 1 });
await slow.run(fn('endless')).catch(told);
await slow.dispose();
const third = new ParameterServerStrategy();
say([await third.run(fn('calls')), await third.run(fn('pidsOf'), [0])]);
await third.dispose();
`;
  const running = cluster.coordinate(source);
  await running.said('waits');
  await new Promise((resolve) => setTimeout(resolve, 500)); // the call has begun
  const victim = await cluster.killed('worker', 1);
  const { status, output, errors } = await running.ended;
  expect(status, errors).toBe(0);
  const lines = output.trim().split('\n');
  const [first, second, , died, ended, stuck, third] = lines.map((line) => (line === 'waits' ? undefined : (JSON.parse(line) as unknown)));
  const pidOf = (index: number): number => cluster.processOf('worker', index).child.pid!;
  const values = (...all: unknown[]): unknown => ({ values: all });
  const counts = [values(0, 1), values(1, 1)];
  const met = values(WORKERS, WORKERS);
  expect(first).toEqual([counts, [values(pidOf(0), victim.child.pid), met]]);
  expect(second).toEqual(first);
  for (const error of [died, ended]) expect(error).toMatchObject({ code: 'STRATEGY_MEMBER', members: [{ type: 'worker', index: 1 }] });
  expect(stuck).toMatchObject({ code: 'STRATEGY_MEMBER', message: expect.stringContaining('Set deadlineMs') as string });
  expect(third).toEqual([counts, [values(pidOf(0), pidOf(1)), met]]);
});

it.runIf(IS_SOAK)(
  'what replicas keep outlives a function thread of their worker; where a worker was started again, the next call of run says that it is lost',
  async () => {
    cluster.programs.write('replicas.mjs', FUNCTIONS);
    const source = `${BUILD}
const fn = (name) => ({ module: new URL('./replicas.mjs', import.meta.url), name });
const strategy = new ParameterServerStrategy();
const coordinator = new ClusterCoordinator(strategy);
say(await strategy.run(fn('calls')));
coordinator.schedule(fn('exits'));
await coordinator.join();
say(await strategy.run(fn('calls')));
for (let worker = 0; worker < 2; worker++) coordinator.schedule(fn('sleeps'), [3000]);
console.log('waits');
await coordinator.join();
await new Promise((resolve) => setTimeout(resolve, 3000)); // it joins again
await strategy.run(fn('calls')).then(say, told);
await strategy.dispose();
`;
    const running = cluster.coordinate(source);
    await running.said('waits');
    await new Promise((resolve) => setTimeout(resolve, 500)); // the functions have begun
    await cluster.killed('worker', 1);
    const { status, output, errors } = await running.ended;
    expect(status, errors).toBe(0);
    const lines = output.trim().split('\n');
    const [first, second, , lost] = lines.map((line) => (line === 'waits' ? undefined : (JSON.parse(line) as unknown)));
    const values = (...all: unknown[]): unknown => ({ values: all });
    expect([first, second]).toEqual([1, 2].map((count) => [values(0, 1), values(count, count)]));
    expect(lost).toMatchObject({ code: 'STRATEGY_MEMBER', members: [{ type: 'worker', index: 1 }] });
  },
);
