/** What is printed of a run. */
import type { Run, RunAttempt, RunStatus, RunSummary } from '@paceline/client';
import { clean } from './terminal/clean.js';
import { ago, count, decimals, duration, table } from './terminal/format.js';
import type { Style, Terminal } from './terminal/terminal.js';

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
    run.id,
    clean(run.name, 60),
    run.status,
    run.progress.totalRounds > 0 ? `${run.progress.round}/${run.progress.totalRounds}` : '–',
    decimals(run.result?.loss ?? run.progress.loss, 4),
    decimals(run.result?.accuracy ?? run.progress.accuracy, 4),
    count(run.result?.examplesPerSecond ?? run.progress.examplesPerSecond ?? Number.NaN),
    ago(run.createdAt, nowMs),
  ]);
  const width = terminal.stdout.isTTY ? terminal.stdout.columns() : 200;
  const lines = table(columns, rows, {
    width,
    paintTitle: (text) => terminal.style('bold', text),
    paint: (text, row, column) => (column === 2 ? paintStatus(runs[row]!.status, terminal) : text),
  });
  for (const line of lines) terminal.print(line);
}

/** `0 62 %, 1 30 %, 2 8 %`: shares of the updates by how many others came between reading the parameters and updating them. */
export function stalenessLine(updates: readonly number[]): string {
  const all = updates.reduce((sum, number) => sum + number, 0);
  const shares = updates.map((number, staleness) => [staleness, (100 * number) / all] as const).filter(([, share]) => share >= 0.5);
  return shares
    .map(([staleness, share]) => `${staleness}${staleness === updates.length - 1 ? '+' : ''}: ${Math.round(share)} %`)
    .join(', ');
}

export function printRun(run: Run, terminal: Terminal, nowMs: number): void {
  const { progress, ledger, result } = run;
  const line = (name: string, value: string): void => terminal.print(`${terminal.style('dim', name.padEnd(12))} ${value}`);
  terminal.print(`${terminal.style('bold', clean(run.name))}  ${paintStatus(run.status, terminal)}`);
  if (run.statusReason) line('because', clean(run.statusReason, 1000));
  line('id', run.id);
  line('created', `${clean(run.createdAt)} (${ago(run.createdAt, nowMs)})`);
  line('model', modelName(run));
  line('parameters', count(run.parameterCount));
  line('replicas', `${progress.replicas} on ${progress.workers} worker${progress.workers === 1 ? '' : 's'}`);
  line('attempt', `${run.attempt}, ${run.restartsLeft} restart${run.restartsLeft === 1 ? '' : 's'} left`);
  if (run.attempts.length > 1) for (const attempt of run.attempts) line(`attempt ${attempt.number}`, attemptLine(attempt, nowMs));
  if (progress.totalRounds > 0)
    line('rounds', `${progress.round} of ${progress.totalRounds}, epoch ${decimals(progress.epoch, 0)} of ${progress.totalEpochs}`);
  line('examples', `${count(ledger.committedExamples)} committed of ${count(ledger.expectedExamples)} expected`);
  if (run.staleness.length > 0) line('staleness', stalenessLine(run.staleness));
  if (ledger.droppedExamples > 0) line('dropped', `${count(ledger.droppedExamples)} examples came too late or were left out`);
  if (ledger.refusedFrames + ledger.refusedConnections > 0)
    line('refused', `${ledger.refusedFrames} frames, ${ledger.refusedConnections} connections`);
  for (const server of run.servers)
    line(
      `${server.role === 'STANDBY' ? 'standby' : 'server'} ${server.index}`,
      `${clean(server.serverId)}  ${clean(server.address)}  ${clean(server.state)}${server.term > 1 ? `  took over in term ${server.term}` : ''}`,
    );
  for (const task of run.stepTasks)
    line(
      `seat ${task.seat}`,
      `${task.worker ? clean(task.worker.name) : 'nobody'}  ${clean(task.state)}  replicas ${task.replicas.join(', ') || 'none'}`,
    );
  if (!result) return;
  printResult(run, terminal);
  if (result.weightsUrl) line('weights', clean(result.weightsUrl));
}

function attemptLine({ createdAt, endedAt, endCause, endReason, endRound, fromRound, parentRunId }: RunAttempt, nowMs: number): string {
  const from = `from round ${fromRound}${parentRunId === null ? '' : ` of run ${clean(parentRunId, 40)}`}, began ${ago(createdAt, nowMs)}`;
  if (endedAt === null) return from;
  const round = endRound === null ? '' : ` in round ${endRound}`;
  return `${from}; ${clean(endCause ?? 'ended', 40)}${round}: ${clean(endReason ?? '', 300)}`;
}

/** The result in a few lines. */
export function printResult(run: RunSummary, terminal: Terminal): void {
  const { result } = run;
  if (!result) return;
  const line = (name: string, value: string): void => terminal.print(`${terminal.style('dim', name.padEnd(12))} ${value}`);
  if (result.accuracy !== null) line('accuracy', terminal.style('bold', `${(result.accuracy * 100).toFixed(2)} %`));
  if (result.loss !== null) line('loss', decimals(result.loss, 4));
  line(
    'trained',
    `${count(result.trainedExamples)} examples in ${result.rounds} rounds, ${duration(result.trainingMs / 1000)}, ${count(result.examplesPerSecond)} examples/s`,
  );
  line('weights', `sha256 ${clean(result.weightsSha256)}`);
}

function modelName({ spec }: Run): string {
  const { model, dataset } = spec as { model?: unknown; dataset?: unknown };
  return clean(`${typeof model === 'string' ? model : 'own topology'} on ${String(dataset)}`);
}
