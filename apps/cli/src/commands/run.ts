/** `paceline run ID`, `runs`, `cancel ID` and `workers`: what the api knows, as tables or JSON. */
import { FINAL_STATUSES, PacelineApiError, type PacelineClient, type RunStatus, type Worker } from '@paceline/client';
import { EXIT } from '@paceline/runtime/exit-codes';
import type { Command } from 'commander';
import { interruptSignal, wholeNumber, type CommandContext } from '../command.js';
import { paintStatus, printResult, printRun, printRuns } from '../show-run.js';
import { clean } from '../terminal/clean.js';
import { ago, bytes, count, table } from '../terminal/format.js';
import type { Terminal } from '../terminal/terminal.js';
import { eventLine, watchRun } from '../watch-run.js';

type Act = (
  action: (context: CommandContext, command: Command, argument: string) => Promise<number>,
) => (...args: unknown[]) => Promise<void>;

export function addRunCommands(program: Command, act: Act): void {
  program
    .command('runs')
    .description('Lists the runs of your team, newest first.')
    .option('--first <n>', 'how many', wholeNumber('--first', 1, 100), 20)
    .option('--after <cursor>', 'continue after this cursor of the page before')
    .option('--status <status...>', 'only these statuses, for example RUNNING QUEUED')
    .action(act(runs));
  program
    .command('run')
    .description(
      'Shows one run: status, progress, servers, seats, ledger and result.\nWith --watch its progress is shown until it is over.',
    )
    .argument('<id>', 'id of the run')
    .option('--watch', 'show its progress until it is over')
    .option('--events <n>', 'show its last events too', wholeNumber('--events', 1, 100))
    .action(act(run));
  program
    .command('cancel')
    .description('Cancels a run. What was trained so far is not kept.')
    .argument('<id>', 'id of the run')
    .action(act(cancel));
  program
    .command('workers')
    .description('Lists the workers and the parameter servers that report to the api.')
    .action(act(workers));
}

async function runs(context: CommandContext, command: Command): Promise<number> {
  const { terminal } = context;
  const { first, after, status } = command.opts<{ first: number; after?: string; status?: string[] }>();
  const client = context.connect();
  const page = await client.runs({
    first,
    ...(after === undefined ? {} : { after }),
    ...(status ? { status: status.map((text) => text.toUpperCase() as RunStatus) } : {}),
  });
  if (terminal.json) {
    terminal.document({ runs: page.nodes, totalCount: page.totalCount, nextCursor: page.nextCursor });
    return EXIT.ok;
  }
  if (page.nodes.length === 0) terminal.note('There are no runs. Start one with: paceline train');
  else printRuns(page.nodes, terminal, Date.now());
  if (page.nextCursor) terminal.note(`${page.nodes.length} of ${page.totalCount}. More with: paceline runs --after ${page.nextCursor}`);
  return EXIT.ok;
}

async function run(context: CommandContext, command: Command, id: string): Promise<number> {
  const { terminal } = context;
  const { watch, events } = command.opts<{ watch?: boolean; events?: number }>();
  const client = context.connect();
  try {
    const found = await client.run(id);
    if (!found) throw new PacelineApiError('NOT_FOUND', `There is no run ${clean(id, 60)}.`);
    const history = events === undefined ? undefined : (await client.events(id, { last: events })).nodes;
    if (watch) {
      const [newest] = (await client.events(id, { last: 1 })).nodes;
      for (const event of history ?? []) terminal.note(eventLine(event, terminal));
      const interrupt = interruptSignal();
      try {
        return await finishWatching(client, id, terminal, interrupt.signal, newest?.seq ?? 0);
      } finally {
        interrupt.dispose();
      }
    }
    if (terminal.json) terminal.document(history ? { ...found, events: history } : found);
    else printRun(found, terminal, Date.now());
    if (!terminal.json) for (const event of history ?? []) terminal.print(eventLine(event, terminal));
    return EXIT.ok;
  } finally {
    await client.close();
  }
}

