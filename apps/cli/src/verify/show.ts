/** What `paceline verify` prints. */
import type { Recording } from '@paceline/models';
import { clean } from '../terminal/clean.js';
import { printTable } from '../terminal/print-table.js';
import type { Terminal } from '../terminal/terminal.js';
import type { TrainingFile } from './results.js';
import type { TrainingResult } from './training.js';

export function heading(terminal: Terminal, { file, unknown }: Recording): void {
  terminal.print(terminal.style('bold', clean(file, 300)));
  if (unknown.length > 0)
    terminal.note(
      `${terminal.style('yellow', 'warning', 'stderr')} fields that are not known here and were not used: ${clean(unknown.join(', '), 300)}`,
    );
}

/** One run, tensor by tensor. */
export function showTraining(
  terminal: Terminal,
  result: TrainingResult,
  { workers, servers, tolerance }: { readonly workers: number; readonly servers: number; readonly tolerance: number },
): void {
  const { loss, tensors } = result;
  const rows = [
    [mark(terminal, loss.relative <= tolerance), 'loss', small(loss.absolute), small(loss.relative), stepText(loss.step)],
    ...tensors.map((one) => [
      mark(terminal, one.relative <= tolerance),
      clean(one.path, 60),
      small(one.absolute),
      small(one.relative),
      'at the end',
    ]),
  ];
  const columns = [
    { title: '' },
    { title: 'WHAT', least: 16 },
    { title: 'ABSOLUTE', align: 'right', drop: 1 },
    { title: 'RELATIVE', align: 'right' },
    { title: 'LARGEST', drop: 2 },
  ] as const;
  printTable(terminal, columns, rows);
  terminal.print(
    `${result.ok ? 'within' : 'above'} ${tolerance} after ${result.steps} steps: ${result.replicas} replicas, ${workers} worker${workers === 1 ? '' : 's'}, ${servers} server${servers === 1 ? '' : 's'}, weights ${result.weightsSha256}`,
  );
}

/** One recording under several strategies. */
export function showStrategies(terminal: Terminal, results: readonly TrainingFile[]): void {
  const rows = results.map((result) => [
    'notServed' in result ? '–' : mark(terminal, result.ok),
    result.strategy,
    result.as,
    'loss' in result ? String(result.workers) : '–',
    'loss' in result ? small(result.loss.relative) : '–',
    'loss' in result ? small(result.weights.relative) : '–',
    'notServed' in result ? clean(`not served: ${result.notServed}`, 300) : 'failed' in result ? clean(result.failed, 300) : '',
  ]);
  const columns = [
    { title: '' },
    { title: 'STRATEGY', least: 16 },
    { title: 'AS' },
    { title: 'PROCESSES', align: 'right', drop: 1 },
    { title: 'LOSS', align: 'right' },
    { title: 'WEIGHTS', align: 'right' },
    { title: '', least: 12 },
  ] as const;
  printTable(terminal, columns, rows);
  const replayed = results.filter((result) => !('notServed' in result));
  const [{ tolerance }] = results as readonly [TrainingFile];
  terminal.print(
    `${replayed.filter(({ ok }) => ok).length} of ${replayed.length} strategies within ${tolerance}, ${results.length - replayed.length} not served`,
  );
}

/** Steps count from 1; where nothing differs, no step differs most. */
export const stepText = (step: number): string => (step === 0 ? '–' : `step ${step}`);
export const mark = (terminal: Terminal, ok: boolean): string => (ok ? terminal.style('green', 'ok') : terminal.style('red', 'FAILED'));
export const small = (value: number): string => (value === 0 ? '0' : Number.isFinite(value) ? value.toExponential(2) : '–');
