/**
 * bench local-updates: MNIST with local steps: rounds and bytes until a test accuracy, and DiLoCo beside dense synchronous training
 *
 * Trains the same model in this one process by what a run consists of: its spec, the sampler, the engine, the local steps of each replica, the encoding of
 * what it sends, the addition in the order of the servers, and the outer optimizer. Bytes are those of payloads and headers of one replica, as they would
 * be on a socket: `sent` to the servers, `received` from them. Two tables:
 *
 *   rounds     local SGD with H = 1, 5, 20, 100: rounds and bytes until the test split is right to `--target` percent, one seed
 *   diloco     AdamW in every step (dense) beside DiLoCo, H = 50, whole and in fragments, and H = 30 with top-k 2 % and error feedback: the median error over the seeds,
 *              `points` above dense, and how many times fewer bytes, there, back, and both together. `--specs` takes runs as JSON in place of these; what
 *              has a `what` of its own is called so
 *
 * With `--check` it exits with 1 unless DiLoCo with H = 50 sends at least 40 times fewer bytes than dense at 0.3 points or less, and the smallest row at least
 * 1,000 times fewer both ways at 0.5 points or less. What the run has no row of is not judged.
 */
import { parseArgs } from 'node:util';
import { openDataset, rowBuffers } from '@paceline/data';
import { createEngine, describeModel } from '@paceline/engine';
import { Arena } from '@paceline/kernels';
import {
  createInitialValues,
  createLayout,
  createOptimizer,
  createSchedule,
  exchangeOf,
  fillPermutation,
  LocalUpdates,
  microBatches,
  replicaRows,
} from '@paceline/learning';
import { appliedByServers, movingRate, rateFactor, roundExamples } from '@paceline/spec';
import { inProcessExchange } from './in-process-exchange.mjs';
import { median } from './median.mjs';
import { specOf, testErrorPercent } from './test-error.mjs';

const { values: flags } = parseArgs({
  options: {
    json: { type: 'boolean', default: false },
    check: { type: 'boolean', default: false },
    batch: { type: 'string', default: '256' },
    replicas: { type: 'string', default: '4' },
    rate: { type: 'string', default: '0.1' },
    target: { type: 'string', default: '97' },
    'most-epochs': { type: 'string', default: '20' },
    epochs: { type: 'string', default: '5' },
    seeds: { type: 'string', default: '3' },
    examples: { type: 'string', default: '60000' },
    steps: { type: 'string', default: '1,5,20,100' },
    only: { type: 'string' },
    specs: { type: 'string' },
  },
});
const [globalBatch, replicas] = /** @type {[number, number]} */ ([flags.batch, flags.replicas].map(Number));
const MEASURED_EVERY_STEPS = 20;

const { train, evaluation, format } = await openDataset('mnist');
const examples = Math.min(Number(flags.examples), train.count);

/** @typedef {import('@paceline/spec').RunSpecInput} RunSpecInput */
/** @typedef {{ error: number, rounds: number, sent: number, received: number, epochs: number }} Trained */

/**
 * @param {RunSpecInput} input
 * @param {number | undefined} target accuracy in percent at which training ends; with one the error is measured every 20 steps
 * @returns {Promise<Trained>}
 */
