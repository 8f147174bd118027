/**
 * bench time-to-accuracy: MNIST over a slow link, from the first round to a test accuracy: dense beside codecs, local updates and codec auto
 *
 * Real processes: one server, `--workers` with a replica each, and between them `--link`. A run has equal bits with a link and without one, so the round
 * that reaches `--target` percent of the test split is found first, without the link (with `auto`, whose codec follows from the link, with it), by a
 * validation every `--every` rounds; with local updates as often in steps. Then the same run goes that far over the link, without validations. `seconds`
 * is the time from its first round to the commit of its last one, the median of `--repetitions` with each of `--seeds`; `timesFaster` compares it with dense. Megabytes are
 * those on the sockets of all workers, both ways, headers and control messages included. `ofBest` is the time beside that of the fastest row.
 * The rows `auto` have what the first rounds over the link have picked: of `auto, local updates allowed` a run of strategy auto measures them, ends, and the run
 * that was picked begins anew, as in the service; the seconds have those of the first one in them, until it has told what it measured.
 * With `--check` it exits with 1 unless the fastest is 8 times as fast as dense, and the row `auto` within 1.2 of it, or `auto, local updates allowed` where `--only` leaves `auto` out; a row that did not reach the target is not
 * judged by its time: dense and auto have to reach it. `--only` picks rows by what they are called.
 */
import { parseArgs } from 'node:util';
import { exchangeMeasuresSchema, STRATEGY_MEASURED } from '@paceline/protocol';
import { parseRunSpec, pickLocalUpdates, pickStrategy } from '@paceline/spec';
import { DataPlane } from '@paceline/testkit';
import { median } from './median.mjs';
import { linkOf } from './slow-link.mjs';

const { values: flags } = parseArgs({
  options: {
    json: { type: 'boolean', default: false },
    check: { type: 'boolean', default: false },
    model: { type: 'string', default: 'cnn' },
    link: { type: 'string', default: '20mbit,30ms' },
    target: { type: 'string', default: '97' },
    workers: { type: 'string', default: '2' },
    batch: { type: 'string', default: '256' },
    rate: { type: 'string', default: '0.05' },
    steps: { type: 'string', default: '10' },
    every: { type: 'string', default: '10' },
    'most-rounds': { type: 'string', default: '700' },
    repetitions: { type: 'string', default: '1' },
    seeds: { type: 'string', default: '1' },
    only: { type: 'string' },
  },
});
const [target, workers, globalBatch, learningRate, localSteps, every] = /** @type {[number, number, number, number, number, number]} */ (
  [flags.target, flags.workers, flags.batch, flags.rate, flags.steps, flags.every].map(Number)
);
const [seeds, repetitions] = [Number(flags.seeds), Number(flags.repetitions)];
if (!(seeds >= 1 && repetitions >= 1)) throw new Error('give --seeds and --repetitions as whole numbers from 1 on');
const mostRounds = Number(flags['most-rounds']);
const DEADLINE_MS = 1_800_000;
const BAR = { timesFaster: 8, ofBest: 1.2 };
linkOf(flags.link); // says what is wrong with it

/** @typedef {import('@paceline/spec').RunSpecInput} RunSpecInput */
const SERVERS = /** @type {const} */ ({ kind: 'parameter-server', servers: 1, startWorkers: workers });
const LOCAL = /** @type {const} */ ({ kind: 'local-update', servers: 1, startWorkers: workers, localSteps, innerState: 'keep' });
const MOMENTUM = /** @type {const} */ ({ name: 'momentum', learningRate, momentum: 0.9 });
const SPARSE = /** @type {const} */ ({ kind: 'top-k', density: 0.02, values: 'int2', errorFeedback: true });

/** @type {readonly { what: string, input: RunSpecInput }[]} */
const ALL = [
  { what: 'dense', input: { strategy: SERVERS } },
  { what: 'int8, parameters int8', input: { strategy: SERVERS, codec: { kind: 'int8', parameters: 'int8' } } },
  {
    what: 'top-k 2 % in two bits, parameters int8',
    input: { strategy: SERVERS, codec: { ...SPARSE, parameters: 'int8' } },
  },
  {
    what: 'dgc 1 %, parameters int8',
    input: {
      strategy: SERVERS,
      optimizer: { name: 'sgd', learningRate },
      codec: { kind: 'dgc', density: 0.01, warmupRounds: 40, parameters: 'int8' },
    },
  },
  { what: 'local updates', input: { strategy: LOCAL } },
  { what: 'local updates, int8, parameters int8', input: { strategy: LOCAL, codec: { kind: 'int8', parameters: 'int8' } } },
  {
    what: 'local updates, top-k 2 % in two bits, parameters int8',
    input: { strategy: { ...LOCAL, outerLearningRate: 1.5 }, codec: { ...SPARSE, parameters: 'int8' } },
  },
  .../** @type {const} */ (['delta-int4', 'delta-int2', 'delta-top-k']).map((parameters) => ({
    what: `local updates, top-k 2 % in two bits, parameters ${parameters}`,
    input: { strategy: { ...LOCAL, outerLearningRate: 1.5 }, codec: { ...SPARSE, parameters } },
  })),
  { what: 'auto', input: { strategy: SERVERS, codec: { kind: 'auto' } } },
  {
    what: 'auto, local updates allowed',
    input: { strategy: { kind: 'auto', servers: 1, startWorkers: workers, allowedLocalSteps: localSteps }, codec: { kind: 'auto' } },
  },
  { what: 'local updates, auto', input: { strategy: LOCAL, codec: { kind: 'auto' } } },
];
const wanted = flags.only?.split(';');
const RUNS = wanted ? ALL.filter(({ what }) => wanted.includes(what)) : ALL;

