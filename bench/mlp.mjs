/**
 * bench mlp: MNIST MLP or CNN by parameter server on real processes, examples per second, beside TensorFlow's own
 *
 * Every repetition trains a new run (the MLP 784-256-128-10 or, with `--model cnn`, the CNN 32c3-p-64c3-p-128-10; 128 examples per worker
 * and round) on one server and the given workers, once with each of `--engine` in each of `--mode` (sync, async). Redis, placement and the first
 * rounds belong to the set-up and not to the figure: examples of the rounds after those / time from their beginning to the last commit. With
 * `--peer-python PYTHON --peer-folder FOLDER` the peer scripts (tf_ps.py, torch_ddp.py) run in turn with it in each repetition, on the same batch per
 * worker and as many batches. TensorFlow's ParameterServerStrategy is asynchronous: `--mode async` is the same work, sync waits for the slower
 * worker in every round. The figure is the median of the repetitions. With `--check` it exits with 1 when a bar is missed: over the peers that run,
 * and of efficiency and processor time where they are measured; `missed` names them.
 *
 * `efficiency` is the figure ÷ (workers × the engine alone on one thread, measured in the same repetition); `cpuMs…` is the processor time of a round by
 * role: the server, a worker's main thread, and its other threads, of which computing is the most (Linux). `cpuMsBeside` is that of all servers and
 * workers without the gradients, as the engine alone computes them. On a busy machine compare these. `--engine wasm,tensorflow` needs `paceline engine install tensorflow`.
 *
 * With `--stack` the MLP is trained with wasm in mode sync on the whole local stack, with an api, PostgreSQL and Redis, while the page of the run in the dashboard asks for
 * what it asks for in a browser. Each run is measured for `--seconds`, after 0.8 times as many. `cpuMs…` is then the processor time of a round by role (of workers a mean), and `cpuMsBeside`
 * that of all processes without the gradients. Three runs are measured, or those of `--paces`: `free` with batches of `--batch`, and two that a link's delay paces, `slow` with 2 rounds a second
 * and `quick` with about 100. `…MsPerSecond` is what the control plane takes in a second; `timesSlow` is that of the api and PostgreSQL in the quick run ÷ in the slow one.
 * The bars: `free` takes at most 0.2 ms of the api and 6 ms beside the gradients, and `timesSlow` is at most 1.1.
 */
import { parseArgs } from 'node:util';
import { tensorflowEngines } from '@paceline/tensorflow-addon';
import { DataPlane } from '@paceline/testkit';
import { engineAlone } from './engine-alone.mjs';
import { median } from './median.mjs';
import { stackRows } from './mlp-stack.mjs';
import { peerFigure } from './peers.mjs';
import { threadTimes } from './thread-times.mjs';

const { values: flags } = parseArgs({
  options: {
    json: { type: 'boolean', default: false },
    check: { type: 'boolean', default: false },
    model: { type: 'string', default: 'mlp' },
    engine: { type: 'string', default: 'wasm' },
    mode: { type: 'string', default: 'sync' },
    workers: { type: 'string', default: '2' },
    servers: { type: 'string', default: '1' },
    batch: { type: 'string', default: '128' },
    rounds: { type: 'string' },
    repetitions: { type: 'string', default: '5' },
    transport: { type: 'string', default: 'auto' },
    stack: { type: 'boolean', default: false },
    seconds: { type: 'string', default: '20' },
    paces: { type: 'string', default: 'free,slow,quick' },
    'peer-python': { type: 'string' },
    'peer-folder': { type: 'string' },
    peers: { type: 'string', default: 'tf_ps,torch_ddp' },
  },
});
const workers = Number(flags.workers);
const servers = Number(flags.servers);
const batch = Number(flags.batch);

/** Some seconds each: a new run's threads compile their JavaScript in the first of them. */
const ROUNDS = { mlp: 1200, cnn: 120 };
/** @typedef {keyof typeof ROUNDS} Model */
/** @param {Model} model */
const roundsOf = (model) => Number(flags.rounds ?? ROUNDS[model]);

/**
 * One of the values that a flag takes.
 * @template {string} Value
 * @param {string} flag
 * @param {readonly Value[]} values
 * @param {string} given
 * @returns {Value}
 */
