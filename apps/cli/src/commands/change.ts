/** `paceline pause`, `resume`, `scale`, `extend` and `cancel`: what changes a run that exists. */
import { createInterface } from 'node:readline/promises';
import { FINAL_STATUSES, PacelineApiError, type PacelineClient, type Run, type RunCheckpoint, type RunSummary } from '@paceline/client';
import { shardHostsIn } from '@paceline/spec/shard-holders';
import { EXIT } from '@paceline/runtime/exit-codes';
import { UserError } from '@paceline/runtime/user-error';
import type { Command } from 'commander';
import { wholeNumber, type Act, type CommandContext } from '../command.js';
import { paintStatus } from '../show-run.js';
import { clean } from '../terminal/clean.js';
import { duration, plural } from '../terminal/format.js';
import { watchFrom } from '../watch-run.js';
import { RUN_ARGUMENT, shortId, whichRun } from '../which-run.js';

/** Pausing takes a commit and a checkpoint, cancelling a commit: 10 s at most, both worth the wait. */
const SETTLED_WITHIN_MS = 15_000;
const LOOK_EVERY_MS = 250;
const MANY = 10_000_000;
/** Cancelling a run that has trained for longer is asked about. */
const LONG_MS = 5 * 60_000;

export function addChangeCommands(program: Command, act: Act): void {
  const change = (name: string, description: string): Command =>
    program.command(name).description(description).argument('<run>', RUN_ARGUMENT);
  const watched = (command: Command): Command => command.option('--watch', 'then show its progress until it is over');
  change('pause', 'Pauses a run: it writes a checkpoint at its next commit and lets servers and workers go.')
    .option('--watch', 'show its progress until it is paused')
    .action(act(pause));
  watched(change('resume', 'Resumes a paused run from its last checkpoint.'))
    .option('--servers <n>', 'another number of parameter servers', wholeNumber('--servers', 1, 1024))
    .action(act(resume));
  watched(
    change(
      'scale',
      'Sets how many workers may train a run at the same time, from 1 to its replicas. The weights do not depend on it. Where workers hold the parameters, the run writes a checkpoint and goes on with that many, as soon as they are free: its weights are those of any run that goes on from a checkpoint.',
    ),
  )
    .argument('<workers>', 'how many')
    .action(act(scale));
  watched(change('extend', 'Trains a paused or finished run for more rounds or epochs, from its last checkpoint.'))
    .option('--rounds <n>', 'rounds more', wholeNumber('--rounds', 1, MANY))
    .option('--epochs <n>', 'epochs more', wholeNumber('--epochs', 1, MANY))
    .action(act(extend));
  change(
    'cancel',
    'Ends a run for good: it cannot be resumed. Checkpoints that it has written stay, and `paceline train --resume-from RUN` begins a new run with them.\n' +
      'On a terminal it asks first when the run has trained for more than 5 minutes, or was named as @last.',
  )
    .option('-y, --yes', 'do not ask')
    .action(act(cancel));
}

async function pause(context: CommandContext, command: Command, reference: string): Promise<number> {
  const client = context.connect();
  const id = await whichRun(client, reference);
  const asked = await client.pauseRun(id);
  if (!command.opts<{ watch?: boolean }>().watch) return show(context, await settled(client, asked, ({ status }) => status !== 'PAUSING'));
  try {
    return await watchFrom(client, id, context.terminal, ({ status }) => status === 'PAUSED');
  } finally {
    await client.close();
  }
}

/** The run as it is when `isSettled`, or after a while. */
async function settled<T extends RunSummary>(client: PacelineClient, run: T, isSettled: (run: RunSummary) => boolean): Promise<T | Run> {
  const deadline = Date.now() + SETTLED_WITHIN_MS;
  let newest: T | Run = run;
  while (!isSettled(newest) && Date.now() < deadline) {
    await new Promise((resolve) => setTimeout(resolve, LOOK_EVERY_MS));
    newest = (await client.run(run.id)) ?? newest;
  }
  return newest;
}

async function resume(context: CommandContext, command: Command, reference: string): Promise<number> {
  const { servers } = command.opts<{ servers?: number }>();
  const client = context.connect();
  return watchOrShow(context, command, client, await client.resumeRun(await whichRun(client, reference), { servers }));
}

async function scale(context: CommandContext, command: Command, reference: string, workers: string): Promise<number> {
  const client = context.connect();
  // From 1 to its replicas: the api knows how many it has.
  const wanted = wholeNumber('workers', 0, MANY)(workers);
  const run = await client.scaleRun(await whichRun(client, reference), wanted);
  const { terminal } = context;
  if (!terminal.json) {
    const workers = plural(run.workersWanted, 'worker');
    if (shardHostsIn(run.spec) === 'servers')
      terminal.print(`${said(run)} may have ${workers} for its ${plural(run.progress.replicas, 'replica')}`);
    else terminal.print(`${said(run)} ${isThere(run) ? 'has' : 'goes on with'} ${workers}${isThere(run) ? '' : ', from a checkpoint'}`);
  }
  if (command.opts<{ watch?: boolean }>().watch) return watchOrShow(context, command, client, run);
  if (terminal.json) terminal.document(run);
  return EXIT.ok;
}

