/**
 * Keeps one process of the local stack running.
 *
 *     STARTING --ready line--> READY --ends--> BACKOFF --delay--> STARTING
 *     STARTING --ends | deadline--> BACKOFF
 *     BACKOFF  --budget used up--> FAILED
 *     any      --ends with a usage or configuration code--> FAILED    (starting it again would give the same)
 *     any      --restart(), ended--> STARTING    (at once; it spends no budget)
 *     any      --stop() | kill()--> STOPPING --ended--> STOPPED
 *
 * The delay doubles from `firstDelayMs` to `maxDelayMs` and falls back once the process was ready for `settledMs`. `restarts` within
 * `windowMs` are the budget. Without `restart` the first end is FAILED.
 *
 * A ready process that ends by its own plan (EXIT.outgrown) has not failed: it spends no budget, doubles no delay and is started again after
 * `firstDelayMs`; as many of these ends as the budget has, and the next ones wait `maxDelayMs` each.
 *
 * The child has its own session (Ctrl-C reaches the supervisor alone), PACELINE_PARENT_PID (it ends itself when the supervisor dies), and stands
 * on the orphan guard's list (it is ended when it does not). The one that takes its place learns how it ended (PACELINE_PREDECESSOR).
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { closeSync, mkdirSync, openSync, renameSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import { endProcess } from './end-process.js';
import { EXIT } from './exit-codes.js';
import { guardProcess } from './orphan-guard.js';
import { tail } from './postgres.js';
import { StartError, waitForReady, type ReadyInfo } from './ready.js';
import { RestartBudget, type RestartPolicy } from './restart-budget.js';

export type ChildState = 'STARTING' | 'READY' | 'BACKOFF' | 'FAILED' | 'STOPPING' | 'STOPPED';

export interface SuperviseOptions {
  readonly name: string;
  readonly command: string;
  readonly args: readonly string[];
  readonly env: NodeJS.ProcessEnv;
  readonly cwd?: string;
  /** stderr is appended here; moved to `.1` at a start when larger than 10 MiB. */
  readonly logFile: string;
  readonly readyDeadlineMs?: number;
  readonly stopDeadlineMs?: number;
  readonly restart?: RestartPolicy;
  readonly onEvent?: (event: SupervisorEvent) => void;
}

export interface SupervisorEvent {
  readonly name: string;
  readonly state: ChildState;
  readonly pid: number | undefined;
  /** For people: why it ended, when it starts again. */
  readonly message: string;
}

export interface SupervisedChild {
  readonly name: string;
  readonly logFile: string;
  state(): ChildState;
  pid(): number | undefined;
  /** Ready line of the newest start. */
  info(): ReadyInfo | undefined;
  restarts(): number;
  /** The first ready line. Rejects with StartError when the child is FAILED or stopped before. */
  readonly ready: Promise<ReadyInfo>;
  /** Settles with the last event when the child is FAILED; never when it is stopped first. */
  readonly failed: Promise<SupervisorEvent>;
  /** Ends the process as `stop` does and starts it again at once; in vain when it is FAILED or stopped. Settles when the old one is gone. */
  restart(): Promise<void>;
  /** SIGTERM, the deadline, SIGKILL. Settles when nothing is left. */
  stop(): Promise<void>;
  /** SIGKILL at once, also while it stops. Settles when nothing is left. */
  kill(): Promise<void>;
}

const LOG_BYTES_MAX = 10 * 1024 * 1024;
const PERMANENT: ReadonlySet<number> = new Set([EXIT.usage, EXIT.configuration]);

export function superviseChild(options: SuperviseOptions): SupervisedChild {
  return new Supervisor(options);
}

/** What a listener cannot do, with a full disk for example, must not end what it only hears of. */
export function tellEvent(event: SupervisorEvent, onEvent: ((event: SupervisorEvent) => void) | undefined): void {
  try {
    onEvent?.(event);
  } catch (error) {
    process.emitWarning(error as Error);
  }
}

class Supervisor implements SupervisedChild {
  readonly name: string;
  readonly logFile: string;
  readonly ready: Promise<ReadyInfo>;
  readonly failed: Promise<SupervisorEvent>;
  #state: ChildState = 'STARTING';
  #child: ChildProcess | undefined;
  #info: ReadyInfo | undefined;
  /** Id and end of the last process. */
  #predecessor: string | undefined;
  #plannedTimes: number[] = [];
  #restartCount = 0;
  #isRestarting = false;
  readonly #budget: RestartBudget | undefined;
  #wake: (() => void) | undefined;
  #resolveReady!: (info: ReadyInfo) => void;
  #rejectReady!: (error: Error) => void;
  #resolveFailed!: (event: SupervisorEvent) => void;
  readonly #finished: Promise<void>;

