/**
 * bench checkpoints: what checkpoints cost: throughput of the MNIST MLP with one every n rounds, beside none
 *
 * Every repetition trains the same run twice on real processes (784-256-128-10, one server, two workers), once without and once with
 * checkpoints, in turn and in alternating order. The figure is examples per second over the rounds; the cost is the median of the
 * ratios of the pairs, so that what else the machine does hits both sides. With `--check` it exits with 1 when they cost more than the bar.
 */
import { parseArgs } from 'node:util';
import { DataPlane } from '@paceline/testkit';
import { median } from './median.mjs';

const { values: flags } = parseArgs({
  options: {
    json: { type: 'boolean', default: false },
    every: { type: 'string', default: '50' },
    rounds: { type: 'string', default: '500' },
    batch: { type: 'string', default: '128' },
    workers: { type: 'string', default: '2' },
    optimizer: { type: 'string', default: 'adam' },
    repetitions: { type: 'string', default: '7' },
    check: { type: 'boolean', default: false },
  },
});
/** @type {readonly ('sgd' | 'momentum' | 'adam')[]} */
const OPTIMIZERS = ['sgd', 'momentum', 'adam'];

/** @param {string} name */
function optimizerNamed(name) {
  const found = OPTIMIZERS.find((each) => each === name);
  if (!found) throw new Error(`--optimizer takes ${OPTIMIZERS.join(', ')}, not "${name}"`);
  return found;
}

/** Share of the throughput that a checkpoint every 50 rounds of the MLP may cost at most, with the defaults. */
const BAR_PERCENT = 3.5;
const workers = Number(flags.workers);
const every = Number(flags.every);

/**
 * @param {DataPlane} plane
 * @param {number} everyRounds 0 for none
 */
async function measure(plane, everyRounds) {
  const view = await plane.train({
    model: 'mlp',
    globalBatch: Number(flags.batch) * workers,
    replicas: workers,
    length: { rounds: Number(flags.rounds) },
    optimizer: { name: optimizerNamed(flags.optimizer) },
    checkpoint: { final: false, everySeconds: 0, ...(everyRounds ? { everyRounds } : {}) },
  });
  const { examplesPerSecond } = await plane.finished(view, 300_000);
  const events = view.entries.filter((entry) => entry.kind === 'event');
  const written = events.filter(({ type }) => type === 'checkpoint.written');
  const failed = events.find(({ type }) => type === 'checkpoint.failed');
  if (failed) throw new Error(failed.message);
  return { examplesPerSecond, written: written.length, bytes: Number(written[0]?.data['bytes'] ?? 0) };
}

/** @type {number[]} */
const plain = [];
/** @type {number[]} */
const kept = [];
/** @type {Awaited<ReturnType<typeof measure>> | undefined} */
let last;
const plane = await DataPlane.start({ servers: 1, workers });
try {
  await measure(plane, 0); // the first run warms the processes
  for (let i = 0; i < Number(flags.repetitions); i++) {
    const order = i % 2 === 0 ? [0, every] : [every, 0];
    for (const everyRounds of order) {
      const result = await measure(plane, everyRounds);
      (everyRounds ? kept : plain).push(result.examplesPerSecond);
      if (everyRounds) last = result;
    }
    process.stderr.write(`without ${Math.round(plain[i] ?? NaN)}, every ${every} rounds ${Math.round(kept[i] ?? NaN)} examples/s\n`);
  }
} finally {
  await plane.stop();
}
const costPercent = Number((100 * (1 - median(kept.map((value, i) => value / (plain[i] ?? NaN))))).toFixed(2));
const row = {
  what: `a checkpoint every ${every} rounds`,
  optimizer: flags.optimizer,
  workers,
  repetitions: plain.length,
  checkpointsPerRun: last?.written ?? 0,
  bytesPerCheckpoint: last?.bytes ?? 0,
  examplesPerSecondWithout: Math.round(median(plain)),
  examplesPerSecondWith: Math.round(median(kept)),
  costPercent,
  barPercent: BAR_PERCENT,
  holds: costPercent <= BAR_PERCENT,
};
if (flags.json) console.log(JSON.stringify({ bench: 'checkpoints', rows: [row] }));
else console.table([row]);
process.exit(flags.check && !row.holds ? 1 : 0);
