/**
 * bench checkpoints: what checkpoints cost: throughput of the MNIST MLP with one every n rounds, beside none
 *
 * Every repetition trains the same run twice on real processes (784-256-128-10, one server, two workers), once without and once with
 * checkpoints, in turn and in alternating order. The figure is examples per second over the rounds; the cost is the median of the
 * ratios of the pairs, so that what else the machine does hits both sides. With `--check` it exits with 1 when they cost more than the bar.
 */
import { parseArgs } from 'node:util';
import { DataPlane } from '@paceline/testkit';

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
/** Of throughput, with the defaults: what a checkpoint every 50 rounds of the MLP may cost at most. */
const BAR_PERCENT = 3.5;
const workers = Number(flags.workers);
const every = Number(flags.every);
const median = (values) => [...values].sort((a, b) => a - b)[values.length >> 1];

async function measure(plane, everyRounds) {
  const view = await plane.train({
    model: 'mlp',
    globalBatch: Number(flags.batch) * workers,
    replicas: workers,
    length: { rounds: Number(flags.rounds) },
    optimizer: { name: flags.optimizer },
    checkpoint: { final: false, everySeconds: 0, ...(everyRounds ? { everyRounds } : {}) },
  });
  const { examplesPerSecond } = await plane.finished(view, 300_000);
  const written = view.entries.filter(({ type }) => type === 'checkpoint.written');
  const failed = view.entries.filter(({ type }) => type === 'checkpoint.failed');
  if (failed.length > 0) throw new Error(failed[0].message);
  return { examplesPerSecond, written: written.length, bytes: written[0]?.data.bytes ?? 0 };
}

const plain = [];
const kept = [];
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
    process.stderr.write(`without ${Math.round(plain.at(-1))}, every ${every} rounds ${Math.round(kept.at(-1))} examples/s\n`);
  }
} finally {
  await plane.stop();
}
const costPercent = Number((100 * (1 - median(kept.map((value, i) => value / plain[i])))).toFixed(2));
const row = {
  what: `a checkpoint every ${every} rounds`,
  optimizer: flags.optimizer,
  workers,
  repetitions: plain.length,
  checkpointsPerRun: last.written,
  bytesPerCheckpoint: last.bytes,
  examplesPerSecondWithout: Math.round(median(plain)),
  examplesPerSecondWith: Math.round(median(kept)),
  costPercent,
  barPercent: BAR_PERCENT,
  holds: costPercent <= BAR_PERCENT,
};
if (flags.json) console.log(JSON.stringify({ bench: 'checkpoints', rows: [row] }));
else console.table([row]);
process.exit(flags.check && !row.holds ? 1 : 0);
