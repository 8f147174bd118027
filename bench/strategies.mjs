/**
 * bench strategies: the MLP by parameter server and by multi-worker-mirrored on the same workers, examples per second
 *
 * Every repetition trains two new runs in turn on one stack: one with `--servers` parameter servers, and one whose workers hold the parameters, the MLP
 * 784-256-128-10 with 128 examples per worker and round. Placement and the first rounds belong to the set-up and not to the figure:
 * examples of the rounds after those / time from their beginning to the last commit, as the coordinator dated them. The figure is the median of the
 * repetitions. The parameter servers are there all the time, but in the second run they have nothing to do.
 */
import { parseArgs } from 'node:util';
import { Stack } from '@paceline/testkit';
import { median } from './median.mjs';

const { values: flags } = parseArgs({
  options: {
    json: { type: 'boolean', default: false },
    workers: { type: 'string', default: '2' },
    servers: { type: 'string', default: '1' },
    batch: { type: 'string', default: '128' },
    rounds: { type: 'string', default: '1200' },
    repetitions: { type: 'string', default: '3' },
  },
});
const [workers, servers, batch] = [Number(flags.workers), Number(flags.servers), Number(flags.batch)];
const WARM_UP_ROUNDS = 20;
const rounds = WARM_UP_ROUNDS + Number(flags.rounds);
const DEADLINE_MS = 300_000;

/** @typedef {NonNullable<import('@paceline/spec').RunSpecInput['strategy']>} Strategy */
/** @type {readonly Strategy[]} */
const STRATEGIES = [
  { kind: 'parameter-server', servers, startWorkers: workers },
  { kind: 'multi-worker-mirrored', workers },
];

/**
 * @param {Stack} stack
 * @param {Strategy} strategy
 * @param {number} seed
 */
async function examplesPerSecond(stack, strategy, seed) {
  const { id } = await stack.client.createRun({
    model: 'mlp',
    globalBatch: batch * workers,
    replicas: workers,
    length: { rounds },
    seed,
    strategy,
    optimizer: { name: 'sgd', learningRate: 0.1 },
    checkpoint: { final: false, everySeconds: 0 },
  });
  await stack.until(`a run of ${strategy.kind} to end`, DEADLINE_MS, async () => {
    const run = await stack.client.run(id);
    if (run?.status === 'FAILED') throw new Error(run.statusReason ?? 'it failed');
    return run?.status === 'SUCCEEDED';
  });
  const [series] = await stack.client.metrics(id, { names: ['loss'], fromRound: WARM_UP_ROUNDS, maxPoints: 2_000 });
  const [first, last] = [series?.points[0], series?.points.at(-1)];
  if (!first || !last || last === first) throw new Error('too few rounds came to be measured: give more with --rounds');
  return ((last.round - first.round) * batch * workers * 1000) / (last.atMs - first.atMs);
}

const stack = await Stack.start({ servers, workers });
/** @type {number[][]} */
const figures = STRATEGIES.map(() => []);
try {
  for (let repetition = 0; repetition < Number(flags.repetitions); repetition++)
    for (const [i, strategy] of STRATEGIES.entries()) figures[i]?.push(await examplesPerSecond(stack, strategy, repetition));
} finally {
  await stack.stop();
}
const rows = STRATEGIES.map(({ kind }, i) => {
  const own = figures[i] ?? [];
  return {
    strategy: kind,
    workers,
    examplesPerSecond: Math.round(median(own)),
    lowest: Math.round(Math.min(...own)),
    highest: Math.round(Math.max(...own)),
  };
});
if (flags.json) console.log(JSON.stringify({ bench: 'strategies', rows }));
else console.table(rows);