/** @param {RunSpecInput} input @returns {RunSpecInput} */
const specOf = (input) => ({
  model: flags.model === 'mlp' ? 'mlp' : 'cnn',
  globalBatch,
  replicas: workers,
  optimizer: MOMENTUM,
  checkpoint: { final: false, everySeconds: 0 },
  ...input,
});

const stepsOf = (/** @type {RunSpecInput} */ { strategy }) => (strategy?.kind === 'local-update' ? localSteps : 1);

/**
 * The rounds that it takes to the target.
 * @param {DataPlane} plane
 * @param {RunSpecInput} input
 */
async function roundsTo(plane, input) {
  const steps = stepsOf(input);
  const run = await plane.train(
    specOf({
      ...input,
      length: { rounds: Math.ceil(mostRounds / steps) },
      validation: { everyRounds: Math.max(1, Math.round(every / steps)) },
      ...(input.codec?.kind === 'auto' ? { link: flags.link } : {}),
    }),
  );
  const reached = () => run.entries.find((entry) => entry.kind === 'metric' && (entry.validation?.values['accuracy'] ?? 0) >= target / 100);
  const isOver = () => run.entries.some(({ kind, ...entry }) => kind === 'event' && 'type' in entry && /^run\.f/.test(entry.type));
  await plane.until(run, `${target} %`, DEADLINE_MS, () => reached() ?? isOver());
  const entry = reached();
  if (!isOver()) {
    await plane.control(run, 'action', 'cancel');
    await plane.ended(run, 60_000);
  }
  return entry?.kind === 'metric'
    ? { rounds: entry.round + 1, isReached: true }
    : { rounds: Math.ceil(mostRounds / steps), isReached: false };
}

/**
 * @param {DataPlane} plane
 * @param {RunSpecInput} input
 * @param {number} rounds
 */
async function timed(plane, input, rounds) {
  const run = await plane.train(specOf({ ...input, length: { rounds }, link: flags.link }));
  await plane.finished(run, DEADLINE_MS);
  const picked = run.entries.find((entry) => entry.kind === 'event' && entry.type === 'codec.picked');
  const { traffic } = run.state ?? {};
  return {
    seconds: secondsOfRounds(run),
    megabytes: ((traffic?.toServersBytes ?? NaN) + (traffic?.toWorkersBytes ?? NaN)) / 1e6,
    picked: picked?.kind === 'event' ? picked.message.slice(0, picked.message.indexOf(':')) : undefined,
  };
}

/**
 * What strategy auto has picked by its first rounds over the link, and how long these took; what names its strategy is as it is.
 * @param {DataPlane} plane
 * @param {RunSpecInput} input
 * @returns {Promise<{ input: RunSpecInput, seconds: number, picked?: string } | undefined>} undefined where it picked what this bench cannot run
 */
async function pickedOf(plane, input) {
  if (input.strategy?.kind !== 'auto') return { input, seconds: 0 };
  const asked = specOf({ ...input, length: { rounds: 100_000 }, link: flags.link });
  const parsed = parseRunSpec(asked);
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.issues));
  const run = await plane.train(asked);
  /** As the api does: the first measures by which something is picked. */
  const found = () => {
    const told = run.entries.flatMap((entry) => (entry.kind === 'event' && entry.type === STRATEGY_MEASURED ? [entry.data] : []));
    for (const data of told) {
      const { isBeforeCodec, ...measured } = exchangeMeasuresSchema.parse(data);
      const pick = isBeforeCodec ? pickLocalUpdates(parsed.spec, measured) : pickStrategy(parsed.spec, measured, workers);
      if (pick) return pick;
    }
    return undefined;
  };
  await plane.until(run, 'what the first rounds take', DEADLINE_MS, () => found() !== undefined);
  const seconds = secondsOfRounds(run, run.entries.findLast((entry) => entry.kind === 'event' && entry.type === STRATEGY_MEASURED)?.atMs);
  await plane.control(run, 'action', 'cancel');
  await plane.ended(run, 60_000);
  const pick = found();
  if (!pick) throw new Error('the first rounds were not measured');
  const { strategy, codec, why } = pick;
  process.stderr.write(`${strategy.kind}: ${why}\n`);
  if (strategy.kind === 'multi-worker-mirrored') return undefined; // its workers hold the shards, and here parameter servers do
  return { input: { ...input, strategy, codec: codec ?? input.codec }, seconds, picked: strategy.kind };
}

