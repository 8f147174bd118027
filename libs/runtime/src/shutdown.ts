/**
 * One way to end for every process:
 *
 *     SIGTERM | SIGINT | SIGHUP | parent gone | IPC closed  ->  handlers, newest first, within the deadline  ->  exit
 *     a second SIGINT or SIGTERM                             ->  exit at once
 *     the same signal within 300 ms                          ->  nothing: npm passes on the Ctrl-C that the terminal has sent to both
 *     SIGHUP without a terminal                              ->  nothing: a session has closed that it does not use, as with nohup
 *
 * That nohup has SIGHUP ignored is not to be seen, since Node and npm set every signal back when they start; but it leaves no terminal.
 *
 * "Parent gone" keeps orphans away when a launcher is SIGKILLed and can pass nothing on: with PACELINE_PARENT_PID set,
 * the parent's id is compared twice a second (the kernel gives an orphan a new parent), and a closed IPC channel counts too.
 */
import { isatty } from 'node:tty';
import { EXIT } from './exit-codes.js';
import { readEnvironment, VARIABLES } from './environment.js';

export type ShutdownReason = 'SIGTERM' | 'SIGINT' | 'SIGHUP' | 'parent-gone' | 'requested';
export type ShutdownHandler = (reason: ShutdownReason) => void | Promise<void>;

export interface ShutdownOptions {
  /** For all handlers together; afterwards the process exits with `EXIT.internal`. */
  readonly deadlineMs?: number;
  /** Exit code once the handlers are done; by default 0, so that a supervisor sees a planned end. */
  readonly exitCode?: (reason: ShutdownReason) => number;
  /** Told about handlers that fail or take too long. */
  readonly onProblem?: (message: string, error?: unknown) => void;
}

const PARENT_POLL_MS = 500;
const SAME_KEYSTROKE_MS = 300;

interface State {
  readonly handlers: { readonly handler: ShutdownHandler; readonly options: ShutdownOptions }[];
  running: boolean;
  /** The signal that it ends by. */
  first?: { readonly signal: NodeJS.Signals; readonly atMs: number };
}
let state: State | undefined;

/** Registers a handler; returns a function that takes it away again. The first call installs the signal handlers. */
export function onShutdown(handler: ShutdownHandler, options: ShutdownOptions = {}): () => void {
  state ??= install();
  const entry = { handler, options };
  const { handlers } = state;
  handlers.push(entry);
  return () => {
    const at = handlers.indexOf(entry);
    if (at >= 0) handlers.splice(at, 1);
  };
}

/** Runs the handlers as a signal would and exits. */
export function requestShutdown(reason: ShutdownReason = 'requested'): void {
  state ??= install();
  void run(state, reason);
}

function install(): State {
  const created: State = { handlers: [], running: false };
  const hasTerminal = [0, 1, 2].some((descriptor) => isatty(descriptor));
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) {
    process.on(signal, () => {
      if (signal === 'SIGHUP' && !hasTerminal) return;
      const { first } = created;
      if (first?.signal === signal && performance.now() - first.atMs < SAME_KEYSTROKE_MS) return;
      if (created.running && signal !== 'SIGHUP') process.exit(signal === 'SIGINT' ? EXIT.interrupted : EXIT.internal);
      created.first = { signal, atMs: performance.now() };
      void run(created, signal);
    });
  }
  const { PACELINE_PARENT_PID: parentPid } = readEnvironment({ PACELINE_PARENT_PID: VARIABLES.PACELINE_PARENT_PID });
  if (parentPid !== undefined) {
    setInterval(() => {
      if (process.ppid !== parentPid) void run(created, 'parent-gone');
    }, PARENT_POLL_MS).unref();
  }
  if (process.channel) process.once('disconnect', () => void run(created, 'parent-gone'));
  return created;
}

async function run(current: State, reason: ShutdownReason): Promise<void> {
  if (current.running) return;
  current.running = true;
  const entries = [...current.handlers].reverse();
  const deadlineMs = Math.max(0, ...entries.map((entry) => entry.options.deadlineMs ?? 10_000));
  const report = (message: string, error?: unknown): void => {
    const told = entries.find((entry) => entry.options.onProblem);
    if (told) told.options.onProblem!(message, error);
    else process.stderr.write(`${message}${error instanceof Error ? `: ${error.message}` : ''}\n`);
  };
  setTimeout(() => {
    report(`shutdown (${reason}) was not done after ${deadlineMs} ms`);
    process.exit(EXIT.internal);
  }, deadlineMs);
  let failed = false;
  for (const { handler } of entries) {
    try {
      await handler(reason);
    } catch (error) {
      failed = true;
      report(`a shutdown handler failed (${reason})`, error);
    }
  }
  const planned = entries.find((entry) => entry.options.exitCode)?.options.exitCode?.(reason) ?? EXIT.ok;
  process.exit(failed ? EXIT.internal : planned);
}
