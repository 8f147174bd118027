/** The coordinator thread as the main thread sees it: asked synchronously, as compute threads are, because tf.js wants the loss of a batch at once. */
import { MessageChannel, receiveMessageOnPort, Worker, type MessagePort } from 'node:worker_threads';
import type { MemberAddress } from '@paceline/collectives';
import { ClusterConfigError, disposed, FunctionError, MemberError, ThreadError, UnsupportedError } from '../errors.js';
import { waitFor } from '../threads/cells.js';
import { isGone, threadEntry } from '../threads/thread-entry.js';
import {
  ANSWERED,
  LINK_CELLS,
  LINK_ENDED,
  type CoordinatorInit,
  type FromCoordinator,
  type LaterAnswer,
  type LaterCall,
  type ToCoordinator,
} from './link-protocol.js';

export type ServerLinkOptions = Omit<CoordinatorInit, 'cells' | 'port'>;

const END_MS = 2_000;

/** A function in a worker has failed. */
export class CallFailed extends Error {
  constructor(
    readonly code: string,
    /** The worker is gone, and not the function wrong. */
    readonly isGone: boolean,
    message: string,
  ) {
    super(message);
  }
}

interface Thread {
  readonly worker: Worker;
  readonly port: MessagePort;
  readonly exited: Promise<unknown>;
}

/** Links whose thread runs, by their cluster: a cluster has one coordinator at a time. */
const started = new Map<string, ServerLink>();

/** The thread, and with it every connection, begins with the first question: a strategy that is only described occupies no cluster. */
export class ServerLink {
  /** Why nothing can be trained any more. */
  private lost: Error | undefined;
  private readonly cells = new Int32Array(new SharedArrayBuffer(LINK_CELLS * 4));
  private running: Thread | undefined;
  private asked = 0;
  private calls = 0;
  private readonly pending = new Map<number, { resolve(value: Uint8Array | undefined): void; reject(error: Error): void }>();

  constructor(private readonly options: ServerLinkOptions) {}

  /** @throws ClusterConfigError while another strategy of this program coordinates the cluster */
  private get thread(): Thread {
    if (this.running) return this.running;
    const { group } = this.options;
    if (started.has(group))
      throw new ClusterConfigError(
        'another strategy of this program coordinates these servers and workers: dispose() it before this one trains',
      );
    this.running = this.start();
    started.set(group, this);
    return this.running;
  }

  private start(): Thread {
    const { port1, port2 } = new MessageChannel();
    const init: CoordinatorInit = { ...this.options, cells: this.cells.buffer as SharedArrayBuffer, port: port2 };
    const worker = new Worker(threadEntry('servers/coordinator-thread.js'), { workerData: init, transferList: [port2], execArgv: [] });
    worker.on('message', (answer: LaterAnswer) => this.answered(answer));
    worker.unref();
    port1.unref();
    worker.on('error', (error) => this.lose(new ThreadError(`the coordinator thread has ended: ${error.message}`, { cause: error })));
    const exited = new Promise<void>((resolve) =>
      worker.once('exit', () => {
        this.lose(new ThreadError('the coordinator thread has ended'));
        this.rejectPending(this.lost!);
        resolve();
      }),
    );
    return { worker, port: port1, exited };
  }

  /** Nothing can be trained any more: another strategy may have the cluster. */
  private lose<E extends Error>(cause: E): E {
    this.lost ??= cause;
    if (started.get(this.options.group) === this) started.delete(this.options.group);
    this.running?.worker.postMessage({ kind: 'end' } satisfies ToCoordinator);
    return cause;
  }

  private rejectPending(error: Error): void {
    for (const { reject } of this.pending.values()) reject(error);
    this.pending.clear();
  }

  get isOpen(): boolean {
    return this.lost === undefined;
  }

  taskOf(place: number): MemberAddress['task'] {
    return this.options.tasks[place]!.task;
  }

  workerTask(worker: number): MemberAddress['task'] {
    return this.options.tasks.filter(({ task }) => task.type === 'worker')[worker]!.task;
  }

  /** Asks and waits: the thread keeps the deadlines. @throws MemberError, ClusterConfigError, UnsupportedError, ThreadError */
  ask(message: Exclude<ToCoordinator, { kind: 'end' }>): unknown {
    if (this.lost) throw this.lost;
    const { worker, port } = this.thread;
    worker.postMessage(message);
    this.asked++;
    const hasEnded = (): boolean => Atomics.load(this.cells, LINK_ENDED) === 1 || isGone(worker);
    const isAnswered = waitFor(this.cells, ANSWERED, this.asked, hasEnded);
    const answer = receiveMessageOnPort(port)?.message as FromCoordinator | undefined;
    if (answer?.kind === 'ok') return answer.value;
    throw this.faultOf(isAnswered ? answer : undefined);
  }

  /**
   * A function in a worker. While one is under way, the process is kept alive.
   * @throws CallFailed; MemberError where a server is gone, and no function can run any more
   */
  call(worker: number, call: Uint8Array, deadlineMs: number): Promise<Uint8Array> {
    return this.later((id) => ({ kind: 'call', id, worker, call, deadlineMs })) as Promise<Uint8Array>;
  }

  /** @throws CallFailed where the worker is not there yet; MemberError where a server is gone */
  async revive(worker: number): Promise<void> {
    await this.later((id) => ({ kind: 'revive', id, worker }));
  }

  private later(message: (id: number) => LaterCall): Promise<Uint8Array | undefined> {
    if (this.lost) return Promise.reject(this.lost);
    const id = ++this.calls;
    return new Promise((resolve, reject) => {
      const { worker } = this.thread;
      this.pending.set(id, { resolve, reject });
      worker.ref();
      worker.postMessage(message(id));
    });
  }

  private answered(answer: LaterAnswer): void {
    const asked = this.pending.get(answer.id);
    this.pending.delete(answer.id);
    if (this.pending.size === 0) this.running?.worker.unref();
    if (answer.kind === 'called') asked?.resolve(answer.value);
    else if (answer.kind === 'call-lost') asked?.reject(this.faultOf(answer.fault));
    else asked?.reject(new CallFailed(answer.code, answer.isGone, answer.message));
  }

  async dispose(): Promise<void> {
    this.rejectPending(disposed());
    this.lost = disposed();
    if (!this.running) return;
    const { worker, port, exited } = this.running;
    worker.ref();
    this.lose(this.lost);
    const timer = setTimeout(() => void worker.terminate(), END_MS);
    await exited;
    clearTimeout(timer);
    port.close();
  }

  private faultOf(answer: FromCoordinator | undefined): Error {
    switch (answer?.kind) {
      case 'gone':
        return this.lose(
          new MemberError(
            answer.places.map((place) => this.taskOf(place)),
            answer.message,
          ),
        );
      case 'cluster':
        return this.lose(new ClusterConfigError(answer.message));
      case 'function':
        return new FunctionError(answer.message);
      case 'unsupported':
        return new UnsupportedError(answer.what, answer.reason);
      case 'fault':
        return new ThreadError(answer.message);
      default:
        return this.lose(new ThreadError('the coordinator thread has ended'));
    }
  }
}
