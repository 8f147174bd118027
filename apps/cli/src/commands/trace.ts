/** `paceline trace`: where the time of a run's rounds goes, as a file for Chrome and Perfetto. */
import { resolve } from 'node:path';
import type { RunTrace } from '@paceline/client';
import { EXIT } from '@paceline/runtime/exit-codes';
import type { Command } from 'commander';
import { wholeNumber, type Act, type CommandContext } from '../command.js';
import { intoFile } from '../output-file.js';
import { table } from '../terminal/format.js';
import { shortId, whichRun } from '../which-run.js';

const MAX_ROUNDS = 50;

export function addTrace(program: Command, act: Act): void {
  program
    .command('trace')
    .description(
      'Records the next rounds of a run that is training, in all of its processes, and writes them as a trace for https://ui.perfetto.dev\n' +
        '(or chrome://tracing): one track for each thread and connection. It takes about five seconds, and the run goes on meanwhile.',
    )
    .argument('<run>', 'id or a part of it, name, or @last')
    .option('-r, --rounds <n>', 'how many rounds', wholeNumber('--rounds', 1, MAX_ROUNDS), 3)
    .option('-o, --out <file>', 'where to write it (default: trace-ID.json here, with the last 8 characters of the id)')
    .option('--force', 'replace a file that --out names')
    .action(act(trace));
}

async function trace({ terminal, connect }: CommandContext, command: Command, reference: string): Promise<number> {
  const { rounds, out, force } = command.opts<{ rounds: number; out?: string; force?: boolean }>();
  const client = connect();
  const runId = await whichRun(client, reference);
  const file = resolve(out ?? `trace-${shortId(runId)}.json`);
  // The name of its own holds an older trace of this run, and nothing else.
  const mayReplace = out === undefined || force === true;
  const recorded = await intoFile<RunTrace>(file, { mayReplace, textOf: (made) => JSON.stringify(made) }, () =>
    client.traceRun(runId, { rounds }),
  );
  const { fromRound, toRound, processes, leftOut, isWhole } = recorded.otherData;
  const spans = recorded.traceEvents.filter(({ ph, name }) => ph === 'X' && !name.startsWith('round ') && name !== 'step');
  const totals = new Map<string, { count: number; ms: number }>();
  for (const { name, dur = 0 } of spans) {
    const { count, ms } = totals.get(name) ?? { count: 0, ms: 0 };
    totals.set(name, { count: count + 1, ms: ms + dur / 1000 });
  }
  const count = toRound - fromRound + 1;
  if (terminal.json) terminal.document({ file, fromRound, toRound, processes, leftOut, isWhole, spans: Object.fromEntries(totals) });
  else {
    const rows = [...totals]
      .sort(([, a], [, b]) => b.ms - a.ms)
      .map(([name, each]) => [name, (each.ms / count).toFixed(2), String(each.count)]);
    const columns = [{ title: 'WHAT' }, { title: 'MS A ROUND', align: 'right' }, { title: 'SPANS', align: 'right' }] as const;
    for (const line of table(columns, rows, { width: Number.POSITIVE_INFINITY, paintTitle: (text) => terminal.style('bold', text) }))
      terminal.print(line);
  }
  if (count < rounds) terminal.note(`Only ${count} rounds were seen whole by all processes.`);
  if (leftOut > 0) terminal.note(`${leftOut} more processes found no room: ask for fewer rounds.`);
  if (!isWhole) terminal.note('Some spans found no room: ask for fewer rounds.');
  terminal.note(`Rounds ${fromRound} to ${toRound} of ${processes} processes are in ${file}; open it in https://ui.perfetto.dev`);
  return EXIT.ok;
}
