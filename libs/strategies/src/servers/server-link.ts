/** The coordinator thread as the main thread sees it: asked synchronously, as compute threads are, because tf.js wants the loss of a batch at once. */
import { MessageChannel, receiveMessageOnPort, Worker, type MessagePort } from 'node:worker_threads';
import type { MemberAddress } from '@paceline/collectives';
import { ClusterConfigError, disposed, MemberError, ThreadError, UnsupportedError } from '../errors.js';
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

export class ServerLink {
  /** Why nothing can be trained any more. */
  private lost: Error | undefined;
  private readonly cells = new Int32Array(new SharedArrayBuffer(LINK_CELLS * 4));
  private readonly worker: Worker;
  private readonly port: MessagePort;
  private readonly exited: Promise<unknown>;
  private asked = 0;
  private calls = 0;
  private readonly pending = new Map<number, { resolve(value: Uint8Array | undefined): void; reject(error: Error): void }>();

  constructor(private readonly options: ServerLinkOptions) {
    const { port1, port2 } = new MessageChannel();
    this.port = port1;
    const init: CoordinatorInit = { ...options, cells: this.cells.buffer as SharedArrayBuffer, port: port2 };
    this.worker = new Worker(threadEntry('servers/coordinator-thread.js'), { workerData: init, transferList: [port2], execArgv: [] });
    this.worker.on('message', (answer: LaterAnswer) => this.answered(answer));
    this.worker.unref();
    port1.unref();
    this.worker.on(
      'error',
      (error) => (this.lost ??= new ThreadError(`the coordinator thread has ended: ${error.message}`, { cause: error })),
    );
    this.exited = new Promise((resolve) => this.worker.once('exit', resolve));
  }

  get isOpen(): boolean {
    return this.lost === undefined;
  }

  taskOf(place: number): MemberAddress['task'] {
    return this.options.tasks[place]!.task;
  }

  /** Asks and waits: the thread keeps the deadlines. @throws MemberError, ClusterConfigError, UnsupportedError, ThreadError */
  ask(message: Exclude<ToCoordinator, { kind: 'end' }>): unknown {
    if (this.lost) throw this.lost;
    this.worker.postMessage(message);
    this.asked++;
    const hasEnded = (): boolean => Atomics.load(this.cells, LINK_ENDED) === 1 || isGone(this.worker);
    const isAnswered = waitFor(this.cells, ANSWERED, this.asked, hasEnded);
    const answer = receiveMessageOnPort(this.port)?.message as FromCoordinator | undefined;
    if (answer?.kind === 'ok') return answer.value;
    throw this.faultOf(isAnswered ? answer : undefined);
  }

  /**
   * A function in a worker. While one is under way, the process is kept alive.
   * @throws CallFailed
   */
  call(worker: number, call: Uint8Array, deadlineMs: number): Promise<Uint8Array> {
    return this.later((id) => ({ kind: 'call', id, worker, call, deadlineMs })) as Promise<Uint8Array>;
  }

  /** @throws CallFailed where the worker is not there yet */
  async revive(worker: number): Promise<void> {
    await this.later((id) => ({ kind: 'revive', id, worker }));
  }

  private later(message: (id: number) => LaterCall): Promise<Uint8Array | undefined> {
    if (this.lost) return Promise.reject(this.lost);
    const id = ++this.calls;
    return new Promise((resolve, reject) => {
      this.pending.set(id, { resolve, reject });
      this.worker.ref();
      this.worker.postMessage(message(id));
    });
  }

  private answered(answer: LaterAnswer): void {
    const asked = this.pending.get(answer.id);
    this.pending.delete(answer.id);
    if (this.pending.size === 0) this.worker.unref();
    if (answer.kind === 'called') asked?.resolve(answer.value);
    else asked?.reject(new CallFailed(answer.code, answer.isGone, answer.message));
  }

  async dispose(): Promise<void> {
    for (const { reject } of this.pending.values()) reject(disposed());
    this.pending.clear();
    this.lost = disposed();
    this.worker.postMessage({ kind: 'end' } satisfies ToCoordinator);
    this.worker.ref();
    const timer = setTimeout(() => void this.worker.terminate(), END_MS);
    await this.exited;
    clearTimeout(timer);
    this.port.close();
  }

  private faultOf(answer: FromCoordinator | undefined): Error {
    switch (answer?.kind) {
      case 'gone':
        return (this.lost = new MemberError(
          answer.places.map((place) => this.taskOf(place)),
          answer.message,
        ));
      case 'cluster':
        return (this.lost = new ClusterConfigError(answer.message));
      case 'unsupported':
        return new UnsupportedError(answer.what, answer.reason);
      case 'fault':
        return new ThreadError(answer.message);
      default:
        return (this.lost = new ThreadError('the coordinator thread has ended'));
    }
  }
}