/** Watches a run to its end and prints the result. @returns the exit code: 0 only for SUCCEEDED */
export async function finishWatching(
  client: PacelineClient,
  runId: string,
  terminal: Terminal,
  signal: AbortSignal,
  afterSeq: number,
): Promise<number> {
  const over = await watchRun(client, runId, terminal, { signal, afterSeq });
  if (!over) {
    if (terminal.json) terminal.document({ runId, detached: true });
    terminal.note(`Detached; the run goes on. Return to it with: paceline run ${runId} --watch`);
    return EXIT.interrupted;
  }
  if (terminal.json) terminal.document(over);
  terminal.print(`${paintStatus(over.status, terminal)}${over.statusReason ? `  ${clean(over.statusReason, 1000)}` : ''}`);
  if (!terminal.json) printResult(over, terminal);
  return over.status === 'SUCCEEDED' ? EXIT.ok : EXIT.unsuccessful;
}

async function cancel(context: CommandContext, _command: Command, id: string): Promise<number> {
  const { terminal } = context;
  const cancelled = await context.connect().cancelRun(id);
  if (terminal.json) terminal.document(cancelled);
  const isOver = FINAL_STATUSES.has(cancelled.status);
  terminal.print(
    isOver
      ? `${cancelled.id} is ${paintStatus(cancelled.status, terminal)}`
      : `${cancelled.id} is being cancelled (${paintStatus(cancelled.status, terminal)} now)`,
  );
  return EXIT.ok;
}

async function workers(context: CommandContext): Promise<number> {
  const { terminal } = context;
  const client = context.connect();
  const [fleet, servers] = await Promise.all([client.workers(), client.servers()]);
  if (terminal.json) {
    terminal.document({ workers: fleet, servers });
    return EXIT.ok;
  }
  if (fleet.length === 0) terminal.note('No worker reports to the api. `paceline up` starts some on this machine.');
  const columns = [
    { title: 'ROLE' },
    { title: 'NAME', least: 10 },
    { title: 'STATUS' },
    { title: 'HOST', drop: 5, least: 8 },
    { title: 'PID', align: 'right', drop: 4 },
    { title: 'MEMORY', align: 'right', drop: 3 },
    { title: 'SEEN', drop: 1 },
    { title: 'RUN', drop: 2, least: 8 },
    { title: 'ENGINE', drop: 6, least: 8 },
  ] as const;
  const now = Date.now();
  const rows = [
    ...fleet.map((member) => ({ role: 'worker', member, engine: engineText(member) })),
    ...servers.map((member) => ({ role: 'ps', member, engine: null })),
  ].map(({ role, member, engine }) => [
    role,
    clean(member.name, 60),
    member.status,
    clean(member.host, 60),
    String(member.pid),
    bytes(member.rssBytes),
    ago(member.lastSeenAt, now),
    member.runId ?? '–',
    clean(engine ?? '–', 80),
  ]);
  const width = terminal.stdout.isTTY ? terminal.stdout.columns() : 240;
  for (const line of table(columns, rows, { width, paintTitle: (text) => terminal.style('bold', text) })) terminal.print(line);
  return EXIT.ok;
}

/** The chosen engine, and how fast each is where it was measured: `tfjs-wasm 4.22.0 (wasm 12.3k/s, tensorflow 9.1k/s)`. */
function engineText({ engine, engines }: Worker): string | null {
  const measured = engines.filter(({ examplesPerSecond }) => examplesPerSecond !== null);
  const speeds = measured.map(({ name, examplesPerSecond }) => `${name} ${count(examplesPerSecond!)}/s`).join(', ');
  if (engine === null) return engines.length === 0 ? null : engines.map(({ name }) => name).join(', ');
  return `${engine.split(';')[0]!}${speeds ? ` (${speeds})` : ''}`;
}
