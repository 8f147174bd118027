/** What a run has measured, as lines of its page: the best and the last validation side by side where there are both, with the training beside them. */
import type { MeasuresByName, RunCourse, RunSummary } from '@paceline/client';
import { inOrder, measureText, shortMeasure } from './measures.js';
import { clean } from './terminal/clean.js';
import { table, widthOf, type Column } from './terminal/format.js';
import type { Terminal } from './terminal/terminal.js';

type Line = (name: string, value: string) => void;

/** @param course undefined where it was not asked for, null for a run that does not validate while it trains */
export function printMeasures(
  run: Pick<RunSummary, 'progress' | 'result'>,
  course: RunCourse | null | undefined,
  terminal: Terminal,
): void {
  const { progress, result } = run;
  const columns: (readonly [string, MeasuresByName])[] = [];
  const hasBoth = course && course.best.round !== course.last.round;
  if (hasBoth) columns.push([`BEST, ROUND ${course.best.round}`, course.best.values]);
  if (course) columns.push([`${hasBoth ? 'LAST' : 'VALIDATION'}, ROUND ${course.last.round}`, course.last.values]);
  else if (result) columns.push(['EVALUATION', result.values]);
  if (course || !result) columns.push(['TRAINING', progress.values]);
  const names = inOrder([...new Set(columns.flatMap(([, values]) => Object.keys(values)))]);
  const shown = names.filter((name) => columns.some(([, values]) => typeof values[name] === 'number'));
  if (shown.length === 0) return;
  if (columns.length > 1) return printTable(columns, shown, terminal);
  const width = Math.max(12, ...shown.map((name) => widthOf(shortMeasure(name))));
  const [[title, values]] = columns as [(typeof columns)[number]];
  // The loss is last, as the figure that says least.
  for (const name of [...shown.filter((each) => each !== 'loss'), ...shown.filter((each) => each === 'loss')]) {
    const text = measureText(name, values[name]);
    const of = title === 'TRAINING' ? ' train' : '';
    terminal.print(
      `${terminal.style('dim', shortMeasure(name).padEnd(width))} ${name === 'loss' ? text : terminal.style('bold', text)}${of}`,
    );
  }
}

function printTable(columns: readonly (readonly [string, MeasuresByName])[], names: readonly string[], terminal: Terminal): void {
  const heads: Column[] = [{ title: 'METRIC' }, ...columns.map(([title]) => ({ title, align: 'right' as const }))];
  const rows = names.map((name) => [shortMeasure(name), ...columns.map(([, values]) => measureText(name, values[name]))]);
  const width = terminal.stdout.isTTY ? terminal.stdout.columns() : 200;
  for (const line of table(heads, rows, { width, paintTitle: (text) => terminal.style('bold', text) })) terminal.print(line);
}

/** Which round the weights are of, and why. */
export function printBest({ result }: Pick<RunSummary, 'result'>, course: RunCourse | null | undefined, line: Line): void {
  const weights = result ? `the weights are those of round ${result.weightsRound}` : '';
  if (course && course.best.round !== course.last.round)
    line('best', `round ${course.best.round} by ${clean(course.metric, 100)}${weights ? `; ${weights}` : ''}`);
  else if (result && result.weightsRound !== result.rounds) line('best', weights);
}
