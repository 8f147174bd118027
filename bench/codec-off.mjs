/**
 * bench codec-off: what a codec costs that is not used: the processor time of a round without one, beside a run whose decoders are there and unused
 *
 * Real processes over Unix sockets: one server, `--workers` with a replica each. The run beside has `codec: auto`, which picks none on Unix sockets: its
 * server and its workers have the decoders of all codecs that auto picks among, each frame passes the checks for them, and gradients and parameters travel as
 * float32. Both have equal bits. They take turns, `--repetitions` of each, `--rounds` measured after `--warm-rounds`, which are those that auto measures too.
 * `cpuMs` is the processor time of a round in all processes, the median; `ratio` is the median of the ratios in turn. A turn in which auto
 * picks a codec has no figure. With `--check` it exits with 1 when the ratio is above 1.03, or there is none.
 */
import { readFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { DataPlane } from '@paceline/testkit';
import { median } from './median.mjs';

const { values: flags } = parseArgs({
  options: {
    json: { type: 'boolean', default: false },
    check: { type: 'boolean', default: false },
    model: { type: 'string', default: 'mlp' },
    workers: { type: 'string', default: '2' },
    batch: { type: 'string', default: '16' },
    rounds: { type: 'string', default: '600' },
    'warm-rounds': { type: 'string', default: '100' },
    repetitions: { type: 'string', default: '5' },
  },
});
const [workers, globalBatch, rounds, warmRounds, repetitions] = /** @type {[number, number, number, number, number]} */ (
  [flags.workers, flags.batch, flags.rounds, flags['warm-rounds'], flags.repetitions].map(Number)
);
const BAR = 1.03;
/** A clock tick in /proc/PID/stat. */
const TICK_MS = 10;
const DEADLINE_MS = 600_000;

/** @param {DataPlane} plane */
const cpuMsOf = (plane) =>
  [...plane.servers, ...plane.workers].reduce((sum, { child }) => {
    const fields = readFileSync(`/proc/${child.pid}/stat`, 'latin1').split(') ')[1]?.split(' ') ?? [];
    return sum + (Number(fields[11]) + Number(fields[12])) * TICK_MS;
  }, 0);

/**
 * Milliseconds of processor time that a round takes.
 * @param {DataPlane} plane
 * @param {'none' | 'auto'} kind
 */
async function roundOf(plane, kind) {
  const run = await plane.train({
    model: flags.model === 'cnn' ? 'cnn' : 'mlp',
    globalBatch,
    replicas: workers,
    length: { rounds: warmRounds + rounds + 1_000_000 },
    strategy: { kind: 'parameter-server', servers: 1, startWorkers: workers },
    checkpoint: { final: false, everySeconds: 0 },
    codec: { kind },
  });
  const reached = (/** @type {number} */ round) => (run.state?.round ?? 0) >= round;
  await plane.until(run, 'the first rounds', DEADLINE_MS, () => reached(warmRounds));
  const [from, cpuMs] = [run.state?.round ?? 0, cpuMsOf(plane)];
  await plane.until(run, 'the last round', DEADLINE_MS, () => reached(from + rounds));
  const taken = (cpuMsOf(plane) - cpuMs) / ((run.state?.round ?? NaN) - from);
  await plane.control(run, 'action', 'cancel');
  await plane.ended(run, 60_000);
  const picked = run.entries.flatMap((entry) => (entry.kind === 'event' && entry.type === 'codec.picked' ? [entry.data['kind']] : []));
  if (kind === 'none' || picked.join() === 'none') return taken;
  process.stderr.write(
    `codec auto has picked ${picked.join() || 'nothing'}: there is no unused codec to measure. A busy machine looks like a slow link: repeat it on an idle one, or give more --warm-rounds\n`,
  );
  return NaN;
}

const plane = await DataPlane.start({ servers: 1, workers, transport: 'unix' });
/** @type {{ none: number[], auto: number[] }} */
const times = { none: [], auto: [] };
try {
  for (let i = 0; i < repetitions; i++)
    for (const kind of /** @type {const} */ (['none', 'auto'])) {
      times[kind].push(await roundOf(plane, kind));
      process.stderr.write(`codec ${kind}: ${times[kind].at(-1)?.toFixed(2)} ms of processor time for a round\n`);
    }
} finally {
  await plane.stop();
}
/** @param {number} value */
const rounded = (value) => Number(value.toFixed(3));
const ratio = rounded(median(times.none.map((none, i) => (times.auto[i] ?? NaN) / none)));
const rows = [{ model: flags.model, workers, cpuMs: rounded(median(times.none)), cpuMsUnused: rounded(median(times.auto)), ratio }];
if (flags.json) console.log(JSON.stringify({ bench: 'codec-off', rows }));
else console.table(rows);
if (flags.check) {
  console.error(`with the decoders unused a round takes ${ratio} of the processor time without them (bar ${BAR})`);
  if (!(ratio <= BAR)) process.exitCode = 1;
}
