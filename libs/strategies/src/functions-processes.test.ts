/** Functions in the replicas of several processes, and their datasets. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { BUILD, results, started } from './processes.fixture.js';
import { Programs } from './programs.fixture.js';

let programs: Programs;
beforeAll(() => {
  programs = new Programs();
});
afterAll(() => programs.dispose());

it('processes that call other functions, or reduce by another operation, are told so before anything is added up', async () => {
  programs.write(
    'two-steps.mjs',
    "export const one = ({ allReduce }) => allReduce('sum', 1);\nexport const other = ({ allReduce }) => allReduce('sum', 10);",
  );
  const source = `${BUILD}
const strategy = new MultiWorkerMirroredStrategy({ replicas: 2, threads: 1, deadlineMs: 20_000 });
const { index } = strategy.task;
const run = (name) => strategy.run({ module: new URL('./two-steps.mjs', import.meta.url), name });
const said = [];
await run(index === 0 ? 'one' : 'other').catch((error) => said.push(error.code, error.message));
said.push(...(await run('other')).values);
try { strategy.reduce(index === 0 ? 'sum' : 'mean', await run('one')); } catch (error) { said.push(error.code, error.message); }
say({ said });
await strategy.dispose();
`;
  for (const { said } of await results(await started(programs, source, 2)))
    expect(said).toEqual([
      'STRATEGY_REPLICA',
      'replica 1: replica 0 is in one of two-steps.mjs, and replica 1 in other of two-steps.mjs: every process must call the same functions, in the same order',
      20,
      'STRATEGY_MEMBER',
      expect.stringMatching(/"the (sum|mean) of value of replicas", and worker \d \(\S+\) at "the (sum|mean) of value of replicas"/),
    ]);
});

it('processes with unequal numbers of batches take as many steps, in every epoch, also where one has no batch', async () => {
  programs.write(
    'rows-step.mjs',
    `export const sums = async ({ tf, allReduce }, { x, note }) => ({ sum: await allReduce('sum', tf.sum(x).dataSync()[0]), shape: x.shape, note: [note.dtype, ...note.shape] });`,
  );
  const source = `${BUILD}
const strategy = new MultiWorkerMirroredStrategy({ replicas: 4, threads: 1, deadlineMs: 20_000 });
// Batches 0 to 4 have four rows each: three are those of the first process, two those of the third.
const dataset = strategy.distributeDatasetsFromFunction(({ numInputPipelines, inputPipelineId }) =>
  [0, 1, 2, 3, 4].filter((i) => inputPipelineId !== 1 && i % 2 === Math.floor(inputPipelineId / 2)).map((i) => ({ x: tf.fill([4, 2], 10 ** i), note: tf.fill([4], i, 'int32') })));
const seen = [];
for (let epoch = 0; epoch < 2; epoch++)
  for await (const batch of dataset) {
    const { sum, shape, note } = await strategy.run({ module: new URL('./rows-step.mjs', import.meta.url), name: 'sums' }, [batch]);
    seen.push({ epoch, sum: sum.values[0], rows: shape[0].values, width: shape[1].values[0], note: note[0].values[0] });
  }
say({ seen, ids: strategy.reduce('sum', strategy.distributeValuesFromFunction(({ replicaIdInSyncGroup: id }) => id)).dataSync()[0] });
await strategy.dispose();
`;
  const all = await results(await started(programs, source, 3));
  // The third process has two replicas, and the others one each.
  const rows = [
    [[4], [4], [4]],
    [[0], [0], [0]],
    [
      [4, 4],
      [0, 0],
      [0, 0],
    ],
  ];
  for (const [process, result] of all.entries()) {
    const epochs = [0, 1].flatMap((epoch) =>
      [8 * (1 + 10 + 1000), 8 * 100, 8 * 10_000].map((sum, step) => ({ epoch, sum, rows: rows[process]![step], width: 2, note: 'int32' })),
    );
    expect(result).toEqual({ seen: epochs, ids: 6 });
  }
});
