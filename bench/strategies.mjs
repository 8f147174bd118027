/**
 * bench strategies: a model by each synchronous strategy of runs on the same workers, examples per second and processor time
 *
 * Every repetition trains new runs in turn on one stack, the MLP 784-256-128-10, the CNN or six dense layers of 1,024 units (`--model mlp`, `cnn` or `deep`) with 128
 * examples per replica and round, and as many replicas as `--workers`, or `--replicas` of them: over `--servers` parameter servers with all workers and with one, with workers that hold the parameters, and with one worker that
 * has a compute thread for each replica, over parameter servers (hybrid) and without them (mirrored), without them in rounds of
 * `--steps-per-execution` steps (tpu), or one for each of two stages (model-parallel). Placement and the first rounds belong to the set-up and
 * not to the figure: examples of the rounds after those / time from their beginning to the last commit, as the coordinator dated them. Figures are the medians
 * of the repetitions. The parameter servers and all workers are there all the time, but some runs leave them without work. cpuMs is the processor time of all
 * of them for a thousand examples, from the first round after the set-up that was seen to the end (Linux). workerPeakMB is the largest resident memory of a worker
 * in a run (VmHWM, Linux). It is told where `--only` leaves one row: a process keeps memory of the runs before. `--only` takes some kinds of strategies.
 * `--engine wasm,tensorflow` measures each of them with each of these engines, in turn, and leaves out what a spec refuses with that engine (tensorflow computes in one thread of
 * a process); tensorflow needs `paceline engine install tensorflow`.
 *
 * With `--peer-python PYTHON --peer-folder FOLDER` each repetition also runs the peer scripts (`--peers`), with the same number of steps and the same batch per worker: PyTorch's
 * DistributedDataParallel (torch_ddp.py) and TensorFlow's MultiWorkerMirroredStrategy (tf_mwms.py). With `--check` it exits with 1 when multi-worker-mirrored is slower than
 * PyTorch with the MLP, or than TensorFlow with the CNN.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { parseRunSpec, roundGrid, roundsOf } from '@paceline/spec';
import { tensorflowEngines } from '@paceline/tensorflow-addon';
import { Stack } from '@paceline/testkit';
import { median } from './median.mjs';
import { peerFigure } from './peers.mjs';

const { values: flags } = parseArgs({
  options: {
    json: { type: 'boolean', default: false },
    model: { type: 'string', default: 'mlp' },
    engine: { type: 'string', default: 'wasm' },
    workers: { type: 'string', default: '2' },
    replicas: { type: 'string' },
    only: { type: 'string' },
    servers: { type: 'string', default: '1' },
    batch: { type: 'string', default: '128' },
    rounds: { type: 'string', default: '1200' },
    'steps-per-execution': { type: 'string', default: '20' },
    repetitions: { type: 'string', default: '3' },
    check: { type: 'boolean', default: false },
    'peer-python': { type: 'string' },
    'peer-folder': { type: 'string' },
    peers: { type: 'string', default: 'torch_ddp,tf_mwms' },
  },
});
const [workers, servers, batch] = [Number(flags.workers), Number(flags.servers), Number(flags.batch)];
const replicas = Number(flags.replicas ?? workers);
const model = flags.model === 'cnn' || flags.model === 'deep' ? flags.model : 'mlp';
const UNITS = 1024;
/** Six million parameters in layers of about the same size, so that a copy of it weighs something. */
const DEEP = {
  topology: {
    class_name: 'Sequential',
    config: {
      layers: [
        { class_name: 'Flatten', config: { batch_input_shape: [null, 28, 28, 1] } },
        ...Array.from({ length: 6 }, () => ({ class_name: 'Dense', config: { units: UNITS, activation: 'relu' } })),
        { class_name: 'Dense', config: { units: 10, activation: 'softmax' } },
      ],
    },
  },
};
const WARM_UP_STEPS = 20;
/** What is measured begins with one round and ends with another. */
const FEWEST_ROUNDS = 2;
const steps = WARM_UP_STEPS + Number(flags.rounds);
const stepsPerExecution = Number(flags['steps-per-execution']);
const DEADLINE_MS = 300_000;
/** Examples of the training split. */
const MNIST_EXAMPLES = 60_000;
/** /proc counts processor time in hundredths of a second. */
const TICK_MS = 10;

/** @typedef {NonNullable<import('@paceline/spec').RunSpecInput['engine']>} Engine */
/** @typedef {{ strategy: NonNullable<import('@paceline/spec').RunSpecInput['strategy']>, workers: number, threads: number }} Kind */
/** @typedef {Kind & { engine: Engine }} Row */
/** @type {readonly Engine[]} */
const ENGINES = ['wasm', 'wasm-relaxed', 'tensorflow'];
const engines = flags.engine.split(',').map((given) => {
  const engine = ENGINES.find((each) => each === given);
  if (!engine) throw new Error(`--engine takes ${ENGINES.join(', ')}, not "${given}"`);
  return engine;
});
if (engines.includes('tensorflow') && tensorflowEngines().length === 0)
  throw new Error('TensorFlow is not installed here: npx paceline engine install tensorflow');
