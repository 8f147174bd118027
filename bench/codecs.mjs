/**
 * bench codecs: MNIST with each codec: the error on the test split, and the bytes of its gradients
 *
 * Trains the same model in this one process by what a run consists of: its spec, the sampler, the engine, the encoding of each replica's gradient, the
 * decoding and addition in the order of the servers, and the optimizer. `gradientBytes` are those of the payloads and headers of a replica in a round, as
 * they would be on a socket; `timesFewer` compares them with float32. `errorPercent` is the median over the seeds, `points` how far it lies above that of
 * float32. All rows have the same rate, momentum, batch and epochs. `parameterBytes` are those of a generation on its way to a worker. With `--link 20mbit,30ms`
 * `linkRoundMs` is what a round of one replica takes over a socket behind such a link, both ways, without the computing. `--specs` takes codecs as JSON.
 * With `--check` it exits with 1 unless int8 sends 3.9 times fewer bytes at 0.1 points above none or less, and top-k, dgc and power-sgd 100 times fewer at 0.5
 * points or less, each by one of its rows. What the run has no row of is not judged, and without a row of none nothing is.
 */
import { parseArgs } from 'node:util';
import { openDataset, rowBuffers } from '@paceline/data';
import { createEngine, describeModel } from '@paceline/engine';
import { Arena } from '@paceline/kernels';
import { createInitialValues, createLayout, createOptimizer, createSchedule, fillPermutation, replicaRows } from '@paceline/learning';
import { keepsEstimate, rateFactor } from '@paceline/spec';
import { inProcessExchange } from './in-process-exchange.mjs';
import { median } from './median.mjs';
import { linkOf, roundMsOver } from './slow-link.mjs';
import { specOf, testErrorPercent } from './test-error.mjs';

const { values: flags } = parseArgs({
  options: {
    json: { type: 'boolean', default: false },
    check: { type: 'boolean', default: false },
    model: { type: 'string', default: 'mlp' },
    rate: { type: 'string', default: '0.05' },
    momentum: { type: 'string', default: '0.9' },
    batch: { type: 'string', default: '256' },
    replicas: { type: 'string', default: '4' },
    epochs: { type: 'string', default: '3' },
    seeds: { type: 'string', default: '3' },
    examples: { type: 'string', default: '60000' },
    codecs: { type: 'string' },
    specs: { type: 'string' },
    link: { type: 'string' },
  },
});
const model = flags.model === 'cnn' ? 'cnn' : 'mlp';
const [globalBatch, replicas, epochs] = /** @type {[number, number, number]} */ ([flags.batch, flags.replicas, flags.epochs].map(Number));
const speed = flags.link === undefined ? undefined : linkOf(flags.link);
const seeds = Array.from({ length: Number(flags.seeds) }, (_, i) => i + 1);

/** Of each kind the row with the fewest points that has so many times fewer bytes. */
const BARS = [
  { kind: 'int8', timesFewer: 3.9, points: 0.1 },
  { kind: 'top-k', timesFewer: 100, points: 0.5 },
  { kind: 'dgc', timesFewer: 100, points: 0.5 },
  { kind: 'power-sgd', timesFewer: 100, points: 0.5 },
];

/** Over a link nothing but the link varies. */
const LINK_ROUNDS = 5;