/** Whether as many workers hold the parameters as are wanted. */
const isThere = ({ spec, workersWanted }: Run): boolean =>
  (spec as { readonly strategy?: { readonly workers?: number } }).strategy?.workers === workersWanted;

async function extend(context: CommandContext, command: Command, reference: string): Promise<number> {
  const { rounds, epochs } = command.opts<{ rounds?: number; epochs?: number }>();
  if ((rounds === undefined) === (epochs === undefined))
    throw new UserError('FLAG_INVALID', 'Say how much longer: either --rounds N or --epochs N.', { exit: 'usage' });
  const more = rounds === undefined ? { epochs: epochs! } : { rounds };
  const client = context.connect();
  return watchOrShow(context, command, client, await client.extendRun(await whichRun(client, reference), more));
}

async function cancel(context: CommandContext, command: Command, reference: string): Promise<number> {
  const { terminal } = context;
  const client = context.connect();
  const id = await whichRun(client, reference);
  if (!command.opts<{ yes?: boolean }>().yes && !(await isAgreed(context, client, id, reference === '@last'))) {
    terminal.note('Nothing was changed.');
    return EXIT.interrupted;
  }
  const run = await settled(client, await client.cancelRun(id), ({ status }) => FINAL_STATUSES.has(status));
  if (terminal.json) {
    terminal.document(run);
    return EXIT.ok;
  }
  if (!FINAL_STATUSES.has(run.status)) {
    terminal.print(`${said(run)} will end at its next commit (${paintStatus(run.status, terminal)} now)`);
    return EXIT.ok;
  }
  terminal.print(`${said(run)} is ${paintStatus(run.status, terminal)}`);
  const kept = (await checkpointsOf(client, id)).find(({ state }) => state === 'USABLE');
  if (kept && kept.round > 0)
    terminal.note(
      `Its checkpoint of round ${kept.round} is kept. Begin a new run with it: ${terminal.program} train --resume-from ${shortId(id)}`,
    );
  return EXIT.ok;
}

/** Nothing where they cannot be had: the run is cancelled, and that is said. */
async function checkpointsOf(client: PacelineClient, id: string): Promise<readonly RunCheckpoint[]> {
  return client.checkpoints(id).catch((error: unknown) => {
    if (!(error instanceof PacelineApiError)) throw error;
    return [];
  });
}

/** Asks about a run that has trained for long, or that was not named (`@last` may be a colleague's by now), where somebody can answer. */
async function isAgreed({ terminal }: CommandContext, client: PacelineClient, id: string, isUnnamed: boolean): Promise<boolean> {
  if (terminal.json || !terminal.stderr.isTTY || !process.stdin.isTTY) return true;
  const run = await client.runProgress(id);
  if (!run || FINAL_STATUSES.has(run.status)) return true;
  const beganMs = Date.now() - Date.parse(run.startedAt ?? run.createdAt);
  if (!isUnnamed && (run.startedAt === null || beganMs < LONG_MS)) return true;
  const { round, totalRounds } = run.progress;
  const reader = createInterface({ input: process.stdin, output: process.stderr });
  try {
    const answer = await reader.question(
      `${said(run)} began ${duration(beganMs / 1000)} ago and is at round ${round} of ${totalRounds}. End it for good? [y/N] `,
    );
    return /^y(es)?$/i.test(answer.trim());
  } catch (error) {
    if ((error as { code?: unknown }).code === 'ABORT_ERR') return false; // Ctrl-C and Ctrl-D are no yes
    throw error;
  } finally {
    reader.close();
  }
}

const said = (run: Pick<RunSummary, 'id' | 'name'>): string => `${clean(run.name, 60)} (${shortId(run.id)})`;

async function watchOrShow(context: CommandContext, command: Command, client: PacelineClient, run: Run): Promise<number> {
  if (!command.opts<{ watch?: boolean }>().watch) return show(context, run);
  try {
    return await watchFrom(client, run.id, context.terminal);
  } finally {
    await client.close();
  }
}

function show({ terminal }: CommandContext, run: Run): number {
  if (terminal.json) terminal.document(run);
  else {
    const why = run.statusReason ? `  ${terminal.typed(clean(run.statusReason, 1000))}` : '';
    terminal.print(`${said(run)} is ${paintStatus(run.status, terminal)}${why}`);
    if (run.status === 'PAUSED') terminal.note(`Let it go on with: ${terminal.program} resume ${shortId(run.id)}`);
    else if (!FINAL_STATUSES.has(run.status)) terminal.note(`Watch it with: ${terminal.program} run ${shortId(run.id)} --watch`);
  }
  return EXIT.ok;
}
