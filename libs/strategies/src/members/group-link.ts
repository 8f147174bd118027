/** The group thread as the main thread sees it: it is asked synchronously, as compute threads are, because tf.js wants the loss of a batch at once. */
import { createHash } from 'node:crypto';
import { MessageChannel, receiveMessageOnPort, Worker, type MessagePort } from 'node:worker_threads';
import { AllReducePlan, type MemberAddress } from '@paceline/collectives';
import { ClusterConfigError, MemberError, ThreadError } from '../errors.js';
import type { TrainingPlan } from '../exchange.js';
import { waitFor } from '../threads/cells.js';
import type { BatchBuffers, FromThread, ModelMemory, Share } from '../threads/protocol.js';
import { isGone, threadEntry } from '../threads/thread-entry.js';
import { ANSWERED, GROUP_CELLS, GROUP_ENDED, type FromGroupThread, type GroupInit, type ToGroupThread } from './protocol.js';

export type GroupThreadOptions = Omit<GroupInit, 'cells' | 'port'>;

export interface OpenedModel {
  readonly model: number;
  readonly plan: TrainingPlan;
  readonly totalLength: number;
  readonly trainableLength: number;
  readonly memory: ModelMemory;
  readonly outputs: readonly number[];
}

/** The compute threads, which cannot go on without the group. */
export interface Breakable {
  fail(error: Error): never;
}

const LEAVE_MS = 2_000;

export class GroupThread {
  readonly share: Share;
  /** Why no step can end any more. */
  lost: Error | undefined;
  private readonly cells = new Int32Array(new SharedArrayBuffer(GROUP_CELLS * 4));
  private readonly worker: Worker;
  private readonly port: MessagePort;
  private readonly collectors: MessagePort[] = [];
  private answers = 0;
  private readonly exited: Promise<unknown>;

  constructor(private readonly options: GroupThreadOptions) {
    this.share = options.share;
    const { port1, port2 } = new MessageChannel();
    this.port = port1;
    const init: GroupInit = { ...options, cells: this.cells.buffer as SharedArrayBuffer, port: port2 };
    this.worker = new Worker(threadEntry('members/group-thread.js'), { workerData: init, transferList: [port2], execArgv: [] });
    this.worker.unref();
    port1.unref();
    this.exited = new Promise((resolve) => this.worker.once('exit', resolve));
  }

  get isGone(): boolean {
    return Atomics.load(this.cells, GROUP_ENDED) === 1 || isGone(this.worker);
  }

  /** A port for one more compute thread, before the start. */
  collector(): MessagePort {
    const { port1, port2 } = new MessageChannel();
    this.collectors.push(port2);
    return port1;
  }

  /** @param cells of the compute threads */
  start(cells: SharedArrayBuffer, onEnd: (error: Error | undefined) => void): void {
    this.worker.on('error', onEnd);
    this.worker.on('exit', () => onEnd(undefined));
    this.worker.postMessage({ kind: 'start', cells, collectors: this.collectors } satisfies ToGroupThread, this.collectors);
  }

  /** All processes open the same model. @throws MemberError */
  open(pool: Breakable, { plan, outputs, ...model }: OpenedModel): void {
    const digest = createHash('sha256').update(JSON.stringify(plan)).digest('hex').slice(0, 12);
    const text = `model ${model.model} with ${model.totalLength} parameters, optimizer ${plan.rule.name} (${digest})`;
    this.ask(pool, { kind: 'open', ...model, plan: text, outputs: plan.readsOutputs ? outputs : undefined });
  }

  /** All processes have the same values, in the same order. */
  agree(pool: Breakable, what: string, values: readonly string[]): void {
    const digest = createHash('sha256').update(JSON.stringify(values)).digest('hex').slice(0, 12);
    this.ask(pool, { kind: 'agree', what: `${what} (${digest})` });
  }

  /** Weights and optimizer state of the first process go to all others. */
  takeOver(pool: Breakable, model: number, step: number): void {
    this.ask(pool, { kind: 'take-over', model, step });
  }

  useBuffers(pool: Breakable, model: number, buffers: BatchBuffers): void {
    this.ask(pool, { kind: 'buffers', model, buffers });
  }

  close(pool: Breakable, model: number): void {
    this.ask(pool, { kind: 'close', model });
  }

  /** Elements that other processes' sums of a vector take. */
  scratchLength(length: number): number {
    const { members, self, share } = this.options;
    return AllReducePlan.scratchLength({ members: members.length, self, replicas: share.replicas, length });
  }

  /** What replicas of other processes failed with in the last step. */
  failures(): FromThread[] {
    return this.drain().filter((message) => message.kind === 'failed');
  }

  /** Tells the others, which then wait no longer. */
  leave(reason: string): void {
    this.worker.postMessage({ kind: 'leave', reason } satisfies ToGroupThread);
  }

  async dispose(): Promise<void> {
    this.leave('its strategy was disposed');
    this.worker.ref();
    const timer = setTimeout(() => void this.worker.terminate(), LEAVE_MS);
    await this.exited;
    clearTimeout(timer);
    this.port.close();
  }

  /** Asks and waits: the thread keeps the deadlines of the group itself. */
  private ask(pool: Breakable, message: ToGroupThread): void {
    this.worker.postMessage(message);
    this.answers++;
    if (!waitFor(this.cells, ANSWERED, this.answers, () => this.isGone)) pool.fail(new ThreadError('the thread of the group has ended'));
    const [fault] = this.drain().filter(({ kind }) => kind !== 'ok');
    if (fault) pool.fail(this.lost ?? new ThreadError(fault.kind === 'failed' || fault.kind === 'fault' ? fault.message : fault.kind));
  }

  private drain(): FromGroupThread[] {
    const messages: FromGroupThread[] = [];
    for (let next = receiveMessageOnPort(this.port); next; next = receiveMessageOnPort(this.port))
      messages.push(next.message as FromGroupThread);
    for (const message of messages) this.lost ??= this.errorOf(message);
    return messages;
  }

  private errorOf(message: FromGroupThread): Error | undefined {
    switch (message.kind) {
      case 'lost': {
        const named: readonly (MemberAddress | undefined)[] = message.members.map((member) => this.options.members[member]);
        return new MemberError(
          named.flatMap((member) => (member ? [member.task] : [])),
          message.message,
        );
      }
      case 'cluster':
        return new ClusterConfigError(message.message);
      case 'fault':
        return new ThreadError(message.message);
      default:
        return undefined;
    }
  }
}
