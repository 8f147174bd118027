/**
 * Keeps an embedded PostgreSQL or Redis running, at the same address and on the same data.
 *
 *     READY --ends--> BACKOFF --delay--> STARTING --answers--> READY
 *     STARTING --cannot be started--> BACKOFF
 *     BACKOFF  --budget used up--> FAILED
 *     any      --stop() | kill()--> STOPPED
 *
 * PostgreSQL recovers from its log when it was killed, and refuses to start as long as a process of the one before holds its shared memory;
 * Redis reads its append-only file. Both may take more than one attempt, which the budget has.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { RunningService } from './postgres.js';
import { RestartBudget, type RestartPolicy } from './restart-budget.js';
import { tellEvent, type ChildState, type SupervisorEvent } from './supervisor.js';

export interface SuperviseServiceOptions<S extends RunningService> {
  /** For people. */
  readonly name: string;
  /** @param former the one that has ended: the next one takes its port */
  start(former: S | undefined): Promise<S>;
  /** Without it the first end is FAILED. */
  readonly restart?: RestartPolicy | undefined;
  readonly onEvent?: ((event: SupervisorEvent) => void) | undefined;
}

export interface SupervisedService<S extends RunningService> {
  readonly name: string;
  /** The newest one; its address and its folder stay the same. */
  readonly service: S;
  /** Undefined while none runs. */
  pid(): number | undefined;
  /** Settles with the last event when it is FAILED; never when it is stopped first. */
  readonly failed: Promise<SupervisorEvent>;
  /** Settles when nothing is left. */
  stop(): Promise<void>;
  /** As `stop`, by SIGKILL: nothing more is written. */
  kill(): Promise<void>;
}

/** @throws what the first start throws */
export async function superviseService<S extends RunningService>(options: SuperviseServiceOptions<S>): Promise<SupervisedService<S>> {
  return new ServiceSupervisor(options, await options.start(undefined));
}

class ServiceSupervisor<S extends RunningService> implements SupervisedService<S> {
  readonly name: string;
  readonly failed: Promise<SupervisorEvent>;
  private readonly stopping = new AbortController();
  private readonly finished: Promise<void>;
  private isRunning = true;
  private end: 'stop' | 'kill' = 'stop';
  private fail!: (event: SupervisorEvent) => void;

  constructor(
    private readonly options: SuperviseServiceOptions<S>,
    public service: S,
  ) {
    this.name = options.name;
    this.failed = new Promise((resolve) => (this.fail = resolve));
    this.finished = this.keep();
  }

  pid(): number | undefined {
    return this.isRunning ? this.service.pid : undefined;
  }

  async stop(): Promise<void> {
    this.stopping.abort();
    await this.service.stop();
    await this.finished;
  }

  async kill(): Promise<void> {
    this.end = 'kill';
    this.stopping.abort();
    await this.service.kill();
    await this.finished;
  }

  private async keep(): Promise<void> {
    const { restart } = this.options;
    const budget = restart && new RestartBudget(restart);
    const { signal } = this.stopping;
    let reason = 'ended';
    for (let readyForMs = await this.untilEnded(); !signal.aborted; readyForMs = await this.untilEnded()) {
      for (let isBack = false; !isBack && !signal.aborted;) {
        const delayMs = budget ? budget.next(readyForMs) : 'it is not started again';
        if (typeof delayMs === 'string') return this.fail(this.told('FAILED', `${reason}; ${delayMs}`));
        this.told('BACKOFF', `${reason}; starting again in ${delayMs} ms`);
        await sleep(delayMs, undefined, { signal }).catch(() => undefined); // a stop ends the wait
        if (signal.aborted) break;
        readyForMs = 0;
        try {
          const next = await this.options.start(this.service);
          this.service = next;
          this.isRunning = isBack = true;
          reason = 'ended';
          if (signal.aborted) await next[this.end]();
          else this.told('READY', 'ready');
        } catch (error) {
          reason = `could not be started: ${(error as Error).message.split('\n').slice(-3).join(' ').slice(0, 500)}`;
        }
      }
    }
  }

  /** @returns for how long it could be used */
  private async untilEnded(): Promise<number> {
    const since = performance.now();
    await this.service.ended;
    this.isRunning = false;
    return performance.now() - since;
  }

  private told(state: ChildState, message: string): SupervisorEvent {
    const event = { name: this.name, state, pid: this.pid(), message };
    tellEvent(event, this.options.onEvent);
    return event;
  }
}
