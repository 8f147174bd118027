/**
 * bench large: SGD and Adam on large models: examples per second, and the peak memory of each process beside what it is planned to be
 *
 * Trains dense layers of equal width with about `--parameters` parameters on rows of Iris, by parameter server on real processes, with new
 * processes for each optimizer. `examplesPerSecond` is over the rounds after the first. `peakMB` is the largest resident memory that a process ever had (VmHWM,
 * Linux), `tableMB` what docs/ARCHITECTURE.md (Memory) says: `--worker-base` or `--server-base` for code and engine, and the vectors
 * that it holds of the model. With `--check` it exits with 1 when a process takes more than `--within` times that.
 */
import { readFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { createOptimizer } from '@paceline/learning';
import { serverBytes, workerBytes } from '@paceline/spec';
import { DataPlane } from '@paceline/testkit';

const { values: flags } = parseArgs({
  options: {
    json: { type: 'boolean', default: false },
    check: { type: 'boolean', default: false },
    parameters: { type: 'string', default: '16777216' },
    width: { type: 'string', default: '2048' },
    optimizers: { type: 'string', default: 'sgd,adam' },
    engine: { type: 'string', default: 'wasm' },
    workers: { type: 'string', default: '1' },
    servers: { type: 'string', default: '1' },
    mode: { type: 'string', default: 'sync' },
    batch: { type: 'string', default: '8' },
    rounds: { type: 'string', default: '6' },
    'worker-base': { type: 'string', default: '160' },
    'server-base': { type: 'string', default: '100' },
    within: { type: 'string', default: '1.2' },
  },
});
const [parameters = 0, width = 0, workers = 0, servers = 0, batch = 0, rounds = 0, workerBaseMB = 0, serverBaseMB = 0, within = 0] = [
  flags.parameters,
  flags.width,
  flags.workers,
  flags.servers,
  flags.batch,
  flags.rounds,
  flags['worker-base'],
  flags['server-base'],
  flags.within,
].map(Number);
const mode = /** @type {'sync' | 'async' | 'ssp'} */ (flags.mode);
const MEBIBYTE = 2 ** 20;
const DEADLINE_MS = 1_800_000;

/** Iris has four features and three classes. Layers of `width`, and the last one narrower, so that no more than `--parameters` come together. */
function layers() {
  const widths = [];
  let [before, left] = [4, parameters - 3 * (width + 1)];
  while (left > before + 1) {
    const units = Math.min(width, Math.floor(left / (before + 1)));
    if (units < 4) break;
    widths.push(units);
    left -= (before + 1) * units;
    before = units;
  }
  return widths;
}

/** @type {import('@paceline/spec').RunSpecInput['model']} */
const model = {
  topology: {
    class_name: 'Sequential',
    config: {
      layers: [
        { class_name: 'InputLayer', config: { batch_input_shape: [null, 4] } },
        ...layers().map((units) => ({ class_name: 'Dense', config: { units, activation: 'relu' } })),
        { class_name: 'Dense', config: { units: 3, activation: 'softmax' } },
      ],
    },
  },
};

/**
 * The most resident memory so far, in MiB; undefined where the system does not say.
 * @param {number | undefined} pid
 */
function peakMB(pid) {
  try {
    const kilobytes = /^VmHWM:\s+(?<kB>\d+) kB$/mu.exec(readFileSync(`/proc/${pid}/status`, 'latin1'))?.groups?.['kB'];
    return kilobytes === undefined ? undefined : Math.round(Number(kilobytes) / 1024);
  } catch {
    return undefined; // not Linux
  }
}

/** @param {'sgd' | 'adam'} name */
async function measure(name) {
  const plane = await DataPlane.start({ servers, workers });
  try {
    /** @type {import('@paceline/spec').RunSpecInput} */
    const input = {
      model,
      dataset: 'iris',
      engine: /** @type {'wasm'} */ (flags.engine),
      globalBatch: batch * workers,
      replicas: workers,
      length: { rounds },
      optimizer: { name, learningRate: 1e-4 },
      strategy: { kind: 'parameter-server', servers, mode, ...(mode === 'sync' ? { startWorkers: workers } : {}) },
      checkpoint: { final: false, everySeconds: 0 },
      stepDeadlineMs: 600_000,
    };
    const startedMs = Date.now();
    const view = await plane.train(input);
    await plane.until(view, 'the first round', DEADLINE_MS, () => view.entries.some((entry) => entry.kind === 'metric'));
    const firstRoundSeconds = (Date.now() - startedMs) / 1000;
    await plane.finished(view, DEADLINE_MS);
    const commits = view.entries.filter((entry) => entry.kind === 'metric');
    const [first, last] = [commits[0], commits.at(-1)];
    if (!first || !last || first === last) throw new Error('too few rounds came to be measured: give more with --rounds');
    const elements = view.model.parameterCount + view.model.stateCount;
    const { spec } = view;
    const share = workerBytes(Object.assign({}, spec, { replicas: 1 }), elements);
    const slots = createOptimizer(spec.optimizer).slots.length;
    const of = (/** @type {DataPlane['servers']} */ processes, /** @type {number} */ baseMB, /** @type {number} */ bytes) => {
      const tableMB = Math.round(baseMB + bytes / MEBIBYTE);
      const peaks = processes.flatMap(({ child }) => peakMB(child.pid) ?? []);
      const most = Math.max(...peaks);
      return { peakMB: most, tableMB, ratio: round(most / tableMB) };
    };
    const worker = of(plane.workers, workerBaseMB, share);
    const server = of(plane.servers, serverBaseMB, serverBytes(spec, slots, elements));
    return {
      optimizer: name,
      engine: flags.engine,
      mode,
      parameters: elements,
      workers,
      servers,
      examplesPerSecond: round(((last.round - first.round) * batch * workers * 1000) / (last.atMs - first.atMs)),
      roundSeconds: round((last.atMs - first.atMs) / 1000 / (last.round - first.round)),
      firstRoundSeconds: round(firstRoundSeconds),
      workerPeakMB: worker.peakMB,
      workerTableMB: worker.tableMB,
      workerRatio: worker.ratio,
      serverPeakMB: server.peakMB,
      serverTableMB: server.tableMB,
      serverRatio: server.ratio,
      loss: round(Number(last.values['loss'] ?? NaN)),
    };
  } finally {
    await plane.stop();
  }
}

/** @param {number} value */
const round = (value) => Number(value.toFixed(2));

/** @type {Awaited<ReturnType<typeof measure>>[]} */
const rows = [];
for (const name of flags.optimizers.split(',')) rows.push(await measure(/** @type {'sgd'} */ (name)));
if (flags.json) console.log(JSON.stringify({ bench: 'large', rows }));
else console.table(rows);
process.exit(flags.check && rows.some(({ workerRatio, serverRatio }) => !(workerRatio <= within && serverRatio <= within)) ? 1 : 0);