async function trained(input, target) {
  const spec = specOf({ model: 'mlp', globalBatch, replicas, ...input });
  const { strategy, seed } = spec;
  const steps = strategy.kind === 'local-update' ? strategy.localSteps : 1;
  const description = await describeModel(spec, format);
  const layout = createLayout(description);
  const engine = await createEngine({ spec, description, format, layout });
  const schedule = createSchedule({ examples, globalBatch: roundExamples(spec), dropRemainder: false, length: spec.length });
  const optimizer = createOptimizer(appliedByServers(spec).optimizer);
  const vectorBytes = layout.totalLength * 4;
  const arena = Arena.create({ initialBytes: vectorBytes * 8, maximumBytes: vectorBytes * (16 + 8 * replicas) + 1_048_576 });
  const [param, sum, gradient] = [0, 0, 0].map(() => arena.alloc(vectorBytes));
  if (!param || !sum || !gradient) throw new Error('the arena has no room for the model');
  const slots = optimizer.slots.map(() => arena.alloc(vectorBytes));
  for (const slot of slots) arena.kernels.fill(slot, layout.totalLength, 0);
  const weights = arena.f32(param, layout.totalLength);
  createInitialValues(description, seed).fill(0, weights);
  const factor = rateFactor(spec.learningRate, Object.assign({ globalBatch }, schedule));
  const updates = localUpdatesOf(spec, arena, layout, factor);
  const countOf = (/** @type {number} */ round) => schedule.round(round).count;
  const isExchanged = exchangeOf(spec, layout);
  const { wayThere, wayBack } = inProcessExchange({ arena, spec, layout, countOf, param, gradient, isExchanged });
  const { published } = wayBack;
  const order = new Int32Array(examples);

  let round = 0;
  let [error, sinceSteps] = [100, 0];
  for (; round < schedule.totalRounds; round++) {
    const { epoch, roundInEpoch, first, count } = schedule.round(round);
    if (roundInEpoch === 0) fillPermutation(seed, epoch, examples, order);
    arena.kernels.fill(sum, layout.totalLength, 0);
    wayBack.publish(round);
    if (!updates) engine.load(published);
    const taken = Math.min(steps, Math.ceil(count / globalBatch));
    for (let replica = 0; replica < replicas; replica++) {
      const rows = replicaRows(count, replicas, replica);
      const whole = { from: first + rows.from, to: first + rows.to };
      if (updates) {
        const parts = microBatches(whole, taken);
        updates.run({ round, replica, steps: parts.length, start: published, out: gradient }, (local, own, out) => {
          engine.load(own);
          return step(engine, order, { round: round * steps + local, replica, out }, parts[local] ?? { from: 0, to: 0 });
        });
      } else step(engine, order, { round, replica, out: arena.f32(gradient, layout.totalLength) }, whole);
      wayThere.send(round, replica);
      arena.kernels.add(sum, gradient, layout.totalLength);
    }
    const update = { count: layout.trainableLength, step: round + 1, gradScale: 1 / count, rateFactor: updates ? 1 : factor(round) };
    decay(spec, arena, param, update);
    for (const { index, section, offset, length } of layout.chunks) {
      if (section === 'state' || isExchanged?.(round, index) === false) continue;
      const at = (/** @type {number} */ vector) => vector + 4 * offset;
      const own = { paramIn: at(param), paramOut: at(param), grad: at(sum), slots: slots.map(at), count: length };
      optimizer.apply(arena.kernels, Object.assign({}, update, own));
    }
    if (target === undefined || (sinceSteps += taken) < MEASURED_EVERY_STEPS) continue;
    sinceSteps = 0;
    engine.load(weights);
    error = testErrorPercent(engine, evaluation, format);
    if (error <= 100 - target) {
      round++;
      break;
    }
  }
  engine.load(weights);
  if (target === undefined) error = testErrorPercent(engine, evaluation, format);
  engine.dispose();
  const epochs = round / schedule.roundsPerEpoch;
  return { error, rounds: round, sent: wayThere.bytes / replicas, received: wayBack.bytes, epochs };
}

/**
 * What replicas do in a round of local steps; undefined where they take one step.
 * @param {import('@paceline/spec').RunSpec} spec
 * @param {Arena} arena
 * @param {ReturnType<typeof createLayout>} layout
 * @param {(step: number) => number} factor
 */
function localUpdatesOf(spec, arena, layout, factor) {
  const { strategy, optimizer, gradient, freeze } = spec;
  if (strategy.kind !== 'local-update') {
    const { clipNorm, clipGlobalNorm, clipValue } = gradient;
    if ([clipNorm, clipGlobalNorm, clipValue, freeze].some((given) => given !== undefined))
      throw new Error('--specs: clipping and freeze are trained with local-update alone');
    return undefined;
  }
  return new LocalUpdates({
    arena,
    layout,
    optimizer,
    clip: gradient,
    freeze,
    keepsSlots: strategy.innerState === 'keep',
    movingRate: movingRate(spec),
    isExchanged: exchangeOf(spec, layout),
    localSteps: strategy.localSteps,
    rateFactor: factor,
  });
}

