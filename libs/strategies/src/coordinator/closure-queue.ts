/**
 * Functions that wait for a worker, and workers that take them. Pure: who calls a worker, and the clock, are arguments.
 *
 * | what happens | the function | the worker |
 * |---|---|---|
 * | it returns | its value is there | takes the next one |
 * | it throws | has failed; those that wait are cancelled, and the next join, schedule or fetch throws | takes the next one |
 * | its worker is lost | goes back to the front, up to `mostLosses` times | is asked again and again whether it is back, while functions wait |
 * | all workers are lost for `lonelyMs` | all that wait have failed | as above, when there are functions again |
 * | it cannot be said whether a worker is back | all that wait have failed | as above, when there are functions again |
 */
import { StrategyError } from '../errors.js';

export interface WorkerCall<C, R> {
  /** @throws WorkerGone when the worker is lost; whatever else is thrown is the function's */
  call(worker: number, closure: C): Promise<R>;
  /** Whether the worker is back. @throws where no function can run any more */
  revive(worker: number): Promise<boolean>;
  /** What a function fails with that these workers were lost to. */
  lostBy(workers: readonly number[], message: string, cause?: WorkerGone): Error;
  after(ms: number, act: () => void): () => void;
}

export class WorkerGone extends Error {}

interface Waiting<C, R> {
  readonly closure: C;
  readonly resolve: (value: R) => void;
  readonly reject: (error: Error) => void;
  /** Workers that it was lost with. */
  readonly losses: number[];
}

export interface QueueOptions {
  readonly workers: number;
  readonly mostWaiting: number;
  /** A function that has lost so many workers is given up. */
  readonly mostLosses: number;
  readonly reviveMs: number;
  readonly lonelyMs: number;
}

export class ClosureQueue<C, R> {
  private readonly waiting: Waiting<C, R>[] = [];
  private readonly idle: Set<number>;
  private running = 0;
  private readonly listeners = new Set<() => void>();
  /** Workers that are gone, and how often they were asked for since. */
  private readonly lost = new Map<number, number>();
  private cancelLook: (() => void) | undefined;
  private closedBy: Error | undefined;
  /** The first failure since the last one was told. */
  failure: Error | undefined;

  constructor(
    private readonly workers: WorkerCall<C, R>,
    private readonly options: QueueOptions,
  ) {
    this.idle = new Set(Array.from({ length: options.workers }, (_, worker) => worker));
  }

  get isDone(): boolean {
    return this.waiting.length === 0 && this.running === 0;
  }

  get isFull(): boolean {
    return this.waiting.length >= this.options.mostWaiting;
  }

  put(closure: C): Promise<R> {
    const result = new Promise<R>((resolve, reject) => this.waiting.push({ closure, resolve, reject, losses: [] }));
    result.catch(() => undefined); // it is told by join, too
    this.next();
    return result;
  }

  /** When nothing waits and nothing runs. */
  done(): Promise<void> {
    return new Promise((resolve) => {
      const look = (): void => {
        if (!this.isDone) return;
        this.listeners.delete(look);
        resolve();
      };
      this.listeners.add(look);
      look();
    });
  }

  close(reason: Error): void {
    this.closedBy = reason;
    this.cancelLook?.();
    this.cancel(reason);
  }

  private cancel(reason: Error): void {
    for (const { reject } of this.waiting.splice(0)) reject(reason);
    this.moved();
  }

  private moved(): void {
    for (const listener of this.listeners) listener();
  }

  private next(): void {
    this.lookForLost();
    for (const worker of this.idle) {
      const first = this.waiting.shift();
      if (!first) return;
      this.idle.delete(worker);
      void this.run(worker, first);
    }
  }

  private async run(worker: number, waiting: Waiting<C, R>): Promise<void> {
    this.running++;
    let isLost = false;
    try {
      waiting.resolve(await this.workers.call(worker, waiting.closure));
    } catch (error) {
      isLost = error instanceof WorkerGone;
      if (error instanceof WorkerGone) this.lostWith(worker, waiting, error);
      else this.failed(waiting, error as Error);
    }
    this.running--;
    if (isLost) this.lost.set(worker, 0);
    else this.idle.add(worker);
    this.next();
    this.moved();
  }

  private lostWith(worker: number, waiting: Waiting<C, R>, error: WorkerGone): void {
    const { losses } = waiting;
    losses.push(worker);
    if (this.closedBy) waiting.reject(this.closedBy);
    else if (losses.length < this.options.mostLosses) this.waiting.unshift(waiting);
    else {
      const message = `the function has lost its worker ${losses.length} times: ${error.message}`;
      this.failed(waiting, this.workers.lostBy([...new Set(losses)].sort(), message, error));
    }
  }

  private failed({ reject }: Waiting<C, R>, error: Error): void {
    this.failure ??= error;
    reject(error);
    const message = `cancelled, as another function has failed: ${error.message}`;
    this.cancel(new StrategyError('STRATEGY_CANCELLED', message, { cause: error }));
  }

  /** Asks whether workers are back, as long as functions wait. */
  private lookForLost(): void {
    if (this.closedBy || this.cancelLook || this.lost.size === 0 || this.isDone) return;
    this.cancelLook = this.workers.after(this.options.reviveMs, () => {
      void Promise.all([...this.lost.keys()].map((worker) => this.ask(worker))).then(
        () => {
          this.cancelLook = undefined;
          this.giveUp();
          this.next();
        },
        (error: unknown) => {
          this.cancelLook = undefined;
          this.failFirst(error as Error);
        },
      );
    });
  }

  private async ask(worker: number): Promise<void> {
    if (await this.workers.revive(worker)) {
      this.lost.delete(worker);
      this.idle.add(worker);
    } else this.lost.set(worker, this.lost.get(worker)! + 1);
  }

  private giveUp(): void {
    const { workers, lonelyMs, reviveMs } = this.options;
    const isLonely = this.lost.size === workers && [...this.lost.values()].every((asked) => asked * reviveMs >= lonelyMs);
    if (!isLonely) return;
    const message = `all ${workers} workers have been gone for ${lonelyMs} ms: start them again`;
    this.failFirst(this.workers.lostBy([...this.lost.keys()].sort(), message));
  }

  private failFirst(error: Error): void {
    const first = this.waiting.shift();
    if (!first) return;
    for (const worker of this.lost.keys()) this.lost.set(worker, 0);
    this.failed(first, error);
  }
}
