/** `paceline runs`, `run` and `workers`: what the api knows, as tables or JSON. */
import { PacelineApiError, type PacelineClient, type RunPredictions, type RunStatus, type RunSummary, type Worker } from '@paceline/client';
import { EXIT } from '@paceline/runtime/exit-codes';
import { UserError } from '@paceline/runtime/user-error';
import { Option, type Command } from 'commander';
import { wholeNumber, type Act, type CommandContext } from '../command.js';
import { suggestion } from '../did-you-mean.js';
import { printRun, printRuns } from '../show-run.js';
import { clean } from '../terminal/clean.js';
import { ago, bytes, count, plural } from '../terminal/format.js';
import { printTable } from '../terminal/print-table.js';
import { printHistory } from '../show-history.js';
import { eventLine, watchFrom } from '../watch-run.js';
import { noRun, RUN_ARGUMENT, shortId, whichRun } from '../which-run.js';

const STATUSES: readonly RunStatus[] = [
  ...(['PENDING', 'QUEUED', 'PROVISIONING', 'RUNNING', 'PAUSING', 'PAUSED', 'RECOVERING'] as const),
  ...(['SUCCEEDED', 'FAILED', 'CANCELLED'] as const),
];
const DEFAULT_LIMIT = 20;
/** What the api gives at once. */
const PAGE = 100;
const MAX_RUNS = 10_000;

export function addRunCommands(program: Command, act: Act): void {
  program
    .command('runs')
    .description(
      'Lists the runs of your team, newest first, with the last 8 characters of their ids: enough to name a run in other commands.\n' +
        'Loss and accuracy say what they were measured on: the test split at the end of a run (test), or the batches of its last round (train).',
    )
    .option('--status <status...>', `only these statuses: ${STATUSES.join(', ')}`)
    .option('--name <text>', 'only runs with this in their name')
    .option('--limit <n>', 'how many', wholeNumber('--limit', 1, MAX_RUNS), DEFAULT_LIMIT)
    .option('--all', `all of them, ${MAX_RUNS} at most`)
    .addOption(new Option('--after <cursor>', 'for programs: continue after the `nextCursor` of an answer with --json'))
    .action(act(runs));
  program
    .command('run')
    .description('Shows one run: status, progress, servers, workers and result.\nWith --watch its progress is shown until it is over.')
    .argument('<run>', RUN_ARGUMENT)
    .option('--watch', 'show its progress until it is over')
    .option('--events <n>', 'show its last events too', wholeNumber('--events', 1, 100))
    .addOption(
      new Option(
        '--predictions',
        'show what its result says of the evaluation split: confusions of classes, errors of numbers; not with --watch',
      ).conflicts('watch'),
    )
    .action(act(run));
  program.command('workers').description('Lists the workers and the parameter servers that report to the api.').action(act(workers));
}

interface RunsOptions {
  readonly limit: number;
  readonly all?: boolean;
  readonly after?: string;
  readonly status?: string[];
  readonly name?: string;
}

async function runs(context: CommandContext, command: Command): Promise<number> {
  const { terminal } = context;
  const options = command.opts<RunsOptions>();
  const status = options.status?.flatMap((text) => text.split(',')).map(statusNamed);
  const page = await readRuns(context.connect(), options, status);
  if (terminal.json) {
    terminal.document({ runs: page.nodes, totalCount: page.totalCount, nextCursor: page.nextCursor });
    return EXIT.ok;
  }
  if (page.nodes.length > 0) printRuns(page.nodes, terminal, Date.now());
  else if (status || options.name !== undefined) terminal.note('No run matches.');
  else terminal.note(`There are no runs. Start one with: ${terminal.program} train`);
  if (page.nextCursor) {
    const more = Math.min(MAX_RUNS, page.nodes.length * 5);
    terminal.note(`${page.nodes.length} of ${plural(page.totalCount, 'run')}. More with --limit ${more}, or --all.`);
  }
  return EXIT.ok;
}

async function readRuns(client: PacelineClient, { limit, all, after, name }: RunsOptions, status: readonly RunStatus[] | undefined) {
  const nodes: RunSummary[] = [];
  const wanted = all ? MAX_RUNS : limit;
  let cursor = after;
  for (;;) {
    const first = Math.min(PAGE, wanted - nodes.length);
    const page = await client.runs({
      first,
      ...(cursor === undefined ? {} : { after: cursor }),
      ...(status ? { status } : {}),
      ...(name === undefined ? {} : { name }),
    });
    nodes.push(...page.nodes);
    if (page.nextCursor === null || nodes.length >= wanted) return { nodes, totalCount: page.totalCount, nextCursor: page.nextCursor };
    cursor = page.nextCursor;
  }
}