function oneOf(flag, values, given) {
  const found = values.find((value) => value === given);
  if (found === undefined) throw new Error(`--${flag} takes ${values.join(', ')}, not "${given}"`);
  return found;
}
/** As many as the peers take before their clock starts; all workers have their seats by then. */
const WARM_UP_ROUNDS = 20;
/** Processor times are read after this share of the rounds. */
const CPU_SHARE = 0.6;
/** @typedef {{ timesTensorflow?: number, timesPytorch?: number, efficiency?: number, cpuMsBeside?: number }} Bars the last is a most, the others are a least */
/** @type {Readonly<Record<string, Bars>>} */
const BARS = {
  'mlp wasm': { timesTensorflow: 2.5, timesPytorch: 1, efficiency: 0.6, cpuMsBeside: 6 },
  'mlp wasm-relaxed': { timesTensorflow: 2.5, timesPytorch: 1 },
  'cnn wasm': { timesTensorflow: 1.2, efficiency: 0.85 },
  'cnn tensorflow': { timesTensorflow: 1.5 },
};
/**
 * The bars that a row misses, by name; those of what was not measured are not looked at.
 * @param {Bars} bars
 * @param {Bars} row
 */
const missedBy = (bars, row) =>
  /** @type {(keyof Bars)[]} */ (Object.keys(bars)).filter((name) => {
    const [bar, value] = [bars[name], row[name]];
    if (bar === undefined || value === undefined) return false;
    return name === 'cpuMsBeside' ? value > bar : value < bar;
  });
/** @type {Readonly<Record<string, string>>} */
const PEERS = { tf_ps: 'tensorflow ParameterServerStrategy', torch_ddp: 'pytorch DistributedDataParallel gloo' };

/** @typedef {{ engine: NonNullable<import('@paceline/spec').RunSpecInput['engine']>, mode: 'sync' | 'async' | 'ssp' }} Kind */

/**
 * @param {DataPlane} plane
 * @param {Model} model
 * @param {Kind} kind
 * @param {number} seed
 */
async function ours(plane, model, { engine, mode }, seed) {
  const view = await plane.train({
    model,
    engine,
    globalBatch: batch * workers,
    replicas: workers,
    length: { rounds: WARM_UP_ROUNDS + roundsOf(model) },
    seed,
    optimizer: { name: 'sgd', learningRate: 0.1 },
    strategy: { kind: 'parameter-server', mode, servers },
    checkpoint: { final: false },
  });
  const before = await timesAt(plane, view, WARM_UP_ROUNDS);
  // Well before the end: a thread that has ended takes its time with it.
  const after = await timesAt(plane, view, WARM_UP_ROUNDS + Math.floor(roundsOf(model) * CPU_SHARE));
  await plane.finished(view, 300_000);
  const commits = view.entries.filter((entry) => entry.kind === 'metric');
  const [first, last] = [commits.find(({ round }) => round >= WARM_UP_ROUNDS - 1), commits.at(-1)];
  if (!first || !last || last === first) throw new Error('too few rounds came to be measured: give more with --rounds');
  const examplesPerSecond = ((last.round - first.round) * batch * workers * 1000) / (last.atMs - first.atMs);
  return { examplesPerSecond, cpuMs: cpuMsOf(before, after) };
}

/** @typedef {{ round: number, servers: (ThreadTimes | undefined)[], workers: (ThreadTimes | undefined)[] }} TimesAt */
/** @typedef {import('./thread-times.mjs').ThreadTimes} ThreadTimes */
/** @typedef {{ server: number, workerMain: number, workerOthers: number }} CpuMs of a round; a mean over servers or workers */

/**
 * Processor times at the first moment at which this round is known to be committed.
 * @param {DataPlane} plane
 * @param {Awaited<ReturnType<DataPlane['train']>>} view
 * @param {number} round
 * @returns {Promise<TimesAt>}
 */
async function timesAt(plane, view, round) {
  const newest = () => view.entries.findLast((entry) => entry.kind === 'metric')?.round ?? -1;
  await plane.until(view, `round ${round}`, 300_000, () => newest() >= round);
  const ofAll = (/** @type {DataPlane['servers']} */ processes) => processes.map(({ child }) => threadTimes(child.pid));
  return { round: newest(), servers: ofAll(plane.servers), workers: ofAll(plane.workers) };
}

/**
 * @param {TimesAt} before
 * @param {TimesAt} after
 * @returns {CpuMs | undefined} undefined where the system does not say
 */
