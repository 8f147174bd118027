/**
 * bench validation: what validations cost: the time that they add to a training, beside their own compute
 *
 * Every repetition trains the MNIST MLP or CNN on real processes (one server and `--workers`), once with a validation each `--every` rounds and once
 * without. `ownMs` is what a validation computes and no more: the forward step over all examples of the evaluation split, measured alone in this process
 * before and after each run, over the number of workers. `extraMs` is what a validation adds to the run that has it: its round and the one after, beyond
 * two median ones of the rounds before; `extraOfRunsMs` is the same as the difference of both runs, which others on the machine disturb more. `trainingMs` is the
 * time of the rounds from one validation to the next. Medians of the repetitions. The bar: `extraMs` is at most `ownMs` and 2 % of `trainingMs`.
 * With `--check` it exits with 1 when it is missed.
 */
import { parseArgs } from 'node:util';
import { openDataset, rowBuffers } from '@paceline/data';
import { createEngine, describeModel } from '@paceline/engine';
import { createInitialValues, createLayout } from '@paceline/learning';
import { parseRunSpec } from '@paceline/spec';
import { DataPlane } from '@paceline/testkit';
import { median } from './median.mjs';

const { values: flags } = parseArgs({
  options: {
    json: { type: 'boolean', default: false },
    check: { type: 'boolean', default: false },
    model: { type: 'string', default: 'mlp,cnn' },
    workers: { type: 'string', default: '1' },
    batch: { type: 'string', default: '128' },
    every: { type: 'string' },
    validations: { type: 'string', default: '4' },
    repetitions: { type: 'string', default: '5' },
  },
});
const workers = Number(flags.workers);
const batch = Number(flags.batch);
const validations = Number(flags.validations);
/** Rounds of an epoch, or of a part of one where rounds take long. */
const EVERY = { mlp: 469, cnn: 60 };
const BLOCK_EXAMPLES = 500;
/** The fastest of so many: processes that have just ended a run still use the machine. */
const FORWARDS = 3;
const BAR_SHARE = 0.02;
/** Rounds before a validation that its own is compared with: what else the machine does changes from second to second. */
const NEAR_ROUNDS = 40;

/** @typedef {keyof typeof EVERY} Model */

/** @param {string} given @returns {Model} */
function modelNamed(given) {
  if (given === 'mlp' || given === 'cnn') return given;
  throw new Error(`--model takes mlp and cnn, not "${given}"`);
}

/** @param {Model} model */
const everyOf = (model) => Number(flags.every ?? EVERY[model]);

/**
 * The forward step over the evaluation split, in the blocks of a run. @returns measures it, in milliseconds
 * @param {Model} model
 */
async function forwardOf(model) {
  const parsed = parseRunSpec({ model });
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.issues));
  const { spec } = parsed;
  const { evaluation, format } = await openDataset('mnist');
  const description = await describeModel(spec, format);
  const layout = createLayout(description);
  const engine = await createEngine({ spec, description, format, layout });
  const weights = new Float32Array(layout.totalLength);
  createInitialValues(description, spec.seed).fill(0, weights);
  engine.load(weights);
  const all = Int32Array.from({ length: evaluation.count }, (_, i) => i);
  const blocks = Array.from({ length: Math.ceil(all.length / BLOCK_EXAMPLES) }, (_, i) => {
    const [from, to] = [i * BLOCK_EXAMPLES, Math.min((i + 1) * BLOCK_EXAMPLES, all.length)];
    const rows = rowBuffers(format, to - from);
    evaluation.gather(all, from, to, rows);
    return Object.assign({ count: to - from }, rows);
  });
  return () => {
    const times = Array.from({ length: FORWARDS }, () => {
      const start = performance.now();
      for (const block of blocks) engine.evaluate(block);
      return performance.now() - start;
    });
    return Math.min(...times);
  };
}

/**
 * Milliseconds of each round.
 * @param {DataPlane} plane
 * @param {Model} model
 * @param {boolean} validates
 */
async function roundsOf(plane, model, validates) {
  const everyRounds = everyOf(model);
  const view = await plane.train({
    model,
    globalBatch: batch * workers,
    replicas: workers,
    length: { rounds: everyRounds * validations + 1 },
    optimizer: { name: 'sgd', learningRate: 0.05 },
    checkpoint: { final: false, everySeconds: 0 },
    ...(validates ? { validation: { everyRounds } } : {}),
  });
  await plane.finished(view, 600_000);
  const times = new Float64Array(everyRounds * validations + 1);
  for (const entry of view.entries) if (entry.kind === 'metric') times[entry.round] = entry.roundMs;
  return [...times.subarray(0, -1)]; // the last round is measured in both runs
}

/** @param {readonly number[]} values */
const sum = (values) => values.reduce((total, value) => total + value, 0);
/** @param {number} value */
const round = (value) => Number(value.toFixed(2));

/**
 * @param {DataPlane} plane
 * @param {Model} model
 */
async function measure(plane, model) {
  const every = everyOf(model);
  const forward = await forwardOf(model);
  for (let i = 0; i < 2; i++) forward(); // lets the compiler tier up
  await roundsOf(plane, model, true);
  /** @type {{ own: number, extra: number, ofRuns: number, training: number }[]} */
  const found = [];
  for (let i = 0; i < Number(flags.repetitions); i++) {
    const own = [forward()];
    const plain = await roundsOf(plane, model, false);
    own.push(forward());
    const validated = await roundsOf(plane, model, true);
    own.push(forward());
    const usual = median(validated);
    const at = Array.from({ length: validations }, (_, v) => (v + 1) * every - 1);
    const near = (/** @type {number} */ k) => median(validated.slice(Math.max(0, k - NEAR_ROUNDS), k));
    const extra = median(at.map((k) => (validated[k] ?? NaN) + (validated[k + 1] ?? near(k)) - 2 * near(k)));
    const row = {
      own: median(own) / workers,
      extra,
      ofRuns: (sum(validated.slice(every)) - sum(plain.slice(every))) / (validations - 1),
      training: usual * every,
    };
    found.push(row);
    process.stderr.write(`${model}: own ${round(row.own)} ms, extra ${round(row.extra)} ms, training ${round(row.training)} ms\n`);
  }
  const [ownMs, extraMs, trainingMs] = [
    median(found.map(({ own }) => own)),
    median(found.map(({ extra }) => extra)),
    median(found.map(({ training }) => training)),
  ];
  return {
    model,
    workers,
    batchPerWorker: batch,
    everyRounds: every,
    repetitions: found.length,
    ownMs: round(ownMs),
    extraMs: round(extraMs),
    extraOfRunsMs: round(median(found.map(({ ofRuns }) => ofRuns))),
    trainingMs: round(trainingMs),
    extraOfOwn: round(median(found.map(({ own, extra }) => extra / own))),
    barMs: round(ownMs + BAR_SHARE * trainingMs),
    holds: extraMs <= ownMs + BAR_SHARE * trainingMs,
  };
}

/** @type {Awaited<ReturnType<typeof measure>>[]} */
const rows = [];
const plane = await DataPlane.start({ servers: 1, workers });
try {
  for (const model of flags.model.split(',').map(modelNamed)) rows.push(await measure(plane, model));
} finally {
  await plane.stop();
}
if (flags.json) console.log(JSON.stringify({ bench: 'validation', rows }));
else console.table(rows);
process.exit(flags.check && rows.some(({ holds }) => !holds) ? 1 : 0);