/**
 * Computes the gradient over positions of the epoch's order.
 * @param {import('@paceline/engine').Engine} engine
 * @param {Int32Array} order
 * @param {{ round: number, replica: number, out: Float32Array }} given
 * @param {{ from: number, to: number }} part
 * @returns {number} its examples
 */
function step(engine, order, given, { from, to }) {
  const rows = rowBuffers(format, Math.max(1, to - from));
  train.gather(order, from, to, rows);
  const batches = to > from ? [Object.assign({ count: to - from }, rows)] : [];
  engine.step({ ...given, batches });
  return to - from;
}

/**
 * The weight decay of a dense run, which servers apply before the update (parameter-store.ts of libs/hosting).
 * @param {import('@paceline/spec').RunSpec} spec
 * @param {Arena} arena
 * @param {number} param
 * @param {{ count: number, rateFactor: number }} update
 */
function decay({ strategy, optimizer }, { kernels }, param, { count, rateFactor: factor }) {
  if (strategy.kind === 'local-update' || optimizer.name !== 'adamw') return;
  kernels.decayWeights(param, param, count, optimizer.weightDecay, optimizer.learningRate * factor);
}

/** @param {number} value */
const rounded = (value) => Number(value.toFixed(2));
/** With the digits that two rounds need. @param {number} bytes */
const megabytes = (bytes) => Number((bytes / 1e6).toFixed(4));
/** @param {string} what */
const tell = (what) => void process.stderr.write(`${what}\n`);

async function roundsToTarget() {
  const target = Number(flags.target);
  const rows = [];
  for (const localSteps of flags.steps.split(',').map(Number)) {
    const { error, rounds, sent, received, epochs } = await trained(
      {
        optimizer: { name: 'sgd', learningRate: Number(flags.rate) },
        strategy: { kind: 'local-update', localSteps },
        length: { epochs: Number(flags['most-epochs']) },
        seed: 1,
      },
      target,
    );
    const isReached = error <= 100 - target;
    tell(`H ${localSteps}: ${isReached ? '' : 'not '}reached after ${rounds} rounds`);
    rows.push({
      localSteps,
      isReached,
      rounds,
      epochs: rounded(epochs),
      sentMegabytes: rounded(sent / 1e6),
      receivedMegabytes: rounded(received / 1e6),
    });
  }
  return rows;
}

const ADAMW = /** @type {const} */ ({ name: 'adamw', learningRate: 0.001 });
const DILOCO = /** @type {const} */ ({ kind: 'local-update', outerOptimizer: 'nesterov' });
const SPARSE = /** @type {const} */ ({ kind: 'top-k', density: 0.02, errorFeedback: true });
const LOCAL_30 = /** @type {const} */ ({ kind: 'local-update', localSteps: 30, innerState: 'keep' });
const SMALLEST = 'the same with parameters as delta-top-k, 8 %';
/** @type {readonly { what: string, input: RunSpecInput }[]} */
const COMPARED = [
  { what: 'dense, AdamW', input: {} },
  { what: 'local SGD of AdamW, H 50', input: { strategy: { kind: 'local-update', localSteps: 50, innerState: 'keep' } } },
  {
    what: 'EASGD, H 50',
    input: { strategy: { kind: 'local-update', localSteps: 50, outerOptimizer: 'elastic', innerState: 'keep' } },
  },
  { what: 'DiLoCo, H 50', input: { strategy: { ...DILOCO, localSteps: 50, innerState: 'keep' } } },
  ...[2, 5].map((fragments) => ({
    what: `Streaming DiLoCo, H 50 in ${fragments} fragments`,
    input: { strategy: { ...DILOCO, localSteps: 50 / fragments, fragments, innerState: /** @type {const} */ ('keep') } },
  })),
  { what: 'DiLoCo, H 50, inner state reset', input: { strategy: { ...DILOCO, localSteps: 50 } } },
  {
    what: 'DiLoCo, H 30, top-k 2 %, error feedback',
    input: { strategy: { ...DILOCO, localSteps: 30, innerState: 'keep' }, codec: SPARSE },
  },
  {
    what: 'the same with outer sgd at rate 1',
    input: { strategy: { kind: 'local-update', localSteps: 30, innerState: 'keep' }, codec: SPARSE },
  },
  {
    what: 'H 30, outer sgd at rate 1.5, top-k 2 % in two bits, error feedback',
    input: { strategy: { ...LOCAL_30, outerLearningRate: 1.5 }, codec: { ...SPARSE, values: 'int2' } },
  },
  {
    what: 'the same with parameters in int8',
    input: { strategy: { ...LOCAL_30, outerLearningRate: 1.5 }, codec: { ...SPARSE, values: 'int2', parameters: 'int8' } },
  },
  {
    what: SMALLEST,
    input: {
      strategy: { ...LOCAL_30, outerLearningRate: 1.5 },
      codec: { ...SPARSE, values: 'int2', parameters: 'delta-top-k', parameterDensity: 0.08 },
    },
  },
];