/** @typedef {import('@paceline/spec').CodecSpec} CodecSpec */
/** @type {readonly CodecSpec[]} */
const ALL = [
  { kind: 'none', errorFeedback: false },
  { kind: 'none', errorFeedback: false, parameters: 'fp16' },
  { kind: 'none', errorFeedback: false, parameters: 'bf16' },
  { kind: 'none', errorFeedback: false, parameters: 'int8' },
  { kind: 'int8', errorFeedback: false, parameters: 'int8' },
  { kind: 'int4', errorFeedback: false, parameters: 'delta-int4' },
  { kind: 'int4', errorFeedback: false, parameters: 'delta-int2' },
  { kind: 'none', errorFeedback: false, parameters: 'delta-top-k' },
  { kind: 'fp16', errorFeedback: false },
  { kind: 'bf16', errorFeedback: false },
  { kind: 'int8', errorFeedback: false },
  { kind: 'int4', errorFeedback: false },
  { kind: 'int2', errorFeedback: false },
  { kind: 'int2', errorFeedback: true },
  { kind: 'sign', errorFeedback: false },
  { kind: 'sign', errorFeedback: true },
  { kind: 'sign', errorFeedback: true, feedbackRule: 'ef21' },
  { kind: 'top-k', density: 0.01, errorFeedback: false },
  { kind: 'top-k', density: 0.01, errorFeedback: true },
  { kind: 'top-k', density: 0.01, errorFeedback: true, feedbackRule: 'ef21' },
  { kind: 'top-k', density: 0.05, errorFeedback: true, feedbackRule: 'ef21' },
  { kind: 'top-k', density: 0.005, errorFeedback: true },
  { kind: 'top-k', density: 0.001, errorFeedback: true },
  { kind: 'top-k', density: 0.01, values: 'int8', errorFeedback: true },
  { kind: 'top-k', density: 0.01, values: 'int2', errorFeedback: true },
  { kind: 'top-k', density: 0.02, values: 'int2', errorFeedback: true },
  { kind: 'threshold', threshold: 0.001, errorFeedback: true },
  { kind: 'threshold', threshold: 0.01, errorFeedback: true },
  { kind: 'random-k', density: 0.01, errorFeedback: false },
  { kind: 'random-k', density: 0.01, errorFeedback: true },
  { kind: 'dgc', density: 0.01, errorFeedback: false },
  { kind: 'dgc', density: 0.005, warmupRounds: 40, errorFeedback: false },
  { kind: 'dgc', density: 0.005, momentum: 0.95, warmupRounds: 40, errorFeedback: false },
  { kind: 'dgc', density: 0.005, warmupRounds: 40, errorFeedback: false, parameters: 'int8' },
  { kind: 'power-sgd', rank: 1, errorFeedback: false },
  { kind: 'power-sgd', rank: 2, errorFeedback: false },
  { kind: 'power-sgd', rank: 4, errorFeedback: false },
  { kind: 'dgc', density: 0.002, warmupRounds: 40, errorFeedback: false },
];
/** @param {CodecSpec} codec */
const nameOf = ({ kind, density, threshold, values, rank, momentum, warmupRounds, clipNorm, errorFeedback, feedbackRule, parameters }) =>
  [
    kind,
    density,
    threshold,
    values ? `values ${values}` : '',
    rank ? `rank ${rank}` : '',
    momentum ? `momentum ${momentum}` : '',
    warmupRounds ? `warm-up ${warmupRounds}` : '',
    clipNorm ? `clip ${clipNorm}` : '',
    errorFeedback ? (feedbackRule === 'ef21' ? 'with EF21' : 'with error feedback') : '',
    parameters ? `parameters ${parameters}` : '',
  ]
    .filter(Boolean)
    .join(' ');
const wanted = flags.codecs?.split(',');
const CODECS = flags.specs
  ? /** @type {CodecSpec[]} */ (JSON.parse(flags.specs))
  : wanted
    ? ALL.filter(({ kind, parameters }) => wanted.includes(kind) || (parameters && wanted.includes('parameters')))
    : ALL;

const { train, evaluation, format } = await openDataset('mnist');
const examples = Math.min(Number(flags.examples), train.count);

/**
 * Trains one model. @returns its error on the test split, and bytes of a replica's gradient on average
 * @param {CodecSpec} codecSpec
 * @param {number} seed
 */
