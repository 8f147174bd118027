/** The history of a run's validations, as Keras' `History` has it: a line each, with what training measured in the rounds before. */
import type { PacelineClient, RunSummary } from '@paceline/client';
import { inOrder, measureText, shortMeasure } from './measures.js';
import { readSeries } from './read-metrics.js';
import { table, widthOf } from './terminal/format.js';
import type { Terminal } from './terminal/terminal.js';

const MAX_POINTS = 1_000;
/** The newest that are printed. */
const MAX_LINES = 20;

/** Nothing for a run that does not validate while it trains. */
export async function printHistory(client: PacelineClient, run: RunSummary, terminal: Terminal): Promise<void> {
  const { validation } = run.progress;
  if (!validation) return;
  const names = inOrder(Object.keys(validation.values));
  const series = await readSeries(client, run.id, { names: names.flatMap((name) => [name, `val_${name}`]), maxPoints: MAX_POINTS });
  const pointsOf = (name: string) => series.get(name) ?? [];
  const rounds = [...new Set(names.flatMap((name) => pointsOf(`val_${name}`).map(({ round }) => round)))].sort((a, b) => a - b);
  const shown = rounds.slice(-MAX_LINES);
  const textAt = (name: string, measure: string, round: number): string =>
    measureText(measure, pointsOf(name).find((each) => each.round >= round && each.round - each.rounds < round)?.value);
  const pairs = names.map((name): Pair => {
    const title = shortMeasure(name).toUpperCase();
    return {
      titles: [title, `VAL_${title}`],
      cells: shown.map((round) => [textAt(name, name, round), textAt(`val_${name}`, name, round)]),
    };
  });
  const width = terminal.stdout.isTTY ? terminal.stdout.columns() : 200;
  const lines = historyLines(
    shown.map((round) => String(round + 1)),
    pairs,
    width,
    (text) => terminal.style('bold', text),
  );
  for (const line of lines) terminal.print(line);
  if (rounds.length > shown.length) terminal.note(`The newest ${shown.length} of ${rounds.length} validations.`);
}

/** A measure, and its validation beside it. */
interface Pair {
  readonly titles: readonly [string, string];
  readonly cells: readonly (readonly [string, string])[];
}

/** Measures that do not fit beside the others stand in a table below, with the rounds again. */
export function historyLines(
  rounds: readonly string[],
  pairs: readonly Pair[],
  width: number,
  paintTitle: (text: string) => string,
): string[] {
  const roundWidth = Math.max('ROUND'.length, ...rounds.map(widthOf));
  const widthOfPair = ({ titles, cells }: Pair): number =>
    ([0, 1] as const).reduce<number>((sum, i) => sum + 2 + Math.max(widthOf(titles[i]), ...cells.map((cell) => widthOf(cell[i]))), 0);
  const groups: Pair[][] = [];
  let used = Number.POSITIVE_INFINITY;
  for (const pair of pairs) {
    const own = widthOfPair(pair);
    if (used + own > width) {
      groups.push([]);
      used = roundWidth;
    }
    groups.at(-1)!.push(pair);
    used += own;
  }
  return groups.flatMap((group, g) => {
    const columns = ['ROUND', ...group.flatMap(({ titles }) => titles)].map((title) => ({ title, align: 'right' as const }));
    const rows = rounds.map((round, r) => [round, ...group.flatMap(({ cells }) => cells[r]!)]);
    return [...(g > 0 ? [''] : []), ...table(columns, rows, { width: Number.POSITIVE_INFINITY, paintTitle })];
  });
}