/** @type {readonly Kind[]} */
const ALL_ROWS = [
  { strategy: { kind: 'parameter-server', servers, startWorkers: workers }, workers, threads: 1 },
  { strategy: { kind: 'parameter-server', servers }, workers: 1, threads: 1 },
  { strategy: { kind: 'multi-worker-mirrored', workers }, workers, threads: 1 },
  { strategy: { kind: 'hybrid', servers, threads: workers }, workers: 1, threads: workers },
  { strategy: { kind: 'mirrored', threads: workers }, workers: 1, threads: workers },
  { strategy: { kind: 'tpu', threads: workers, stepsPerExecution }, workers: 1, threads: workers },
  ...(workers > 1 ? [/** @type {const} */ ({ strategy: { kind: 'model-parallel', stages: 2 }, workers: 1, threads: 2 })] : []),
];

/**
 * @param {Row} row
 * @param {{ rounds: number, seed: number }} what
 * @returns {import('@paceline/spec').RunSpecInput}
 */
const inputOf = ({ engine, strategy }, { rounds, seed }) => ({
  model: model === 'deep' ? DEEP : model,
  engine,
  globalBatch: batch * replicas,
  replicas,
  length: { rounds },
  seed,
  strategy,
  optimizer: { name: 'sgd', learningRate: 0.1 },
  checkpoint: { final: false, everySeconds: 0 },
});

/**
 * Whether it is the engine with which no spec can have this strategy. What is wrong with any engine is said when the row is trained.
 * @param {Row} row
 */
function isRefused(row) {
  const [own, wasm] = [row, { ...row, engine: /** @type {const} */ ('wasm') }].map((each) =>
    parseRunSpec(inputOf(each, { rounds: 1, seed: 0 })),
  );
  if (!own || own.ok || !wasm?.ok) return false;
  process.stderr.write(
    `${row.strategy.kind} with engine ${row.engine} is left out: ${own.issues.map(({ message }) => message).join('; ')}\n`,
  );
  return true;
}

const ROWS = ALL_ROWS.filter(({ strategy: { kind } }) => flags.only === undefined || flags.only.split(',').includes(kind))
  .flatMap((row) => engines.map((engine) => ({ ...row, engine })))
  .filter((row) => !isRefused(row));
if (ROWS.length === 0 && flags['peer-python'] === undefined) throw new Error('no strategy is left to be measured: see --only and --engine');

/** The names of the peers in the table. */
const PEERS = /** @type {Readonly<Record<string, string>>} */ ({
  torch_ddp: 'pytorch DistributedDataParallel gloo',
  tf_mwms: 'tensorflow MultiWorkerMirroredStrategy',
});
const python = flags['peer-python'];
const peers = python === undefined ? [] : flags.peers.split(',');
for (const script of peers) if (!PEERS[script]) throw new Error(`--peers takes ${Object.keys(PEERS).join(', ')}, not "${script}"`);
/** Whom all-reduce is held against. */
const BESIDE = model === 'mlp' ? 'torch_ddp' : 'tf_mwms';

/**
 * Processor time of all workers and servers.
 * @param {Stack} stack
 */
function cpuMs(stack) {
  let ticks = 0;
  for (const { child } of [...stack.workers, ...stack.servers]) {
    const text = readFileSync(`/proc/${child.pid}/stat`, 'latin1');
    const fields = text.slice(text.lastIndexOf(') ') + 2).split(' ');
    ticks += Number(fields[11]) + Number(fields[12]);
  }
  return ticks * TICK_MS;
}

/**
 * The most resident memory of a worker since `forget`, in MiB (Linux).
 * @param {Stack} stack
 */
function peakMB(stack) {
  const peaks = stack.workers.map(({ child }) => {
    const kilobytes = /^VmHWM:\s+(?<kB>\d+) kB$/mu.exec(readFileSync(`/proc/${child.pid}/status`, 'latin1'))?.groups?.['kB'];
    return Number(kilobytes) / 1024;
  });
  return Math.round(Math.max(...peaks));
}

/** @param {Stack} stack */
function forgetPeaks(stack) {
  for (const { child } of stack.workers) writeFileSync(`/proc/${child.pid}/clear_refs`, '5');
}

/**
 * @param {Stack} stack
 * @param {Row} row
 * @param {number} seed
 */
