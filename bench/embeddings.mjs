/**
 * bench embeddings: a table that is exchanged by rows beside one that is exchanged whole: bytes and time of a round
 *
 * The model is an Embedding of `--rows` × `--width` under four columns of ids that are drawn over all rows, and a dense layer, on the whole local stack with one
 * server and one worker on Unix sockets. Two lengths of each run are trained: what the longer one has more, over its additional rounds, is a round. `ofRows` is
 * the bytes of a round beside those of the rows that it touches, once as parameters and once as gradients, and of the dense layer; the bar is 1.1 (`--bytes-bar`).
 * `cpuMs` is the processor time of a round in the server and the worker together, `roundMs` the median round of the longer run by the clock.
 * The dense table has `--dense-rows`, fewer by default, because a worker holds several vectors of the whole table; `timesFaster` compares the processor time with that of its round as it is,
 * the bar is 50 (`--times-bar`). With `--check` it exits with 1 when a bar is missed.
 */
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { importDataset } from '../libs/ingest/dist/index.js';
import { Stack } from '@paceline/testkit';
import { median } from './median.mjs';

const { values: flags } = parseArgs({
  options: {
    json: { type: 'boolean', default: false },
    check: { type: 'boolean', default: false },
    rows: { type: 'string', default: '10000000' },
    'dense-rows': { type: 'string', default: '1000000' },
    width: { type: 'string', default: '16' },
    batches: { type: 'string', default: '64,256' },
    rounds: { type: 'string', default: '200' },
    'dense-rounds': { type: 'string', default: '12' },
    examples: { type: 'string', default: '8192' },
    'bytes-bar': { type: 'string', default: '1.1' },
    'times-bar': { type: 'string', default: '50' },
  },
});
const [tableRows = 0, denseRows = 0, width = 0, rounds = 0, denseRounds = 0, examples = 0, bytesBar = 0, timesBar = 0] = [
  flags.rows,
  flags['dense-rows'],
  flags.width,
  flags.rounds,
  flags['dense-rounds'],
  flags.examples,
  flags['bytes-bar'],
  flags['times-bar'],
].map(Number);
const batches = flags.batches.split(',').map(Number);
const COLUMNS = ['a', 'b', 'c', 'd'];
const FLOAT_BYTES = 4;
/** Far below what a worker may have grown by before it ends with its run. */
const LARGE_BYTES = 8 * 1024 * 1024;
const DEADLINE_MS = 900_000;
const OVER = new Set(['SUCCEEDED', 'FAILED', 'CANCELLED']);

/** @param {Stack} stack @param {string} name @param {number} rows */
async function importIds(stack, name, rows) {
  let state = 1;
  const next = () => (state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0) / 2 ** 32;
  const lines = Array.from({ length: examples }, () => {
    const ids = COLUMNS.map(() => Math.floor(next() * rows));
    return `${ids.join(',')},${ids[0] % 2 === 0 ? 'even' : 'odd'}`;
  });
  const file = path.join(stack.folder, `${name}.csv`);
  writeFileSync(file, [`${COLUMNS.join(',')},label`, ...lines].join('\n'));
  const workFolder = mkdtempSync(path.join(stack.folder, 'import-'));
  await stack.client.datasets.import(name, (sink) =>
    importDataset({ sources: [file], label: 'label', split: { train: 0.95, test: 0.05 } }, sink, { workFolder }),
  );
}

/** Linux counts in hundredths of a second. */
const TICK_MS = 10;

/**
 * What each process had used when it was last looked at: a worker that has held a large table ends with its run, to be started again.
 * @type {Map<number | undefined, number>}
 */
const used = new Map();

/** Processor time of servers and workers so far, all threads; NaN where the system does not say. @param {Stack} stack */
function cpuMsOf(stack) {
  for (const { child } of [...stack.servers, ...stack.workers]) {
    try {
      const fields = readFileSync(`/proc/${child.pid}/stat`, 'latin1').split(') ')[1]?.split(' ') ?? [];
      used.set(child.pid, (Number(fields[11]) + Number(fields[12])) * TICK_MS);
    } catch {
      if (!used.has(child.pid)) used.set(child.pid, NaN);
    }
  }
  return [...used.values()].reduce((sum, ms) => sum + ms, 0);
}

/** @typedef {NonNullable<Awaited<ReturnType<Stack['client']['run']>>>} Run */

/**
 * @param {Stack} stack
 * @param {import('@paceline/spec').RunSpecInput} input
 */
