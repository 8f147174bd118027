/**
 * bench large-batch: MNIST with a batch of 64 and one of 2048: the rate as it is, scaled, and scaled with a warm-up
 *
 * Trains the same model in this one process by what a run consists of: its spec, the sampler, the engine, the rate of each round and the optimizer with
 * its kernels, with one replica. The rows are those that Goyal et al. 2017 compare: a small batch; a large one at the same rate; at the rate times the
 * growth of the batch (`scaling: linear`); and that with a gradual warm-up. All see equally many examples. `errorPercent` is the median over the
 * seeds of the error on the test split. With `--check` it exits with 1 unless scaling with warm-up is within `--within` points of the small batch, and the
 * other two rows are not.
 */
import { parseArgs } from 'node:util';
import { openDataset, rowBuffers } from '@paceline/data';
import { createEngine, describeModel } from '@paceline/engine';
import { Arena } from '@paceline/kernels';
import { createInitialValues, createLayout, createOptimizer, createSchedule, fillPermutation } from '@paceline/learning';
import { rateFactor } from '@paceline/spec';
import { median } from './median.mjs';
import { specOf, testErrorPercent } from './test-error.mjs';

const { values: flags } = parseArgs({
  options: {
    json: { type: 'boolean', default: false },
    check: { type: 'boolean', default: false },
    rate: { type: 'string', default: '0.03' },
    momentum: { type: 'string', default: '0.9' },
    batch: { type: 'string', default: '64' },
    'large-batch': { type: 'string', default: '2048' },
    epochs: { type: 'string', default: '10' },
    'warmup-epochs': { type: 'string', default: '4' },
    seeds: { type: 'string', default: '3' },
    examples: { type: 'string', default: '60000' },
    within: { type: 'string', default: '0.5' },
  },
});
const [small, large, epochs] = /** @type {[number, number, number]} */ ([flags.batch, flags['large-batch'], flags.epochs].map(Number));
const seeds = Array.from({ length: Number(flags.seeds) }, (_, i) => i + 1);

const scaled = /** @type {const} */ ({ schedule: 'cosine', scaling: 'linear', baseBatch: small });
/** @type {readonly { what: string, globalBatch: number, learningRate: import('@paceline/spec').RunSpecInput['learningRate'] }[]} */
const ROWS = [
  { what: 'small batch', globalBatch: small, learningRate: { schedule: 'cosine' } },
  { what: 'large batch, the same rate', globalBatch: large, learningRate: { schedule: 'cosine' } },
  { what: 'large batch, linear scaling', globalBatch: large, learningRate: scaled },
  {
    what: 'large batch, linear scaling and warm-up',
    globalBatch: large,
    learningRate: Object.assign({ warmupEpochs: Number(flags['warmup-epochs']) }, scaled),
  },
];

const { train, evaluation, format } = await openDataset('mnist');
const examples = Math.min(Number(flags.examples), train.count);

/**
 * Trains one model. @returns its error on the test split, in percent
 * @param {(typeof ROWS)[number]} row
 * @param {number} seed
 */
async function errorOf({ globalBatch, learningRate }, seed) {
  const spec = specOf({
    model: 'mlp',
    optimizer: { name: 'momentum', learningRate: Number(flags.rate), momentum: Number(flags.momentum) },
    globalBatch,
    replicas: 1,
    length: { epochs },
    seed,
    ...(learningRate ? { learningRate } : {}),
  });
  const description = await describeModel(spec, format);
  const layout = createLayout(description);
  const engine = await createEngine({ spec, description, format, layout });
  const schedule = createSchedule({ examples, globalBatch, dropRemainder: false, length: spec.length });
  const factor = rateFactor(spec.learningRate, Object.assign({ globalBatch }, schedule));
  const optimizer = createOptimizer(spec.optimizer);
  const bytes = layout.totalLength * 4;
  const arena = Arena.create({ initialBytes: bytes * 3 + 65_536, maximumBytes: bytes * 3 + 1_048_576 });
  const [param, grad, velocity] = [arena.alloc(bytes), arena.alloc(bytes), arena.alloc(bytes)];
  arena.kernels.fill(velocity, layout.totalLength, 0);
  const [weights, out] = [arena.f32(param, layout.totalLength), arena.f32(grad, layout.totalLength)];
  createInitialValues(description, seed).fill(0, weights);
  const rows = rowBuffers(format, globalBatch);
  const order = new Int32Array(examples);
  for (let round = 0; round < schedule.totalRounds; round++) {
    const { epoch, roundInEpoch, first, count } = schedule.round(round);
    if (roundInEpoch === 0) fillPermutation(seed, epoch, examples, order);
    train.gather(order, first, first + count, rows);
    engine.load(weights);
    engine.step({ round, replica: 0, batches: [Object.assign({ count }, rows)], out });
    const update = { count: layout.trainableLength, step: round + 1, gradScale: 1 / count, rateFactor: factor(round) };
    optimizer.apply(arena.kernels, Object.assign(update, { paramIn: param, paramOut: param, grad, slots: [velocity] }));
  }
  engine.load(weights);
  const error = testErrorPercent(engine, evaluation, format);
  engine.dispose();
  return error;
}

/** @param {number} value */
const round = (value) => Number(value.toFixed(2));
/** @param {(typeof ROWS)[number]} row */
async function measure(row) {
  const before = process.cpuUsage();
  /** @type {number[]} */
  const errors = [];
  for (const seed of seeds) {
    errors.push(await errorOf(row, seed));
    process.stderr.write(`${row.what}, seed ${seed}: ${errors.at(-1)?.toFixed(2)} %\n`);
  }
  const { user, system } = process.cpuUsage(before);
  return {
    what: row.what,
    batch: row.globalBatch,
    epochs,
    seeds: errors.length,
    errorPercent: round(median(errors)),
    lowest: round(Math.min(...errors)),
    highest: round(Math.max(...errors)),
    cpuSeconds: round((user + system) / 1e6),
  };
}

/** @type {Awaited<ReturnType<typeof measure>>[]} */
const rows = [];
for (const row of ROWS) rows.push(await measure(row));
const [base, same, linear, warm] = rows.map(({ errorPercent }) => errorPercent - (rows[0]?.errorPercent ?? NaN));
const within = Number(flags.within);
const holds =
  base === 0 && warm !== undefined && warm <= within && [same, linear].every((behind) => behind !== undefined && behind > within);
if (flags.json) console.log(JSON.stringify({ bench: 'large-batch', rows }));
else console.table(rows);
process.exit(flags.check && !holds ? 1 : 0);