async function trained(codecSpec, seed) {
  const learningRate = Number(flags.rate);
  const momentum = Number(flags.momentum);
  // With dgc the momentum is that of the replicas.
  const optimizerSpec =
    codecSpec.kind === 'dgc'
      ? { name: /** @type {const} */ ('sgd'), learningRate }
      : { name: /** @type {const} */ ('momentum'), learningRate, momentum };
  const spec = specOf({ model, optimizer: optimizerSpec, globalBatch, replicas, length: { epochs }, seed, codec: codecSpec });
  const description = await describeModel(spec, format);
  const layout = createLayout(description);
  const engine = await createEngine({ spec, description, format, layout });
  const schedule = createSchedule({ examples, globalBatch, dropRemainder: false, length: spec.length });
  const factor = rateFactor(spec.learningRate, Object.assign({ globalBatch }, schedule));
  const optimizer = createOptimizer(spec.optimizer);
  const vectorBytes = layout.totalLength * 4;
  const arena = Arena.create({ initialBytes: vectorBytes * 7 + 65_536, maximumBytes: vectorBytes * (11 + 5 * replicas) + 1_048_576 });
  const [param, sum, velocity, gradient, estimate] = [0, 0, 0, 0, 0].map(() => arena.alloc(vectorBytes));
  if (!param || !sum || !velocity || !gradient || !estimate) throw new Error('the arena has no room for the model');
  for (const slot of [velocity, estimate]) arena.kernels.fill(slot, layout.totalLength, 0);
  const weights = arena.f32(param, layout.totalLength);
  createInitialValues(description, seed).fill(0, weights);
  const countOf = (/** @type {number} */ round) => schedule.round(round).count;
  const { wayThere, wayBack } = inProcessExchange({ arena, spec, layout, countOf, param, gradient });
  const order = new Int32Array(examples);

  for (let round = 0; round < schedule.totalRounds; round++) {
    const { epoch, roundInEpoch, first, count } = schedule.round(round);
    if (roundInEpoch === 0) fillPermutation(seed, epoch, examples, order);
    wayBack.publish(round);
    engine.load(wayBack.published);
    arena.kernels.fill(sum, layout.totalLength, 0);
    for (let replica = 0; replica < replicas; replica++) {
      const { from, to } = replicaRows(count, replicas, replica);
      const rows = rowBuffers(format, Math.max(1, to - from));
      train.gather(order, first + from, first + to, rows);
      const batches = to > from ? [Object.assign({ count: to - from }, rows)] : [];
      engine.step({ round, replica, batches, out: arena.f32(gradient, layout.totalLength) });
      wayThere.send(round, replica);
      arena.kernels.add(sum, gradient, layout.totalLength);
    }
    if (keepsEstimate(spec)) {
      const growth = round > 0 ? count / countOf(round - 1) : 1;
      arena.kernels.sgd(sum, sum, estimate, layout.trainableLength, 1, -growth); // sum += growth · estimate
      arena.kernels.copy(estimate, sum, layout.trainableLength);
    }
    const update = { count: layout.trainableLength, step: round + 1, gradScale: 1 / count, rateFactor: factor(round) };
    optimizer.apply(arena.kernels, Object.assign(update, { paramIn: param, paramOut: param, grad: sum, slots: [velocity] }));
  }
  engine.load(weights);
  const error = testErrorPercent(engine, evaluation, format);
  engine.dispose();
  return {
    error,
    bytes: wayThere.bytes / schedule.totalRounds / replicas,
    parameterBytes: wayBack.bytes / schedule.totalRounds,
    dense: wayThere.denseBytes,
  };
}

/** @param {number} value */
const rounded = (value) => Number(value.toFixed(2));
/** @type {number | undefined} */
let plain;
const rows = [];
for (const codecSpec of CODECS) {
  const results = [];
  for (const seed of seeds) {
    results.push(await trained(codecSpec, seed));
    process.stderr.write(`${nameOf(codecSpec)}, seed ${seed}: ${results.at(-1)?.error.toFixed(2)} %\n`);
  }
  const errors = results.map(({ error }) => error);
  const [bytes, dense] = [median(results.map((result) => result.bytes)), results[0]?.dense ?? NaN];
  plain ??= codecSpec.kind === 'none' && !codecSpec.parameters ? median(errors) : undefined;
  const parameterBytes = Math.round(median(results.map((result) => result.parameterBytes)));
  const roundMs = speed && (await roundMsOver(speed, Math.round(bytes), parameterBytes, LINK_ROUNDS));
  rows.push({
    codec: nameOf(codecSpec),
    model,
    errorPercent: rounded(median(errors)),
    lowest: rounded(Math.min(...errors)),
    highest: rounded(Math.max(...errors)),
    points: plain === undefined ? null : rounded(median(errors) - plain),
    gradientBytes: Math.round(bytes),
    timesFewer: rounded(dense / bytes),
    parameterBytes,
    ...(roundMs === undefined ? {} : { linkRoundMs: Math.round(roundMs) }),
  });
}
if (flags.json) console.log(JSON.stringify({ bench: 'codecs', rows }));
else console.table(rows);

for (const { kind, timesFewer, points } of flags.check ? BARS : []) {
  const ofKind = rows.filter((row) => row.codec.split(' ')[0] === kind && row.points !== null);
  if (ofKind.length === 0) continue;
  const least = Math.min(...ofKind.flatMap((row) => (row.timesFewer >= timesFewer ? [row.points ?? NaN] : [])));
  console.error(`${kind}, ${timesFewer} times fewer bytes or more: ${least} points above none (bar ${points})`);
  if (!(least <= points)) process.exitCode = 1;
}
