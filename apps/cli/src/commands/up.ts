/** `paceline up` and `paceline down`: the long-running local stack. */
import { mkdirSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { resolve } from 'node:path';
import {
  DEFAULT_RESTART,
  endProcess,
  EXIT,
  formerData,
  linkOf,
  onShutdown,
  readEnvironment,
  requestShutdown,
  userDirectories,
  UserError,
  VARIABLES,
  type SupervisorEvent,
} from '@paceline/runtime';
import { type Command, Option } from 'commander';
import { wholeNumber, type CommandContext } from '../command.js';
import { linkTo } from '../dashboard-link.js';
import { portFor } from '../stack/api-port.js';
import { LAST_CHECKPOINT_MS, startLocalStack, type LocalStack } from '../stack/local-stack.js';
import { ensureKey, keepAdminKey, readSecrets } from '../stack/stack-keys.js';
import { CHECKOUT, dataDirUnusable, elsewhere, lockStack, runningStack, runsElsewhere, type StackLock } from '../stack/stack-lock.js';
import { clean } from '../terminal/clean.js';
import type { Terminal } from '../terminal/terminal.js';

type Act = (
  action: (context: CommandContext, command: Command, argument: string) => Promise<number>,
) => (...args: unknown[]) => Promise<void>;

export const DEFAULT_PORT = 4100;
/** Servers, then workers, the api, and the databases, each within its own deadline. */
const STOP_DEADLINE_MS = 60_000;

export function addStackCommands(program: Command, act: Act): void {
  program
    .command('up')
    .summary('run everything on this machine')
    .description(
      'Starts PostgreSQL, Redis, the api with the dashboard, parameter servers and workers on this machine, and keeps them running until Ctrl-C or `paceline down`.\n' +
        'DATABASE_URL and REDIS_URL use databases of your own. Data is kept in a per-user folder (PACELINE_HOME chooses another).\n' +
        'When it stops, every run that trains finishes its round and writes a checkpoint, and the next `up` goes on from there.',
    )
    .addOption(
      new Option('--workers <n>', 'worker processes')
        .argParser(wholeNumber('--workers', 0, 64))
        .default(Math.max(1, Math.min(4, availableParallelism())), 'one per core, at most 4'),
    )
    .option(
      '--servers <n>',
      'parameter-server processes; runs whose workers hold the parameters need none',
      wholeNumber('--servers', 0, 64),
      1,
    )
    .option(
      '--port <n>',
      'port of the api and the dashboard; 0 takes a free one, and so does the default when it is taken',
      wholeNumber('--port', 0, 65_535),
      DEFAULT_PORT,
    )
    .option('--host <address>', 'address to listen on; others can reach it with 0.0.0.0', '127.0.0.1')
    .option('--tls', 'encrypt TCP between workers and servers, with certificates of a CA of its own; PACELINE_TLS=on does the same')
    .addOption(
      new Option(
        '--link <speed>',
        'slow each worker down to such a link, each way, to try out what a network would do; 20mbit,30ms for example',
      ).argParser(link),
    )
    .action(act(up));
  program
    .command('down')
    .summary('stop what `up` started')
    .description('Stops the local stack of `paceline up` and waits until nothing of it runs.')
    .action(act(down));
}

const ENVIRONMENT = {
  DATABASE_URL: VARIABLES.DATABASE_URL.optional(),
  REDIS_URL: VARIABLES.REDIS_URL.optional(),
  PACELINE_TLS: VARIABLES.PACELINE_TLS,
};

/** @throws UserError FLAG_INVALID */
function link(text: string): string {
  if (linkOf(text)) return text;
  throw new UserError('FLAG_INVALID', `--link ${JSON.stringify(text.slice(0, 80))} is not a speed with a delay.`, {
    hint: 'It must be like 20mbit,30ms: at least 8kbit a second, and milliseconds each way.',
    exit: 'usage',
  });
}

interface UpOptions {
  readonly workers: number;
  readonly servers: number;
  readonly port: number;
  readonly host: string;
  readonly tls?: boolean;
  readonly link?: string;
}

async function up({ terminal, env, onStack }: CommandContext, command: Command): Promise<number> {
  const options = command.opts<UpOptions>();
  const mayMove = command.getOptionValueSource('port') === 'default';
  const { data: dataDir } = userDirectories(env);
  const { DATABASE_URL: databaseUrl, REDIS_URL: redisUrl, PACELINE_TLS } = readEnvironment(ENVIRONMENT, env);
  const tls = options.tls ?? PACELINE_TLS === 'on';
  makeDataDir(dataDir);
  const lock = lockStack(dataDir);
  let stack: LocalStack | undefined;
  let failure: number = EXIT.ok;
  const stopping = new AbortController();
  // From here on a signal ends everything, also while it is still starting.
  const starting = begin();
  onShutdown(
    async (reason) => {
      stopping.abort();
      if (reason !== 'requested')
        terminal.note(
          lock.isLost()
            ? `another host has taken ${dataDir}: what runs here is killed, without a last checkpoint`
            : `stopping: runs that train finish their round and write a checkpoint, for at most ${LAST_CHECKPOINT_MS / 1000} s; again: at once`,
        );
      await (stack ?? (await starting.catch(() => undefined)))?.stop(); // why it did not start is told where it is awaited
      lock.release();
    },
    { deadlineMs: STOP_DEADLINE_MS, exitCode: (reason) => (reason === 'requested' ? failure : EXIT.ok) },
  );

  void lock.lost.then(() => stack?.abandon()); // also while it stops

  async function begin(): Promise<LocalStack> {
    const former = formerData(dataDir);
    if (former)
      terminal.note(`Runs of an earlier version lie in ${former}; PACELINE_HOME=${former} goes on with them. This start uses ${dataDir}.`);
    const port = await portFor(options, mayMove, terminal);
    const secrets = readSecrets(dataDir);
    return startLocalStack({
      ...options,
      tls,
      port,
      dataDir,
      temporary: false,
      databaseUrl,
      redisUrl,
      ...secrets,
      restart: DEFAULT_RESTART,
      isTaken: () => lock.isLost(),
      signal: stopping.signal,
      onStep: (text) => terminal.note(terminal.style('dim', text, 'stderr')),
      onEvent: (event) => noteEvent(event, terminal, lock, () => stack),
    });
  }

  try {
    stack = await starting;
    keepAdminKey(stack, dataDir, terminal);
    const apiKey = await ensureKey(stack.url, dataDir, env, terminal);
    tellOthers(lock, { url: stack.url, processes: stack.processes(), tls }, terminal);
    announce(stack, apiKey, dataDir, terminal);
    onStack?.(stack);
  } catch (error) {
    if (stopping.signal.aborted) return new Promise(() => undefined); // the shutdown handler exits
    await stack?.stop();
    lock.release();
    throw error;
  }
  const reason = await Promise.race([stack.failed, lock.lost]);
  terminal.note(`${terminal.style('red', 'error', 'stderr')} ${clean(reason, 1000)}`);
  failure = EXIT.unavailable;
  requestShutdown();
  return new Promise(() => undefined); // the shutdown handler exits
}

function makeDataDir(dataDir: string): void {
  try {
    mkdirSync(dataDir, { recursive: true });
  } catch (error) {
    throw dataDirUnusable(dataDir, error);
  }
}

function announce(stack: LocalStack, apiKey: string, dataDir: string, terminal: Terminal): void {
  if (terminal.json)
    terminal.document({
      url: stack.url,
      link: linkTo(stack.url, apiKey),
      apiKey,
      pid: process.pid,
      dataDir,
      logDir: stack.logDir,
      processes: stack.processes(),
      services: stack.services,
    });
  const line = (name: string, value: string): void => terminal.print(`  ${terminal.style('dim', name.padEnd(11))} ${value}`);
  terminal.print(`${terminal.style('green', 'Paceline is running.')} Ctrl-C stops it.`);
  line('dashboard', `${terminal.style('bold', linkTo(stack.url, apiKey))}  (signs in)`);
  line('api', stack.url);
  line('api key', apiKey);
  line('data', dataDir);
  line('logs', stack.logDir);
  const home = process.env['PACELINE_HOME'] ? `PACELINE_HOME=${quoted(resolve(process.env['PACELINE_HOME']))} ` : '';
  terminal.print(`Paste in another terminal: cd ${quoted(CHECKOUT)} && ${home}npx paceline train --epochs 1`);
}

/** For a POSIX shell, where it has to be. */
const quoted = (text: string): string => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`);

function noteEvent(event: SupervisorEvent, terminal: Terminal, lock: StackLock, stack: () => LocalStack | undefined): void {
  if (event.state === 'BACKOFF') terminal.note(`${terminal.style('yellow', event.name, 'stderr')} ${event.message}`);
  const running = stack();
  if (!running || event.state !== 'READY') return;
  terminal.note(`${terminal.style('green', event.name, 'stderr')} runs again (pid ${event.pid})`);
  tellOthers(lock, { processes: running.processes() }, terminal);
}

function tellOthers(lock: StackLock, changes: Parameters<StackLock['update']>[0], terminal: Terminal): void {
  const problem = lock.update(changes);
  if (problem) terminal.note(`What other commands read of this stack is not up to date: ${problem.message}`);
}

async function down({ terminal, env }: CommandContext): Promise<number> {
  const { data: dataDir } = userDirectories(env);
  const running = runningStack(dataDir);
  if (!running) {
    if (terminal.json) terminal.document({ stopped: false, reason: 'not running' });
    terminal.print(`Nothing runs for ${dataDir}.`);
    return EXIT.ok;
  }
  const host = elsewhere(running);
  if (host !== undefined) throw runsElsewhere(dataDir, host, running.pid);
  const inTime = await endProcess(running.pid, { deadlineMs: STOP_DEADLINE_MS + 5000 });
  if (terminal.json) terminal.document({ stopped: true, pid: running.pid, killed: !inTime });
  terminal.print(
    inTime ? `Stopped (pid ${running.pid}).` : `It did not end in time and was killed (pid ${running.pid}); its processes end with it.`,
  );
  return EXIT.ok;
}