/**
 * From the first round to the commit of the last one.
 * @param {Awaited<ReturnType<DataPlane['train']>>} run
 * @param {number} [untilMs] or until then, where that is later
 */
function secondsOfRounds(run, untilMs = 0) {
  const metrics = run.entries.flatMap((entry) => (entry.kind === 'metric' ? [entry] : []));
  const [first, last] = [metrics[0], metrics.at(-1)];
  if (!first || !last) throw new Error('the run has told no round');
  return (Math.max(last.atMs, untilMs) - first.atMs + first.roundMs) / 1000;
}

/** @param {number} value */
const rounded = (value) => Number(value.toFixed(2));
const plane = await DataPlane.start({ servers: 1, workers });
const rows = [];

/**
 * Undefined where the bench cannot run what was picked.
 * @param {string} what
 * @param {RunSpecInput} asked
 */
async function ofSeed(what, asked) {
  const probe = await pickedOf(plane, asked);
  if (!probe) {
    process.stderr.write(`${what}: left out, as this bench has parameter servers alone: give more --steps, or a slower --link\n`);
    return undefined;
  }
  const { input } = probe;
  const { rounds, isReached } = await roundsTo(plane, input);
  process.stderr.write(`${what}, seed ${asked.seed}: ${isReached ? '' : 'not '}reached after ${rounds} rounds\n`);
  const times = [];
  for (let i = 0; i < repetitions; i++) {
    const { seconds, ...more } = await timed(plane, input, rounds);
    const picked = probe.picked ?? more.picked;
    process.stderr.write(`${what}, seed ${asked.seed}: ${(probe.seconds + seconds).toFixed(1)} s${picked ? `, ${picked}` : ''}\n`);
    const ofRound = { rounds, steps: rounds * stepsOf(input), milliseconds: (1000 * seconds) / rounds };
    times.push({ ...more, ...ofRound, isReached, picked, seconds: probe.seconds + seconds });
  }
  return times;
}

try {
  for (const { what, input } of RUNS) {
    /** @type {NonNullable<Awaited<ReturnType<typeof ofSeed>>>} */
    const times = [];
    for (let seed = 1; seed <= seeds; seed++) times.push(...((await ofSeed(what, { ...input, seed })) ?? []));
    if (times.length < seeds * repetitions) continue;
    /** @param {(run: (typeof times)[number]) => number} of */
    const middle = (of) => rounded(median(times.map(of)));
    const picked = [...new Set(times.flatMap((run) => run.picked ?? []))].join(' or ');
    rows.push({
      what,
      isReached: times.every(({ isReached }) => isReached),
      rounds: middle(({ rounds }) => rounds),
      steps: middle(({ steps }) => steps),
      seconds: middle(({ seconds }) => seconds),
      millisecondsOfRound: Math.round(middle(({ milliseconds }) => milliseconds)),
      megabytes: middle(({ megabytes }) => megabytes),
      ...(picked ? { picked } : {}),
    });
  }
} finally {
  await plane.stop();
}
const reached = rows.filter(({ isReached }) => isReached);
/** The seconds of a row that reached the target; NaN, which meets no bar, where it did not. @param {string} name */
const secondsOf = (name) => reached.find(({ what }) => what === name)?.seconds ?? NaN;
const dense = secondsOf('dense');
const AUTO = wanted && !wanted.includes('auto') ? 'auto, local updates allowed' : 'auto';
const auto = secondsOf(AUTO);
const best = Math.min(...reached.map(({ seconds }) => seconds));
const compared = rows.map((row) =>
  Object.assign(row, row.isReached ? { timesFaster: rounded(dense / row.seconds), ofBest: rounded(row.seconds / best) } : {}),
);
if (flags.json) console.log(JSON.stringify({ bench: 'time-to-accuracy', rows: compared }));
else console.table(compared);
if (flags.check) {
  for (const [name, seconds] of Object.entries({ dense, [AUTO]: auto }))
    if (Number.isNaN(seconds)) console.error(`the row ${name} was left out or did not reach ${target} %: its bar is missed`);
  if (!Number.isNaN(dense + auto))
    console.error(
      `the fastest is ${rounded(dense / best)} times as fast as dense (bar ${BAR.timesFaster}), ${AUTO} takes ${rounded(auto / best)} of its time (bar ${BAR.ofBest})`,
    );
  const isMet = dense / best >= BAR.timesFaster && auto / best <= BAR.ofBest;
  if (!isMet) process.exitCode = 1;
}