/** @type {typeof COMPARED} */
const WANTED = flags.specs
  ? JSON.parse(flags.specs).map((/** @type {RunSpecInput & { what?: string }} */ { what, ...input }) => ({
      what: what ?? JSON.stringify(input),
      input,
    }))
  : COMPARED;

async function besideDense() {
  const seeds = Array.from({ length: Number(flags.seeds) }, (_, i) => i + 1);
  const rows = [];
  /** @type {{ error: number, sent: number, received: number } | undefined} */
  let dense;
  for (const { what, input } of WANTED) {
    const results = [];
    for (const seed of seeds) {
      results.push(await trained({ optimizer: ADAMW, length: { epochs: Number(flags.epochs) }, seed, ...input }, undefined));
      tell(`${what}, seed ${seed}: ${results.at(-1)?.error.toFixed(2)} %`);
    }
    const errors = results.map(({ error }) => error);
    const [error, sent, received] = [median(errors), median(results.map((one) => one.sent)), median(results.map((one) => one.received))];
    dense ??= { error, sent, received };
    rows.push({
      what,
      errorPercent: rounded(error),
      lowest: rounded(Math.min(...errors)),
      highest: rounded(Math.max(...errors)),
      points: rounded(error - dense.error),
      rounds: results[0]?.rounds ?? 0,
      sentMegabytes: megabytes(sent),
      receivedMegabytes: megabytes(received),
      timesFewerSent: rounded(dense.sent / sent),
      timesFewerReceived: rounded(dense.received / received),
      timesFewer: rounded((dense.sent + dense.received) / (sent + received)),
    });
  }
  return rows;
}

const rounds = flags.only === 'diloco' ? [] : await roundsToTarget();
const diloco = flags.only === 'rounds' ? [] : await besideDense();
const all = [...rounds.map((row) => ({ table: 'rounds', ...row })), ...diloco.map((row) => ({ table: 'diloco', ...row }))];
if (flags.json) console.log(JSON.stringify({ bench: 'local-updates', rows: all }));
else for (const table of [rounds, diloco]) if (table.length > 0) console.table(table);

/** @typedef {(typeof diloco)[number]} Row */
/** @type {readonly { what: string, timesFewer: number, points: number, of: (row: Row) => number }[]} */
const BARS = [
  { what: 'DiLoCo, H 50', timesFewer: 40, points: 0.3, of: ({ timesFewerSent }) => timesFewerSent },
  { what: SMALLEST, timesFewer: 1000, points: 0.5, of: ({ timesFewer }) => timesFewer },
];
for (const { what, timesFewer, points, of } of flags.check ? BARS : []) {
  const row = diloco.find((one) => one.what === what);
  if (!row) continue;
  console.error(`${what}: ${of(row)} times fewer bytes (bar ${timesFewer}) at ${row.points} points (bar ${points})`);
  if (!(of(row) >= timesFewer && row.points <= points)) process.exitCode = 1;
}