function cpuMsOf(before, after) {
  const rounds = after.round - before.round;
  if (rounds < 1) return undefined;
  /**
   * @param {'servers' | 'workers'} role
   * @param {(times: ThreadTimes) => number} of
   */
  const mean = (role, of) => {
    const spent = after[role].map((times, i) => {
      const earlier = before[role][i];
      return times && earlier ? of(times) - of(earlier) : Number.NaN;
    });
    return spent.reduce((sum, ms) => sum + ms, 0) / spent.length / rounds;
  };
  const cpuMs = {
    server: mean('servers', ({ mainMs, othersMs }) => mainMs + othersMs),
    workerMain: mean('workers', ({ mainMs }) => mainMs),
    workerOthers: mean('workers', ({ othersMs }) => othersMs),
  };
  return Number.isFinite(cpuMs.server + cpuMs.workerMain + cpuMs.workerOthers) ? cpuMs : undefined;
}

/**
 * TensorFlow's steps are of one worker each, PyTorch's of all.
 * @param {string} python
 * @param {string} script
 * @param {Model} model
 */
function peer(python, script, model) {
  const steps = roundsOf(model) * (script === 'tf_ps' ? workers : 1);
  return peerFigure({ python, folder: flags['peer-folder'] }, script, [model, flags.workers, steps, flags.batch], 'examples/s');
}

const models = flags.model.split(',').map((model) => oneOf('model', /** @type {Model[]} */ (Object.keys(ROUNDS)), model));
/** @type {readonly Kind['mode'][]} */
const MODES = ['sync', 'async', 'ssp'];
const modes = flags.mode.split(',').map((mode) => oneOf('mode', MODES, mode));
/** @type {readonly DataPlane['transport'][]} */
const TRANSPORTS = ['auto', 'unix', 'tcp'];
const transport = oneOf('transport', TRANSPORTS, flags.transport);
/** @type {readonly Kind['engine'][]} */
const ENGINES = ['wasm', 'wasm-relaxed', 'tensorflow', 'webgpu', 'cpu', 'auto', 'mixed'];
if (flags.stack) {
  const [seconds, repetitions] = [Number(flags.seconds), Number(flags.repetitions)];
  const rows = await stackRows({ servers, workers, batch, seconds, repetitions, transport, paces: flags.paces });
  if (flags.json) console.log(JSON.stringify({ bench: 'mlp', rows }));
  else console.table(rows);
  process.exit(flags.check && rows.some(({ holds }) => !holds) ? 1 : 0);
}
const engines = flags.engine.split(',').map((engine) => oneOf('engine', ENGINES, engine));
/**
 * What is measured of ours, by the name of its row.
 * @type {Map<string, Kind>}
 */
const kinds = new Map();
for (const mode of modes) for (const engine of engines) kinds.set(`${mode}, ${engine}`, { engine, mode });
if (engines.includes('tensorflow') && tensorflowEngines().length === 0)
  throw new Error('TensorFlow is not installed here: npx paceline engine install tensorflow');
const python = flags['peer-python'];
const peers = python === undefined ? [] : flags.peers.split(',');
if (flags.check && !peers.includes('tf_ps'))
  throw new Error(`--check holds the figures to ${PEERS['tf_ps']}: name its --peer-python and --peer-folder`);

/**
 * By model, then by engine or peer.
 * @type {Map<Model, Map<string, number[]>>}
 */
const measured = new Map();
/**
 * @param {Model} model
 * @param {string} what
 * @param {number} value
 */
const note = (model, what, value) => {
  const values = measured.get(model) ?? new Map();
  measured.set(model, values.set(what, [...(values.get(what) ?? []), value]));
  process.stderr.write(`${model} ${PEERS[what] ?? `paceline, ${what}`}: ${Math.round(value)} examples/s\n`);
};
/**
 * Of each kind, by model: processor times of rounds, and the engine alone where it is one that computes in this process.
 * @type {Map<string, CpuMs[]>}
 */
const cpuTimes = new Map();
/** @type {Map<string, { examplesPerSecond: number, cpuMs: number }[]>} */
const alone = new Map();
/** @type {Map<string, Awaited<ReturnType<typeof engineAlone>>>} */
const engineMeters = new Map();
/**
 * @template T
 * @param {Map<string, T[]>} map
 * @param {string} key
 * @param {T} value
 */
const append = (map, key, value) => void map.set(key, [...(map.get(key) ?? []), value]);
/**
 * @param {DataPlane} plane
 * @param {Model} model
 * @param {string} what
 * @param {Kind} kind
 * @param {number} seed
 */
