/** What is printed of a run. */
import { FINAL_STATUSES, type Run, type RunAttempt, type RunCourse, type RunStatus, type RunSummary } from '@paceline/client';
import { shardHostsIn } from '@paceline/spec/shard-holders';
import { printBest, printMeasures } from './show-measures.js';
import { printCodec, printLostResiduals, printStrategy, printTraffic } from './show-traffic.js';
import { clean } from './terminal/clean.js';
import { ago, count, decimals, duration, localTime, percent, plural } from './terminal/format.js';
import { printTable } from './terminal/print-table.js';
import { epochText } from './terminal/progress-line.js';
import type { Style, Terminal } from './terminal/terminal.js';
import { shortId } from './which-run.js';

const STATUS_STYLES: Partial<Record<RunStatus, Style>> = {
  SUCCEEDED: 'green',
  FAILED: 'red',
  CANCELLED: 'yellow',
  RUNNING: 'cyan',
  RECOVERING: 'yellow',
  PAUSED: 'yellow',
};

export function paintStatus(status: RunStatus, terminal: Terminal): string {
  const style = STATUS_STYLES[status];
  return style ? terminal.style(style, status) : status;
}

export function printRuns(runs: readonly RunSummary[], terminal: Terminal, nowMs: number): void {
  const columns = [
    { title: 'ID', drop: 0 },
    { title: 'NAME', least: 8 },
    { title: 'STATUS' },
    { title: 'ROUND', align: 'right', drop: 2 },
    { title: 'LOSS', align: 'right', drop: 3 },
    { title: 'ACCURACY', align: 'right', drop: 1 },
    { title: 'EXAMPLES/S', align: 'right', drop: 5 },
    { title: 'CREATED', drop: 4 },
  ] as const;
  const rows = runs.map((run) => [
    shortId(run.id),
    clean(run.name, 60),
    run.status,
    run.progress.totalRounds > 0 ? `${run.progress.round}/${run.progress.totalRounds}` : '–',
    measured(run, 'loss', (value) => decimals(value, 4)),
    measured(run, 'accuracy', (value) => percent(value)),
    count(run.result?.examplesPerSecond ?? run.progress.examplesPerSecond ?? Number.NaN),
    ago(run.createdAt, nowMs),
  ]);
  printTable(terminal, columns, rows, (text, row, column) => (column === 2 ? paintStatus(runs[row]!.status, terminal) : text));
}

/** A measure and what it was measured on: the test split at the end of a run, or the batches of its last round. */
function measured({ result, progress }: RunSummary, which: 'loss' | 'accuracy', format: (value: number) => string): string {
  const tested = result?.[which] ?? null;
  if (tested !== null) return `${format(tested)} test`;
  return progress[which] === null ? '–' : `${format(progress[which])} train`;
}

/** The dashboard's page of a run, or its list of runs. */
export const dashboardUrl = (apiUrl: string, runId?: string): string =>
  new URL(runId === undefined ? '/' : `/runs/${encodeURIComponent(runId)}`, apiUrl).href;

/** `0 62 %, 1 30 %, 2 8 %`: shares of the updates by how many others came between reading the parameters and updating them. */
export function stalenessLine(updates: readonly number[]): string {
  const all = updates.reduce((sum, number) => sum + number, 0);
  const shares = updates.map((number, staleness) => [staleness, (100 * number) / all] as const).filter(([, share]) => share >= 0.5);
  return shares
    .map(([staleness, share]) => `${staleness}${staleness === updates.length - 1 ? '+' : ''}: ${Math.round(share)} %`)
    .join(', ');
}

export function printRun(run: Run, terminal: Terminal, nowMs: number, apiUrl: string): void {
  const line = lineWriter(terminal);
  terminal.print(`${terminal.style('bold', clean(run.name))}  ${paintStatus(run.status, terminal)}`);
  if (run.statusReason) line('because', terminal.typed(clean(run.statusReason, 1000)));
  printIdentity(run, line, nowMs);
  printAttempts(run, line, nowMs);
  printLedger(run, line);
  printPlaces(run, line);
  printStrategy(run.pickedStrategy, line);
  printCodec(run.codec, line);
  printLostResiduals(run.lostResiduals, line);
  if (!run.result) printTraffic(run.traffic, line);
  printResult(run, terminal, { apiUrl, course: run.course });
}

type Line = (name: string, value: string) => void;

function printIdentity(run: Run, line: Line, nowMs: number): void {
  line('id', `${run.id}  (${shortId(run.id)} is enough)`);
  line('created', `${localTime(run.createdAt)} (${ago(run.createdAt, nowMs)})`);
  if (run.finishedAt) line('ended', `${localTime(run.finishedAt)} (${ago(run.finishedAt, nowMs)})`);
  line('model', modelName(run));
  line('parameters', count(run.parameterCount));
}