  constructor(private readonly options: SuperviseOptions) {
    this.name = options.name;
    this.logFile = options.logFile;
    this.#budget = options.restart && new RestartBudget(options.restart);
    this.ready = new Promise((resolve, reject) => {
      this.#resolveReady = resolve;
      this.#rejectReady = reject;
    });
    this.ready.catch(() => undefined); // whoever wants it awaits it; a stop before readiness is no unhandled rejection
    this.failed = new Promise((resolve) => (this.#resolveFailed = resolve));
    this.#finished = this.#run();
  }

  state(): ChildState {
    return this.#state;
  }
  pid(): number | undefined {
    return this.#child?.pid;
  }
  info(): ReadyInfo | undefined {
    return this.#info;
  }
  restarts(): number {
    return this.#restartCount;
  }

  async restart(): Promise<void> {
    this.#isRestarting = true;
    await this.#end();
  }

  async stop(): Promise<void> {
    if (this.#state !== 'FAILED' && !this.#isStopping()) {
      this.#enter('STOPPING', 'asked to stop');
      await this.#end();
    }
    await this.#finished;
  }

  async kill(): Promise<void> {
    if (this.#state !== 'FAILED') {
      if (!this.#isStopping()) this.#enter('STOPPING', 'given up');
      await this.#end('SIGKILL');
    }
    await this.#finished;
  }

  /** What runs now; a pause before the next start is over. */
  async #end(signal: NodeJS.Signals = 'SIGTERM'): Promise<void> {
    this.#wake?.();
    if (this.#child) await endProcess(this.#child, { signal, deadlineMs: this.options.stopDeadlineMs ?? 10_000 });
  }

  async #run(): Promise<void> {
    while (!this.#isStopping()) {
      const { reason, code, readyForMs } = await this.#runOnce();
      if (this.#isStopping()) break;
      if (this.#isRestarting) continue;
      const delayMs = this.#nextDelay(code, readyForMs);
      if (typeof delayMs === 'string') {
        const event = this.#enter('FAILED', `${reason}; ${delayMs}`);
        const lastLines = this.#lastLines();
        this.#rejectReady(new StartError('START_FAILED', `${this.name}: ${event.message}${lastLines ? `\n${lastLines}` : ''}`, code));
        this.#resolveFailed(event);
        return;
      }
      this.#enter('BACKOFF', `${reason}; starting again in ${delayMs} ms`);
      await this.#sleep(delayMs);
    }
    this.#enter('STOPPED', 'stopped');
    this.#rejectReady(new StartError('START_FAILED', `${this.name} was stopped before it was ready`, null));
  }

  async #runOnce(): Promise<{ reason: string; code: number | null; readyForMs: number }> {
    this.#isRestarting = false;
    this.#enter('STARTING', 'starting');
    let child: ChildProcess;
    try {
      child = this.#child = this.#spawn();
    } catch (error) {
      return { reason: `could not be started: ${(error as Error).message}`, code: null, readyForMs: 0 }; // its log cannot be opened
    }
    const release = child.pid === undefined ? undefined : guardProcess(child.pid);
    const ended = new Promise<{ reason: string; code: number | null }>((resolve) => {
      child.once('error', (error) => resolve({ reason: `could not be started: ${error.message}`, code: null }));
      child.once('exit', (code, signal) => resolve({ reason: signal ? `ended by ${signal}` : `ended with code ${code}`, code }));
    });
    let readyAt: number | undefined;
    let tooLate: string | undefined;
    try {
      this.#info = await waitForReady(child, this.options.readyDeadlineMs ?? 60_000, this.name);
      readyAt = performance.now();
      if (!this.#isStopping()) this.#enter('READY', 'ready');
      this.#resolveReady(this.#info);
    } catch (error) {
      if (!(error instanceof StartError)) throw error;
      if (error.code === 'START_TIMEOUT') {
        tooLate = error.message;
        await endProcess(child, { deadlineMs: this.options.stopDeadlineMs ?? 10_000 });
      }
    }
    const { reason, code } = await ended;
    release?.();
    this.#child = undefined;
    if (readyAt !== undefined && this.#info) this.#predecessor = `${this.#info.id} ${tooLate ?? reason}`.slice(0, 300);
    return { reason: tooLate ?? reason, code, readyForMs: readyAt === undefined ? 0 : performance.now() - readyAt };
  }

  /** @returns the delay, or why there is none */
  #nextDelay(code: number | null, readyForMs: number): number | string {
    const policy = this.options.restart;
    if (code !== null && PERMANENT.has(code)) return 'this is a mistake in its configuration, so it is not started again';
    if (!policy || !this.#budget) return 'it is not started again';
    if (code === EXIT.outgrown && readyForMs > 0) {
      const now = performance.now();
      this.#plannedTimes = this.#plannedTimes.filter((at) => now - at < policy.windowMs);
      this.#restartCount += 1;
      if (this.#plannedTimes.length >= policy.restarts) return policy.maxDelayMs;
      this.#plannedTimes.push(now);
      return policy.firstDelayMs;
    }
    const delayMs = this.#budget.next(readyForMs);
    if (typeof delayMs === 'number') this.#restartCount += 1;
    return delayMs;
  }

  #spawn(): ChildProcess {
    const { command, args, env, cwd } = this.options;
    mkdirSync(dirname(this.logFile), { recursive: true });
    if ((statSync(this.logFile, { throwIfNoEntry: false })?.size ?? 0) > LOG_BYTES_MAX) renameSync(this.logFile, `${this.logFile}.1`);
    const log = openSync(this.logFile, 'a', 0o600);
    try {
      return spawn(command, args, {
        detached: true,
        stdio: ['ignore', 'pipe', log],
        env: {
          ...env,
          PACELINE_PARENT_PID: String(process.pid),
          ...(this.#predecessor ? { PACELINE_PREDECESSOR: this.#predecessor } : {}),
        },
        ...(cwd === undefined ? {} : { cwd }),
      });
    } finally {
      closeSync(log);
    }
  }

  #lastLines(): string {
    try {
      return tail(this.logFile, 2000).trim().split('\n').slice(-8).join('\n');
    } catch {
      return ''; // why it was not started says enough
    }
  }

  #isStopping(): boolean {
    return this.#state === 'STOPPING' || this.#state === 'STOPPED';
  }

  #enter(state: ChildState, message: string): SupervisorEvent {
    this.#state = state;
    const event = { name: this.name, state, pid: this.#child?.pid, message };
    tellEvent(event, this.options.onEvent);
    return event;
  }

  #sleep(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}
