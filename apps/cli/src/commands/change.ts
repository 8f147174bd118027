/** `paceline pause`, `resume`, `scale`, `extend` and `checkpoints`: what changes a run that exists, and what it can go back to. */
import { FINAL_STATUSES, type PacelineClient, type Run } from '@paceline/client';
import { EXIT } from '@paceline/runtime/exit-codes';
import { UserError } from '@paceline/runtime/user-error';
import type { Command } from 'commander';
import { wholeNumber, type CommandContext } from '../command.js';
import { paintStatus } from '../show-run.js';
import { clean } from '../terminal/clean.js';
import { ago, bytes, decimals, table } from '../terminal/format.js';

type Act = (
  action: (context: CommandContext, command: Command, ...args: string[]) => Promise<number>,
) => (...args: unknown[]) => Promise<void>;

const PAUSED_WITHIN_MS = 15_000;
const LOOK_EVERY_MS = 250;
const MANY = 10_000_000;

export function addChangeCommands(program: Command, act: Act): void {
  program
    .command('pause')
    .description('Pauses a run: it writes a checkpoint at its next commit and lets servers and workers go.')
    .argument('<id>', 'id of the run')
    .action(act(pause));
  program
    .command('resume')
    .description('Lets a paused run go on from its last checkpoint.')
    .argument('<id>', 'id of the run')
    .option('--servers <n>', 'another number of parameter servers', wholeNumber('--servers', 1, 1024))
    .action(act(resume));
  program
    .command('scale')
    .description(
      'Sets how many workers may hold a seat in a run at the same time, from 1 to its replicas. The weights do not depend on it.',
    )
    .argument('<id>', 'id of the run')
    .argument('<workers>', 'workers at most')
    .action(act(scale));
  program
    .command('extend')
    .description('Trains a paused or finished run for so many rounds or epochs more, from its last checkpoint.')
    .argument('<id>', 'id of the run')
    .option('--rounds <n>', 'rounds more', wholeNumber('--rounds', 1, MANY))
    .option('--epochs <n>', 'epochs more', wholeNumber('--epochs', 1, MANY))
    .action(act(extend));
  program
    .command('checkpoints')
    .description('Lists the checkpoints of a run, newest first.')
    .argument('<id>', 'id of the run')
    .action(act(checkpoints));
}

async function pause(context: CommandContext, _command: Command, ...[id]: string[]): Promise<number> {
  const client = context.connect();
  return show(context, await settled(client, await client.pauseRun(id!)));
}

/** A pause takes a commit and a checkpoint: worth the wait. */
async function settled(client: PacelineClient, run: Run): Promise<Run> {
  const deadline = Date.now() + PAUSED_WITHIN_MS;
  let newest = run;
  while (newest.status === 'PAUSING' && Date.now() < deadline) {
    await new Promise((resolve) => setTimeout(resolve, LOOK_EVERY_MS));
    newest = (await client.run(run.id)) ?? newest;
  }
  return newest;
}

async function resume(context: CommandContext, command: Command, ...[id]: string[]): Promise<number> {
  const { servers } = command.opts<{ servers?: number }>();
  return show(context, await context.connect().resumeRun(id!, { servers }));
}

async function scale(context: CommandContext, _command: Command, ...[id, workers]: string[]): Promise<number> {
  const run = await context.connect().scaleRun(id!, wholeNumber('workers', 1, MANY)(workers!));
  if (!context.terminal.json) context.terminal.print(`${run.id} may have ${run.workersWanted} of ${run.progress.replicas} workers`);
  else context.terminal.document(run);
  return EXIT.ok;
}

async function extend(context: CommandContext, command: Command, ...[id]: string[]): Promise<number> {
  const { rounds, epochs } = command.opts<{ rounds?: number; epochs?: number }>();
  if ((rounds === undefined) === (epochs === undefined))
    throw new UserError('FLAG_INVALID', 'Say how much longer: either --rounds N or --epochs N.', { exit: 'usage' });
  const more = rounds === undefined ? { epochs: epochs! } : { rounds };
  return show(context, await context.connect().extendRun(id!, more));
}

function show({ terminal }: CommandContext, run: Run): number {
  if (terminal.json) terminal.document(run);
  else {
    const why = run.statusReason ? `  ${clean(run.statusReason, 1000)}` : '';
    terminal.print(`${run.id} is ${paintStatus(run.status, terminal)}${why}`);
    if (!FINAL_STATUSES.has(run.status) && run.status !== 'PAUSED') terminal.note(`Watch it with: paceline run ${run.id} --watch`);
  }
  return EXIT.ok;
}

async function checkpoints({ terminal, connect }: CommandContext, _command: Command, ...[id]: string[]): Promise<number> {
  const found = await connect().checkpoints(id!);
  if (terminal.json) {
    terminal.document({ checkpoints: found });
    return EXIT.ok;
  }
  if (found.length === 0) {
    terminal.note('The run has no checkpoint yet.');
    return EXIT.ok;
  }
  const columns = [
    { title: 'ROUND', align: 'right' },
    { title: 'ATTEMPT', align: 'right' },
    { title: 'STATE' },
    { title: 'REASON', drop: 1 },
    { title: 'LOSS', align: 'right', drop: 2 },
    { title: 'SIZE', align: 'right', drop: 3 },
    { title: 'CREATED', drop: 4 },
    { title: 'SHA256', drop: 5, least: 12 },
  ] as const;
  const now = Date.now();
  const rows = found.map((checkpoint) => [
    `${checkpoint.round}/${checkpoint.totalRounds}`,
    String(checkpoint.attempt),
    clean(checkpoint.state, 20),
    clean(checkpoint.reason, 20),
    decimals(checkpoint.loss, 4),
    bytes(checkpoint.bytes),
    ago(checkpoint.createdAt, now),
    clean(checkpoint.sha256, 64),
  ]);
  const width = terminal.stdout.isTTY ? terminal.stdout.columns() : 200;
  for (const line of table(columns, rows, { width, paintTitle: (text) => terminal.style('bold', text) })) terminal.print(line);
  return EXIT.ok;
}