/** @throws UserError FLAG_INVALID */
function statusNamed(text: string): RunStatus {
  const named = STATUSES.find((status) => status === text.trim().toUpperCase());
  if (named) return named;
  throw new UserError('FLAG_INVALID', `--status ${JSON.stringify(text.slice(0, 40))} is no status${suggestion(text, STATUSES) || '.'}`, {
    hint: `A run is ${STATUSES.slice(0, -1).join(', ')} or ${STATUSES.at(-1)!}.`,
    exit: 'usage',
  });
}

async function run(context: CommandContext, command: Command, reference: string): Promise<number> {
  const { terminal } = context;
  const { watch, events, predictions } = command.opts<{ watch?: boolean; events?: number; predictions?: boolean }>();
  const client = context.connect();
  try {
    const id = await whichRun(client, reference);
    const found = await client.run(id);
    if (!found) throw noRun(id);
    const history = events === undefined ? undefined : (await client.events(id, { last: events })).nodes;
    if (watch) {
      for (const event of history ?? []) terminal.note(eventLine(event, terminal));
      return await watchFrom(client, id, terminal);
    }
    const asked = predictions ? { predictions: await predictionsOf(client, id) } : {};
    if (terminal.json) terminal.document(Object.assign({}, found, history && { events: history }, asked));
    else printRun(found, terminal, Date.now(), client.url);
    if (terminal.json) return EXIT.ok;
    await printHistory(client, found, terminal);
    for (const event of history ?? []) terminal.print(eventLine(event, terminal));
    if (asked.predictions) (await import('../show-predictions.js')).printPredictions(asked.predictions, terminal);
    return EXIT.ok;
  } finally {
    await client.close();
  }
}

/** @throws UserError with the reason when there are none */
function predictionsOf(client: PacelineClient, id: string): Promise<RunPredictions> {
  return client.predictions(id).catch((error: unknown) => {
    if (!(error instanceof PacelineApiError) || !['CONFLICT', 'PREDICTIONS_UNAVAILABLE'].includes(error.code)) throw error;
    throw new UserError('PREDICTIONS_UNAVAILABLE', error.message, { exit: 'unsuccessful', cause: error });
  });
}

export async function workers(context: Pick<CommandContext, 'terminal' | 'connect'>): Promise<number> {
  const { terminal } = context;
  const client = context.connect();
  const [fleet, servers] = await Promise.all([client.workers(), client.servers()]);
  if (terminal.json) {
    terminal.document({ workers: fleet, servers });
    return EXIT.ok;
  }
  if (fleet.length === 0) terminal.note(`No worker reports to the api. \`${terminal.program} up\` starts some on this machine.`);
  const columns = [
    { title: 'ROLE' },
    { title: 'NAME', least: 10 },
    { title: 'STATUS' },
    { title: 'HOST', drop: 5, least: 8 },
    { title: 'PID', align: 'right', drop: 4 },
    { title: 'MEMORY', align: 'right', drop: 3 },
    { title: 'SEEN', drop: 1 },
    { title: 'RUN', drop: 2 },
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
    member.runId === null ? '–' : shortId(member.runId),
    clean(engine ?? '–', 80),
  ]);
  printTable(terminal, columns, rows);
  if ([...fleet, ...servers].some(({ status }) => status === 'LOST'))
    terminal.note(
      'LOST: no heartbeat for 5 s; it leaves this list ten minutes after its last one. One that says goodbye leaves it at once.',
    );
  return EXIT.ok;
}

/** The chosen engine, and how fast each is where it was measured: `tfjs-wasm 4.22.0 (wasm 12.3k/s, tensorflow 9.1k/s)`. */
function engineText({ engine, engines }: Worker): string | null {
  const measured = engines.filter(({ examplesPerSecond }) => examplesPerSecond !== null);
  const speeds = measured.map(({ name, examplesPerSecond }) => `${name} ${count(examplesPerSecond!)}/s`).join(', ');
  if (engine === null) return engines.length === 0 ? null : engines.map(({ name }) => name).join(', ');
  return `${engine.split(';')[0]!}${speeds ? ` (${speeds})` : ''}`;
}
