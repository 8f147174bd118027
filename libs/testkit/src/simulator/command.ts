/**
 * `npm run simulate -- --seeds N [--seed S] [--check safety|liveness] [--mode sync|async|ssp] [--jobs J] [--json]`: seeds S, S+1, … over all cores, what they found, and
 * which rows of the state tables they took. Ends with 1 when a seed failed, or when a row was taken that is said to be out of reach; a single seed (`--seed S` alone) is shown in full.
 */
import { Worker } from 'node:worker_threads';
import { INVARIANTS } from './checks/checks.js';
import type { SeedsOrder } from './seeds-thread.js';
import { USAGE, UsageError, parseCommand, type Command } from './command-line.js';
import { simulateSeed, type CheckMode } from './simulate.js';
import {
  NOT_REACHED,
  RARELY_REACHED,
  addSeed,
  addTally,
  coverage,
  emptyTally,
  neverTaken,
  takenUnreached,
  type FailedSeed,
  type Tally,
} from './checks/tally.js';
import { drawMode } from './run/async-run.js';

const SHOWN_FAILURES = 5;

async function run({ first, seeds, jobs, check, mode, json }: Command): Promise<Tally> {
  const tally = emptyTally();
  if (jobs === 1) {
    for (let i = 0; i < seeds; i++) addSeed(tally, await simulateSeed({ seed: first + i, check, mode: mode ?? drawMode(first + i) }));
    return tally;
  }
  await Promise.all(
    Array.from({ length: jobs }, (_, job) => {
      const workerData: SeedsOrder = { first: first + job, step: jobs, count: Math.floor((seeds - job - 1) / jobs) + 1, check, mode };
      const thread = new Worker(new URL('./seeds-thread.js', import.meta.url), { workerData });
      return new Promise<void>((resolve, reject) => {
        thread.on('message', (part: Tally) => {
          addTally(tally, part);
          if (!json) process.stderr.write(`\r${tally.seeds} of ${seeds} seeds, ${tally.failed.length} failed`);
        });
        thread.on('error', reject);
        thread.on('exit', (code) => (code === 0 ? resolve() : reject(new Error(`a thread ended with code ${code}`))));
      });
    }),
  );
  if (!json) process.stderr.write('\n');
  return tally;
}

/** @param given the check mode, where the command named one: a seed that draws it draws other faults too */
function show({ seed, check, mode, violation, describe, recent, waitingFor }: FailedSeed, given: CheckMode | undefined): string {
  return [
    `seed ${seed} (${check}, ${mode}) failed after ${Math.round(violation.atMs)} ms: ${violation.invariant}: ${INVARIANTS[violation.invariant]}`,
    `  ${violation.message}`,
    `  ${describe}`,
    `  replay: npm run simulate -- --seed ${seed}${given ? ` --check ${given}` : ''} --mode ${mode}`,
    ...(waitingFor.length > 0 ? ['  what everybody waits for:', ...waitingFor.map((line) => `    ${line}`)] : []),
    '  the newest events:',
    ...recent.slice(-25).map((line) => `    ${line}`),
  ].join('\n');
}

function commandOrEnd(): Command {
  try {
    const command = parseCommand(process.argv.slice(2));
    if (command !== 'help') return command;
    process.stdout.write(USAGE);
    process.exit(0);
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    process.stderr.write(`${error.message}\nnpm run simulate -- --help says which flags there are.\n`);
    process.exit(2);
  }
}

const wanted = commandOrEnd();
const startedMs = performance.now();
const tally = await run(wanted);
const seconds = (performance.now() - startedMs) / 1000;
const never = neverTaken(tally, true);
const unreached = takenUnreached(tally);
if (wanted.json) {
  const figures = { seconds, seedsPerSecond: tally.seeds / seconds, jobs: wanted.jobs, neverTaken: never, takenUnreached: unreached };
  process.stdout.write(`${JSON.stringify({ ...tally, ...figures })}\n`);
} else {
  const lines = (counts: Record<string, number>): string =>
    Object.entries(counts)
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([key, count]) => `  ${String(count).padStart(9)}  ${key}`)
      .join('\n');
  const rows = Object.fromEntries(coverage(tally).map(({ row, count }) => [row, count]));
  process.stdout.write(
    [
      `rows of the state tables, and how often they were taken\n${lines(rows)}`,
      `faults\n${lines(tally.fired)}`,
      `outcomes\n${lines(tally.outcomes)}`,
      `never taken: ${never.join(', ') || 'none'} (not reachable: ${Object.keys(NOT_REACHED).join(', ')}; rare: ${Object.keys(RARELY_REACHED).join(', ')})`,
      ...unreached.map((row) => `${row} was taken, and tally.ts says that no seed can: ${NOT_REACHED[row]}`),
      `${tally.seeds} seeds, ${tally.rounds} rounds, ${tally.events} events in ${seconds.toFixed(1)} s: ${(tally.seeds / seconds).toFixed(0)} seeds/s on ${wanted.jobs} thread(s)`,
      ...tally.failed.slice(0, SHOWN_FAILURES).map((failed) => show(failed, wanted.check)),
      tally.failed.length > 0
        ? `${tally.failed.length} seed(s) failed: ${tally.failed
            .slice(0, 50)
            .map(({ seed, mode }) => `${seed} (${mode})`)
            .join(', ')}`
        : 'no seed failed',
      '',
    ].join('\n\n'),
  );
}
process.exitCode = tally.failed.length > 0 || unreached.length > 0 ? 1 : 0;