async function trained(stack, input) {
  // It may have been one that held a large table, and is about to end.
  if (input.embeddings?.kind === 'dense' && denseRows * width * FLOAT_BYTES > LARGE_BYTES) {
    await stack.haveWorkers(0);
    await stack.haveWorkers(1);
  }
  const before = cpuMsOf(stack);
  const { id } = await stack.client.createRun(input);
  await stack.until('the end of the run', DEADLINE_MS, async () => {
    cpuMsOf(stack);
    const run = await stack.client.run(id);
    return (run !== null && OVER.has(run.status)) || { seen: `${run?.status} ${run?.statusReason} ${run?.progress.round}` };
  });
  const ended = await stack.client.run(id);
  if (ended?.status !== 'SUCCEEDED' || !ended.traffic) throw new Error(`the run is ${ended?.status}: ${ended?.statusReason}`);
  const { toServersBytes, toWorkersBytes } = ended.traffic;
  const cpuMs = cpuMsOf(stack) - before;
  const [series] = await stack.client.metrics(id, { names: ['roundMs'], maxPoints: 2_000 });
  return { bytes: toServersBytes + toWorkersBytes, cpuMs, roundMs: median(series?.points.map(({ value }) => Number(value)) ?? []) };
}

/**
 * A round: what a longer run has more than a shorter one.
 * @param {Stack} stack
 * @param {'sparse' | 'dense'} kind
 * @param {number} rows
 * @param {number} batch
 * @param {number} most
 */
async function measure(stack, kind, rows, batch, most) {
  /** @type {(length: number) => import('@paceline/spec').RunSpecInput} */
  const inputOf = (length) => ({
    model: {
      topology: {
        class_name: 'Sequential',
        config: {
          layers: [
            { class_name: 'Embedding', config: { batch_input_shape: [null, COLUMNS.length], input_dim: rows, output_dim: width } },
            { class_name: 'Flatten', config: {} },
            { class_name: 'Dense', config: { units: 2, activation: 'softmax' } },
          ],
        },
      },
    },
    dataset: kind === 'sparse' ? 'ids' : 'dense-ids',
    features: { inputs: { ids: [{ kind: 'number', columns: COLUMNS, scale: 'none' }] } },
    globalBatch: batch,
    replicas: 1,
    length: { rounds: length },
    optimizer: { name: 'sgd', learningRate: 0.1 },
    strategy: { kind: 'parameter-server', mode: 'sync', servers: 1 },
    embeddings: { kind },
    checkpoint: { final: false, everySeconds: 0 },
    stepDeadlineMs: 600_000,
  });
  const least = Math.max(1, Math.floor(most / 5));
  const short = await trained(stack, inputOf(least));
  const long = await trained(stack, inputOf(most));
  const bytes = (long.bytes - short.bytes) / (most - least);
  const touched = kind === 'dense' ? rows : batch * COLUMNS.length;
  const expected = 2 * FLOAT_BYTES * (touched * width + COLUMNS.length * width * 2 + 2);
  return {
    table: `${rows} × ${width}`,
    exchange: kind,
    batch,
    rowsTouched: touched,
    bytesPerRound: Math.round(bytes),
    ofRows: Number((bytes / expected).toFixed(3)),
    cpuMs: Number(((long.cpuMs - short.cpuMs) / (most - least)).toFixed(2)),
    roundMs: Number(long.roundMs.toFixed(2)),
  };
}

const stack = await Stack.start({ servers: 1, workers: 1, transport: 'unix' });
/** @type {(Awaited<ReturnType<typeof measure>> & { timesFaster?: number, holds?: boolean })[]} */
const rows = [];
try {
  await importIds(stack, 'ids', tableRows);
  await importIds(stack, 'dense-ids', denseRows);
  for (const batch of batches) rows.push(await measure(stack, 'sparse', tableRows, batch, rounds));
  const last = batches.at(-1) ?? 0;
  const dense = await measure(stack, 'dense', denseRows, last, denseRounds);
  for (const row of rows) {
    row.timesFaster = Number((dense.cpuMs / row.cpuMs).toFixed(1));
    row.holds = row.ofRows <= bytesBar && row.timesFaster >= timesBar;
  }
  rows.push(dense);
} finally {
  await stack.stop();
}
if (flags.json) console.log(JSON.stringify({ bench: 'embeddings', rows }));
else console.table(rows);
process.exit(flags.check && rows.some(({ holds }) => holds === false) ? 1 : 0);