async function repetition(plane, model, what, kind, seed) {
  const { examplesPerSecond, cpuMs } = await ours(plane, model, kind, seed);
  note(model, what, examplesPerSecond);
  if (cpuMs) append(cpuTimes, `${model} ${what}`, cpuMs);
  if (kind.engine !== 'wasm') return;
  const measure = engineMeters.get(model) ?? (await engineAlone({ model, engine: kind.engine }, batch));
  engineMeters.set(model, measure);
  append(alone, `${model} ${what}`, measure());
}
const home = process.env.PACELINE_HOME;
const plane = await DataPlane.start({ servers, workers, transport, workerEnv: home ? { PACELINE_HOME: home } : {} });
try {
  for (const model of models) for (const kind of kinds.values()) await ours(plane, model, kind, 1); // the first run warms the processes
  for (let i = 0; i < Number(flags.repetitions); i++) {
    for (const model of models) {
      for (const [what, kind] of kinds) await repetition(plane, model, what, kind, i);
      if (python !== undefined) for (const script of peers) note(model, script, await peer(python, script, model));
    }
  }
} finally {
  await plane.stop();
}
/** @param {number} value */
const rounded = (value) => Number(value.toFixed(2));
/** @type {Readonly<Record<string, 'timesTensorflow' | 'timesPytorch'>>} */
const TIMES = { tf_ps: 'timesTensorflow', torch_ddp: 'timesPytorch' };
/**
 * @param {number} examplesPerSecond
 * @param {Map<string, number[]>} values
 * @returns {Bars}
 */
const timesOf = (examplesPerSecond, values) =>
  Object.fromEntries(
    Object.entries(TIMES).flatMap(([peerName, name]) => {
      const figures = values.get(peerName);
      return figures ? [[name, rounded(examplesPerSecond / median(figures))]] : [];
    }),
  );
/**
 * What a round takes beside its gradients.
 * @param {{ cpuMsServer: number, cpuMsWorkerMain: number, cpuMsWorkerOthers: number }} cpu
 * @param {number} gradientMs of one worker
 */
const besideMs = ({ cpuMsServer, cpuMsWorkerMain, cpuMsWorkerOthers }, gradientMs) =>
  servers * cpuMsServer + workers * (cpuMsWorkerMain + cpuMsWorkerOthers - gradientMs);
const rows = models.flatMap((model) => {
  const values = measured.get(model) ?? new Map();
  return [...values].map(([what, figures]) => {
    const examplesPerSecond = median(figures);
    const kind = kinds.get(what);
    const ofAlone = alone.get(`${model} ${what}`);
    const times = cpuTimes.get(`${model} ${what}`);
    /** @param {keyof CpuMs} role */
    const cpuMs = (role) => Number(median((times ?? []).map((each) => each[role])).toFixed(2));
    const cpu = times && { cpuMsServer: cpuMs('server'), cpuMsWorkerMain: cpuMs('workerMain'), cpuMsWorkerOthers: cpuMs('workerOthers') };
    const gradientMs = ofAlone && median(ofAlone.map((each) => each.cpuMs));
    const row = {
      what: PEERS[what] ?? `paceline parameter-server ${what}`,
      model,
      workers,
      servers,
      batchPerWorker: batch,
      repetitions: figures.length,
      examplesPerSecond: Math.round(examplesPerSecond),
      lowest: Math.round(Math.min(...figures)),
      highest: Math.round(Math.max(...figures)),
      ...(ofAlone ? { efficiency: rounded(examplesPerSecond / workers / median(ofAlone.map((each) => each.examplesPerSecond))) } : {}),
      ...cpu,
      ...(cpu && gradientMs !== undefined ? { cpuMsGradient: rounded(gradientMs), cpuMsBeside: rounded(besideMs(cpu, gradientMs)) } : {}),
      ...(kind ? timesOf(examplesPerSecond, values) : {}),
    };
    const bars = kind && BARS[`${model} ${kind.engine}`];
    const missed = bars && missedBy(bars, row);
    return { ...row, ...(missed ? { missed: missed.map((name) => `${name} ${bars[name]}`).join(', '), holds: missed.length === 0 } : {}) };
  });
});
if (flags.json) console.log(JSON.stringify({ bench: 'mlp', rows }));
else console.table(rows);
process.exit(flags.check && rows.some(({ holds }) => holds === false) ? 1 : 0);
