/**
 * `strategy.run` in a worker, seen from the thread that has its sockets. The compute threads call the function in their replicas, and come together as they
 * do over several processes (threads/meeting.ts). The decision of the others comes from the coordinator:
 *
 *     run  -> the replicas run, until all have ended, or all wait in a collective operation: the answer says where they are, with their sums
 *     meet -> they go on with the sum of all workers, or are told to give up; the answer is as that of `run`
 */
import { MessageChannel, receiveMessageOnPort, type MessagePort } from 'node:worker_threads';
import { TaskError } from '@paceline/collectives';
import { replicaRows } from '@paceline/learning';
import type { Encoded } from '../replicas/per-replica.js';
import type { NamedFunction } from '../replicas/replica-function.js';
import { meetingMemory } from '../threads/function-calls.js';
import { decide, ENDED, FAILED_POINT } from '../threads/meeting.js';
import type { FromThread, MeetingMemory, Met, Share, ToGroup } from '../threads/protocol.js';
import type { PoolGroup, ThreadPool } from '../threads/thread-pool.js';
import { bytesOf, CODES, type Reached, type StepFailure } from './messages.js';

interface Waiting {
  resolve(reached: Reached): void;
  reject(error: Error): void;
}

/** One for each pool. It is the group of the pool's compute threads. */
export class RunHost implements PoolGroup {
  readonly lost = undefined;
  readonly isGone = false;
  private readonly collectors: MessagePort[] = [];
  private failed: StepFailure[] = [];
  private memory: MeetingMemory | undefined;
  private share: Share | undefined;
  private at: Met | undefined;
  private waiting: Waiting | undefined;
  private results: readonly Encoded[] = [];
  /** A function runs, or waits for the others. */
  isUnderWay = false;

  /** Compute threads have functions, and what their replicas keep. */
  get hasFunctions(): boolean {
    return this.memory !== undefined;
  }

  collector(): MessagePort {
    const { port1, port2 } = new MessageChannel();
    port2.on('message', (said: ToGroup) => this.heard(said));
    port2.unref();
    this.collectors.push(port2);
    return port1;
  }

  start(): void {
    // The threads say by their ports when they have come together.
  }

  failures(): FromThread[] {
    return [];
  }

  leave(): void {
    // The pool tells whoever waits for the threads.
  }

  /** @throws TaskError FUNCTION where a compute thread cannot load it */
  async load(pool: ThreadPool, fn: NamedFunction, share: Share): Promise<void> {
    this.share = share;
    const memory = (this.memory ??= meetingMemory(share.to - share.from));
    const answers = await pool.callLater(() => ({ kind: 'load', ...fn, memory, share }));
    for (const answer of answers)
      if (answer.kind === 'failed') throw new TaskError(answer.isFunction ? CODES.function : CODES.thread, answer.message);
  }

  /** @param args of each replica of this worker */
  run(pool: ThreadPool, fn: NamedFunction, args: readonly (readonly Encoded[])[]): Promise<Reached> {
    this.isUnderWay = true;
    this.failed = [];
    const reached = this.next();
    pool
      .callLater((thread) => {
        const { from, to } = replicaRows(args.length, pool.threads, thread); // replicas are shared out as rows are
        return { kind: 'call', ...fn, args: args.slice(from, to) };
      })
      .then(
        (answers) => this.over(answers),
        (error: unknown) => this.waiting?.reject(new TaskError(CODES.thread, (error as Error).message)),
      )
      .finally(() => (this.isUnderWay = false));
    return reached;
  }

  /** @param sum of all workers, where the replicas go on with one */
  meet(goesOn: boolean, sum: Uint8Array | undefined): Promise<Reached> {
    if (!this.at) return Promise.reject(new TaskError(CODES.session, 'no function waits at this worker: it was started again'));
    this.at = undefined;
    if (sum) bytesOf(this.place(0, sum.length / 4)).set(sum);
    const reached = this.next();
    const { from, to } = this.share!;
    decide(this.memory!, to - from, goesOn);
    return reached;
  }

  /** The results of the replicas, when the function is over. */
  taken(): readonly Encoded[] {
    return this.results;
  }

  /** The sums of the nodes of this worker, where its replicas wait in a collective operation: copies, as what grows cannot be written to a socket. */
  sums(): Uint8Array[] {
    const { at, share } = this;
    if (!at || at.kind === ENDED || at.kind === FAILED_POINT) return [];
    return share!.nodes.map(({ lo }) => bytesOf(this.place(lo - share!.from + 1, at.length).slice()));
  }

  private place(index: number, length: number): Float32Array {
    return new Float32Array(this.memory!.values, index * length * 4, length);
  }

  private next(): Promise<Reached> {
    return new Promise((resolve, reject) => (this.waiting = { resolve, reject }));
  }

  private heard(said: ToGroup): void {
    if (said.kind === 'failed') return void this.failed.push(told(said));
    if (said.kind !== 'meet') return undefined;
    // Threads say what failed before they come together, but each on a port of its own.
    for (const port of this.collectors)
      for (let next = receiveMessageOnPort(port); next; next = receiveMessageOnPort(port)) this.heard(next.message as ToGroup);
    const { at } = said;
    this.at = at;
    const own = at.reason === undefined ? [] : [{ replica: this.share!.from, message: at.reason }];
    this.waiting?.resolve({ isOver: false, point: [at.kind, at.length, at.form], failures: [...this.failed.splice(0), ...own] });
    return undefined;
  }

  private over(answers: readonly FromThread[]): void {
    this.results = answers.flatMap((answer) => (answer.kind === 'ok' ? (answer.results ?? []) : []));
    const failures = answers.flatMap((answer) => (answer.kind === 'failed' ? [told(answer)] : []));
    this.waiting?.resolve({ isOver: true, point: [ENDED, 0, 0], failures: [...this.failed.splice(0), ...failures] });
  }
}

const told = ({ replica, message }: Extract<FromThread, { kind: 'failed' }>): StepFailure => ({ replica, message: message.slice(0, 2000) });
