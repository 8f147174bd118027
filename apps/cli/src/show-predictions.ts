/** Which classes a model takes for which, and how far its numbers are off, as `evaluate` and `run --predictions` print it. */
import type { RunPredictions } from '@paceline/client';
import { clean } from './terminal/clean.js';
import { decimals, percent, widthOf } from './terminal/format.js';
import { printTable } from './terminal/print-table.js';
import type { Terminal } from './terminal/terminal.js';

/** What a terminal has room for. */
const CLASSES_MAX = 20;
const LABEL_CHARACTERS = 24;
const CONFUSIONS_SHOWN = 10;

export interface PrintedClasses {
  readonly kind: 'classes';
  readonly name: string;
  readonly scores: readonly {
    readonly label: string;
    readonly count: number;
    readonly precision: number | null;
    readonly recall: number | null;
    readonly f1: number | null;
  }[];
  readonly confusions: readonly { readonly truth: string; readonly prediction: string; readonly count: number }[];
}

export interface PrintedValues {
  readonly kind: 'values';
  readonly name: string;
  readonly meanAbsoluteError: number | null;
  readonly rootMeanSquaredError: number | null;
  readonly rSquared: number | null;
}

export function printPredictions({ examples, measured, split, outputs }: RunPredictions, terminal: Terminal): void {
  const part = measured < examples ? `${measured} of ${examples}` : String(examples);
  terminal.print(`\n${terminal.style('bold', 'predictions')}  of ${part} examples of the ${clean(split, 20)} split`);
  for (const output of outputs) {
    if (output.kind === 'none') terminal.print(`${clean(output.name, 60)}  ${clean(output.reason, 500)}`);
    else if (output.kind === 'values') terminal.print(valuesLine(output));
    else {
      terminal.print(`${clean(output.name, 60)}  accuracy ${percent(output.accuracy)}   ${output.wrongCount} of ${output.count} wrong`);
      if (output.matrix) printMatrix(output.labels, output.matrix, terminal);
      printClasses(output, terminal);
    }
  }
}

/** Rows are true classes. Half a matrix would be none: where there is no room, it is said where the whole is. */
export function printMatrix(labels: readonly string[], matrix: readonly (readonly number[])[], terminal: Terminal): void {
  const columns = [{ title: 'IS' }, ...labels.map((label) => ({ title: clean(label, 12), align: 'right' as const }))];
  const rows = matrix.map((counts, truth) => [clean(labels[truth] ?? '', 12), ...counts.map(String)]);
  const widths = columns.map(({ title }, c) => Math.max(...[title, ...rows.map((row) => row[c] ?? '')].map(widthOf)));
  const width = widths.reduce((sum, one) => sum + one + 2, -2);
  if (labels.length > CLASSES_MAX || (terminal.stdout.isTTY && width > terminal.stdout.columns()))
    return terminal.note(`The confusion matrix of ${labels.length} classes has no room here; --json has it.`);
  terminal.print();
  printTable(terminal, columns, rows);
}

/** How well each class is told; of many classes the most frequent mistakes. */
export function printClasses({ scores, confusions }: PrintedClasses, terminal: Terminal): void {
  if (scores.length > CLASSES_MAX) {
    const columns = [{ title: 'IS' }, { title: 'TAKEN FOR' }, { title: 'TIMES', align: 'right' as const }];
    const shown = confusions.slice(0, CONFUSIONS_SHOWN);
    terminal.print();
    return printTable(
      terminal,
      columns,
      shown.map(({ truth, prediction, count }) => [clean(truth, LABEL_CHARACTERS), clean(prediction, LABEL_CHARACTERS), String(count)]),
    );
  }
  const columns = ['CLASS', 'EXAMPLES', 'PRECISION', 'RECALL', 'F1'].map((title, i) =>
    i === 0 ? { title } : { title, align: 'right' as const },
  );
  const rows = scores.map(({ label, count, precision, recall, f1 }) => [
    clean(label, LABEL_CHARACTERS),
    String(count),
    percent(precision, 1),
    percent(recall, 1),
    percent(f1, 1),
  ]);
  terminal.print();
  printTable(terminal, columns, rows);
}

/** In the units of the data. */
export function valuesLine({ name, meanAbsoluteError, rootMeanSquaredError, rSquared }: PrintedValues): string {
  return `${clean(name, 60)}  MAE ${decimals(meanAbsoluteError, 4)}   RMSE ${decimals(rootMeanSquaredError, 4)}   R² ${decimals(rSquared, 4)}`;
}
