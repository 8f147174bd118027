/**
 * bench tracing: what a trace adds to the rounds that it records
 *
 * A run of mode sync trains the MNIST MLP or CNN on real processes with a control plane (one server and `--workers`). Every repetition records a trace of
 * `--rounds` rounds, as `paceline trace` does. `tracedMs` is the median time of the rounds in the trace. `untracedMs` is the mean of two medians: of as many
 * rounds before the request, and of as many after the trace. `ratio` is the median over the repetitions. The bar: `ratio` is at most 1.02. With `--check` it exits
 * with 1 when it is missed.
 */
import { parseArgs } from 'node:util';
import { Stack } from '@paceline/testkit';
import { median } from './median.mjs';

const { values: flags } = parseArgs({
  options: {
    json: { type: 'boolean', default: false },
    check: { type: 'boolean', default: false },
    model: { type: 'string', default: 'mlp,cnn' },
    workers: { type: 'string', default: '2' },
    batch: { type: 'string', default: '128' },
    rounds: { type: 'string', default: '50' },
    'warm-up': { type: 'string', default: '200' },
    repetitions: { type: 'string', default: '9' },
  },
});
const [workers, batch, rounds, warmUp, repetitions] = [flags.workers, flags.batch, flags.rounds, flags['warm-up'], flags.repetitions].map(
  Number,
);
if (warmUp < rounds) throw new Error('--warm-up must not be below --rounds: they are compared with rounds before the trace');
const BAR = 1.02;
/** Far more than are measured: the bench cancels the run. */
const ENDLESS = 1_000_000;
const DEADLINE_MS = 300_000;
/** After a trace its processes write their reports. */
const REPORT_ROUNDS = 20;

/** @param {string} given @returns {'mlp' | 'cnn'} */
function modelNamed(given) {
  if (given === 'mlp' || given === 'cnn') return given;
  throw new Error(`--model takes mlp and cnn, not "${given}"`);
}

/** @param {number} value */
const rounded = (value) => Number(value.toFixed(3));

/**
 * @param {Stack} stack
 * @param {string} id
 * @param {number} round
 */
const untilRound = (stack, id, round) =>
  stack.until(`round ${round}`, DEADLINE_MS, async () => {
    const run = await stack.client.run(id);
    if (run?.status !== 'RUNNING' && run?.progress.round) throw new Error(`the run is ${run.status}: ${run.statusReason}`);
    return (run?.progress.round ?? 0) >= round || { round: run?.progress.round };
  });

/**
 * The median time of rounds, in milliseconds.
 * @param {Stack} stack
 * @param {string} id
 * @param {number} from the first
 * @param {number} to the one after the last
 */
async function roundMs(stack, id, from, to) {
  const [series] = await stack.client.metrics(id, { names: ['roundMs'], fromRound: from, toRound: to - 1, maxPoints: 2_000 });
  const values = series?.points.map(({ value }) => Number(value)) ?? [];
  if (values.length !== to - from) throw new Error(`there are ${values.length} points for the rounds from ${from} to ${to - 1}`);
  return median(values);
}

/**
 * @param {Stack} stack
 * @param {'mlp' | 'cnn'} model
 */
async function measure(stack, model) {
  const { id } = await stack.client.createRun({
    model,
    globalBatch: batch * workers,
    replicas: workers,
    length: { rounds: ENDLESS },
    optimizer: { name: 'sgd', learningRate: 0.05 },
    checkpoint: { final: false, everySeconds: 0 },
  });
  /** @type {{ traced: number, untraced: number }[]} */
  const found = [];
  await untilRound(stack, id, warmUp);
  for (let i = 0; i < repetitions; i++) {
    // More rounds than the trace has are recorded, so those before it count up to here.
    const before = (await stack.client.run(id))?.progress.round ?? 0;
    const { otherData } = await stack.client.traceRun(id, { rounds });
    const { fromRound, toRound, isWhole } = otherData;
    if (!isWhole) throw new Error('a process is not in the trace');
    const after = toRound + 1 + REPORT_ROUNDS;
    await untilRound(stack, id, after + rounds + 1);
    const traced = await roundMs(stack, id, fromRound, toRound + 1);
    const around = [await roundMs(stack, id, before - rounds, before), await roundMs(stack, id, after, after + rounds)];
    found.push({ traced, untraced: (around[0] + around[1]) / 2 });
  }
  await stack.client.cancelRun(id);
  await stack.until('the end of the run', DEADLINE_MS, async () => (await stack.client.run(id))?.status === 'CANCELLED');
  const ratios = found.map(({ traced, untraced }) => traced / untraced);
  const ratio = rounded(median(ratios));
  return {
    model,
    workers,
    batchPerWorker: batch,
    rounds,
    repetitions,
    tracedMs: rounded(median(found.map(({ traced }) => traced))),
    untracedMs: rounded(median(found.map(({ untraced }) => untraced))),
    ratio,
    lowest: rounded(Math.min(...ratios)),
    highest: rounded(Math.max(...ratios)),
    holds: ratio <= BAR,
  };
}

/** @type {Awaited<ReturnType<typeof measure>>[]} */
const rows = [];
const stack = await Stack.start({ servers: 1, workers, transport: 'unix' });
try {
  for (const model of flags.model.split(',').map(modelNamed)) rows.push(await measure(stack, model));
} finally {
  await stack.stop();
}
if (flags.json) console.log(JSON.stringify({ bench: 'tracing', rows }));
else console.table(rows);
process.exit(flags.check && rows.some(({ holds }) => !holds) ? 1 : 0);