function printAttempts(run: Run, line: Line, nowMs: number): void {
  const { replicas, workers } = run.progress;
  line('replicas', isTraining(run) ? `${replicas} on ${plural(workers, 'worker')}` : String(replicas));
  line('attempt', `${run.attempt}, ${plural(run.restartsLeft, 'restart')} left`);
  if (run.attempts.length > 1) for (const attempt of run.attempts) line(`attempt ${attempt.number}`, attemptLine(attempt, nowMs));
}

function printLedger({ progress, ledger, staleness }: Run, line: Line): void {
  if (progress.totalRounds > 0) line('rounds', `${progress.round} of ${progress.totalRounds}, ${epochText(progress)}`);
  line('examples', examplesText(ledger));
  if (staleness.length > 0) line('staleness', stalenessLine(staleness));
  if (ledger.droppedExamples > 0) line('dropped', `${count(ledger.droppedExamples)} examples came too late or were left out`);
  if (ledger.refusedFrames + ledger.refusedConnections > 0)
    line('refused', `${plural(ledger.refusedFrames, 'frame')}, ${plural(ledger.refusedConnections, 'connection')}`);
}

const isTraining = ({ status }: Run): boolean => !FINAL_STATUSES.has(status) && status !== 'PAUSED';

/** Prints the servers and workers of the run. A run that is over or paused has none. */
function printPlaces(run: Run, line: Line): void {
  if (!isTraining(run)) return;
  for (const { role, index, serverId, address, state, term } of run.servers) {
    const does = { STARTED: 'serves it', CLAIMED: 'gets ready', LOST: 'is lost' }[state] ?? clean(state, 20).toLowerCase();
    const holder = shardHostsIn(run.spec) === 'servers' ? 'server' : 'shard';
    const name = `${role === 'STANDBY' ? 'standby' : holder} ${index}`;
    line(name, `${clean(serverId)} at ${clean(address)} ${does}${term > 1 ? `, took over in term ${term}` : ''}`);
  }
  for (const { seat, state, worker, replicas } of run.stepTasks) {
    if (state === 'CLOSED') continue;
    const computes =
      replicas.length === 0 ? 'has no replica yet' : `computes ${replicas.length === 1 ? 'replica' : 'replicas'} ${replicas.join(', ')}`;
    line(`seat ${seat}`, worker ? `${clean(worker.name)} ${computes}` : 'waits for a worker');
  }
}

/** Each example counts once, when its round is committed; the schedule says how many those rounds have. */
function examplesText({ committedExamples, expectedExamples }: Run['ledger']): string {
  const missing = expectedExamples - committedExamples;
  if (missing === 0) return `${count(committedExamples)} trained`;
  return `${count(committedExamples)} trained, ${plural(Math.abs(missing), 'example')} ${missing > 0 ? 'fewer' : 'more'} than these rounds have`;
}

function lineWriter(terminal: Terminal): Line {
  return (name, value) => terminal.print(`${terminal.style('dim', name.padEnd(12))} ${value}`);
}

function attemptLine({ createdAt, endedAt, endCause, endReason, endRound, fromRound, parentRunId }: RunAttempt, nowMs: number): string {
  const from = `from round ${fromRound}${parentRunId === null ? '' : ` of run ${clean(parentRunId, 40)}`}, began ${ago(createdAt, nowMs)}`;
  if (endedAt === null) return from;
  const round = endRound === null ? '' : ` in round ${endRound}`;
  return `${from}; ${clean(endCause ?? 'ended', 40)}${round}: ${clean(endReason ?? '', 300)}`;
}

export interface ResultOptions {
  /** Where the weights and the dashboard are; not given when both are gone. */
  readonly apiUrl?: string | undefined;
  /** What its validations have come to, where that was asked for. */
  readonly course?: RunCourse | null | undefined;
}

/** The result in a few lines. */
export function printResult(run: RunSummary, terminal: Terminal, { apiUrl, course }: ResultOptions = {}): void {
  const { result } = run;
  const line = lineWriter(terminal);
  printMeasures(run, course, terminal);
  printBest(run, course, line);
  if (result) {
    const speed = `${count(result.examplesPerSecond)} examples/s`;
    line(
      'trained',
      `${plural(result.trainedExamples, 'example')} in ${plural(result.rounds, 'round')}, ${duration(result.trainingMs / 1000)}, ${speed}`,
    );
    printTraffic(run.traffic, line);
    line('weights', `sha256 ${clean(result.weightsSha256)}`);
    if (apiUrl !== undefined && result.weightsUrl) line('', `${terminal.program} weights ${shortId(run.id)}   downloads them`);
  }
  if (apiUrl !== undefined) line('dashboard', dashboardUrl(apiUrl, run.id));
}

function modelName({ spec }: Run): string {
  const { model, dataset } = spec as { model?: unknown; dataset?: unknown };
  return clean(`${typeof model === 'string' ? model : 'own topology'} on ${String(dataset)}`);
}
