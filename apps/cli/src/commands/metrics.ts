/** `paceline metrics`: the numbers behind the curves, for other programs. */
import { EXIT } from '@paceline/runtime/exit-codes';
import { UserError } from '@paceline/runtime/user-error';
import { Option, type Command } from 'commander';
import { wholeNumber, type Act, type CommandContext } from '../command.js';
import { inOrder } from '../measures.js';
import { metricColumns, readRows, type MetricRow } from '../read-metrics.js';
import { RUN_ARGUMENT, whichRun } from '../which-run.js';

const MAX_POINTS = 2_000;

export function addMetrics(program: Command, act: Act): void {
  program
    .command('metrics')
    .description(
      'Prints what a run has measured in every round, along the lineage of its weights: loss, metrics, the same on the evaluation split (with val_), and speed.\n' +
        'Rounds are counted from one. A row stands for several rounds if --points is given, or if they were merged when they were stored.',
    )
    .argument('<run>', RUN_ARGUMENT)
    .addOption(new Option('--format <format>', 'csv, or json: a list of rows (also with --json)').choices(['csv', 'json']).default('csv'))
    .option('--points <n>', 'merge the rounds into this many rows: means', wholeNumber('--points', 1, MAX_POINTS))
    .action(act(metrics));
}

async function metrics({ terminal, connect }: CommandContext, command: Command, reference: string): Promise<number> {
  const { format, points } = command.opts<{ format: 'csv' | 'json'; points?: number }>();
  const client = connect();
  const id = await whichRun(client, reference);
  const run = await client.runProgress(id);
  if (!run)
    throw new UserError('NOT_FOUND', `There is no run ${id}.`, { hint: '`paceline runs` lists the runs of your team.', exit: 'notFound' });
  const names = metricColumns(run, inOrder);
  const pages = readRows(client, id, { names, rounds: run.progress.round, points });
  if (terminal.json || format === 'json') {
    const rows: MetricRow[] = [];
    for await (const page of pages) rows.push(...page);
    const document = { runId: id, metrics: rows };
    if (terminal.json) terminal.document(document);
    else terminal.print(JSON.stringify(document, null, 2));
    return EXIT.ok;
  }
  terminal.print(csvLine(['round', 'rounds', ...names]));
  for await (const page of pages)
    for (const { round, rounds, values } of page) terminal.print(csvLine([round, rounds, ...names.map((name) => values[name] ?? '')]));
  return EXIT.ok;
}

/** RFC 4180: a name of an output may hold a comma. */
const csvLine = (cells: readonly (string | number)[]): string =>
  cells.map((cell) => (/[",\r\n]/.test(String(cell)) ? `"${String(cell).replaceAll('"', '""')}"` : String(cell))).join(',');