async function trained(stack, row, seed) {
  const { kind } = row.strategy;
  const stepsOfRound = kind === 'tpu' ? stepsPerExecution : 1;
  const warmUp = Math.ceil(WARM_UP_STEPS / stepsOfRound);
  const rounds = Math.max(warmUp + FEWEST_ROUNDS, Math.ceil(steps / stepsOfRound));
  forgetPeaks(stack);
  const input = inputOf(row, { rounds, seed });
  const parsed = parseRunSpec(input);
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.issues));
  // A round ends with its epoch, so the last one of an epoch may have fewer examples.
  const { examplesIn } = roundGrid(roundsOf(parsed.spec, MNIST_EXAMPLES));
  const examplesBetween = (/** @type {number} */ from, /** @type {number} */ to) => examplesIn(to) - examplesIn(from);
  const { id } = await stack.client.createRun(input);
  if (row.workers < workers && (kind === 'parameter-server' || kind === 'hybrid')) await stack.client.scaleRun(id, row.workers);
  /** @type {{ round: number, ms: number } | undefined} */
  let begun;
  let endMs = 0;
  await stack.until(`a run of ${kind} to end`, DEADLINE_MS, async () => {
    const run = await stack.client.run(id);
    if (run?.status === 'FAILED') throw new Error(run.statusReason ?? 'it failed');
    endMs = cpuMs(stack);
    if (run && run.progress.round >= warmUp) begun ??= { round: run.progress.round, ms: endMs };
    return run?.status === 'SUCCEEDED';
  });
  const [series] = await stack.client.metrics(id, { names: ['loss'], fromRound: warmUp, maxPoints: 2_000 });
  const [first, last] = [series?.points[0], series?.points.at(-1)];
  if (!first || !last || last === first || !begun) throw new Error('too few rounds came to be measured: give more with --rounds');
  return {
    // The time of a round ends with it: that of `first` is not in the figure.
    speed: (examplesBetween(first.round + 1, last.round + 1) * 1000) / (last.atMs - first.atMs),
    peak: peakMB(stack),
    cpu: (endMs - begun.ms) / (examplesBetween(Math.min(begun.round, rounds - 1), rounds) / 1000),
  };
}

const stack = await Stack.start({ servers, workers: 0 });
const home = process.env.PACELINE_HOME;
/** @type {{ speed: number, cpu: number, peak: number }[][]} */
const figures = ROWS.map(() => []);
/** @type {Map<string, number[]>} */
const ofPeers = new Map(peers.map((script) => [script, []]));
try {
  await Promise.all(Array.from({ length: workers }, () => stack.addWorker(home ? { PACELINE_HOME: home } : {})));
  for (let repetition = 0; repetition < Number(flags.repetitions); repetition++) {
    for (const [i, row] of ROWS.entries()) figures[i]?.push(await trained(stack, row, repetition));
    for (const [script, speeds] of ofPeers) {
      const given = { python: python ?? '', folder: flags['peer-folder'] };
      speeds.push(await peerFigure(given, script, [model, workers, flags.rounds, batch], 'examples/s'));
    }
  }
} finally {
  await stack.stop();
}
/** @param {number[]} speeds */
const speedOf = (speeds) => ({
  examplesPerSecond: Math.round(median(speeds)),
  lowest: Math.round(Math.min(...speeds)),
  highest: Math.round(Math.max(...speeds)),
});
const beside = ofPeers.get(BESIDE);
if (flags.check && !beside)
  throw new Error(`--check holds multi-worker-mirrored to ${BESIDE}.py: give --peer-python and --peer-folder, and leave it in --peers`);
const own = ROWS.map(({ strategy: { kind }, ...size }, i) => {
  const speed = speedOf((figures[i] ?? []).map((figure) => figure.speed));
  const cpu = Math.round(median((figures[i] ?? []).map((figure) => figure.cpu)));
  const times = beside && speed.examplesPerSecond / median(beside);
  const isHeld = kind === 'multi-worker-mirrored' && times !== undefined;
  return {
    strategy: kind,
    model,
    ...size,
    ...speed,
    cpuMs: cpu,
    ...(ROWS.length === 1 && { workerPeakMB: Math.round(median((figures[i] ?? []).map(({ peak }) => peak))) }),
    ...(times !== undefined && { [model === 'mlp' ? 'timesPytorch' : 'timesTensorflow']: Number(times.toFixed(2)) }),
    ...(isHeld && { holds: times >= 1 }),
  };
});
const rows = [...own, ...[...ofPeers].map(([script, speeds]) => ({ strategy: PEERS[script], model, workers, ...speedOf(speeds) }))];
if (flags.check && own.some((row) => row.holds === false)) process.exitCode = 1;
if (flags.json) console.log(JSON.stringify({ bench: 'strategies', rows }));
else console.table(rows);
