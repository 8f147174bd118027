/** The group thread as the main thread sees it: it is asked synchronously, as compute threads are, because tf.js wants the loss of a batch at once. */
import { createHash } from 'node:crypto';
import { MessageChannel, receiveMessageOnPort, Worker, type MessagePort } from 'node:worker_threads';
import {
  AllReducePlan,
  choose,
  keepsOrder,
  nodesOf,
  packedBytes,
  rangeOf,
  type Failure,
  type MemberAddress,
  memberName,
  type NextView,
  type Range,
  replicasOf,
  type Timing,
  type Topology,
} from '@paceline/collectives';
import { ClusterConfigError, MemberError, ThreadError } from '../errors.js';
import type { TrainingPlan } from '../exchange.js';
import { waitFor } from '../threads/cells.js';
import { slotRange, type BatchBuffers, type FromThread, type MeetingMemory, type ModelMemory, type Share } from '../threads/protocol.js';
import { LowRankSum } from '@paceline/codecs';
import { LowRankExchange, type LowRankExchangeOptions } from './low-rank-exchange.js';
import { LOW_RANK, packedSums } from './packed-sums.js';
import { isGone, threadEntry } from '../threads/thread-entry.js';
import { MembersChanged, NotLetIn } from './changed.js';
import { arraysIn, bytesOfArrays, type MemberCourse, type ToldLines } from './course.js';
import type { Told } from './journal.js';
import { ANSWERED, GROUP_CELLS, GROUP_ENDED, type FromGroupThread, type GroupInit, type ToGroupThread } from './protocol.js';
import type { ReplicaArray } from '../replicas/per-replica.js';
import { nameOfRule } from '../update-rule.js';

export interface GroupThreadOptions extends Omit<GroupInit, 'cells' | 'traffic' | 'port' | 'probes'> {
  readonly communication: Topology | 'auto';
  /** Each process updates a part of the parameters, and keeps the slots of that part alone. */
  readonly isSharded: boolean;
}

/** How the members exchange the vectors of a model. */
export interface ModelCommunication {
  /** Models in the order in which they were first trained, from 0. */
  readonly model: number;
  readonly topology: Topology;
  /** Whether the bits of sums depend on the number of replicas alone, and not on how many processes hold them. */
  readonly keepsOrder: boolean;
  /** Bytes of the parameters and the state of layers. */
  readonly bytes: number;
  /** Bytes of a sum of gradients with the codec, as it travels. */
  readonly sumBytes: number;
  /** Memory of this process for slots of the optimizer. */
  readonly slotBytes: number;
  /** Memory of this process for what others send. */
  readonly exchangeBytes: number;
  /** With `auto`: what an all-reduce was expected to take with each topology. */
  readonly estimates: readonly { readonly topology: Topology; readonly durationMs: number }[];
}

export interface OpenedModel {
  readonly model: number;
  readonly plan: TrainingPlan;
  readonly totalLength: number;
  readonly trainableLength: number;
  readonly variables: LowRankExchangeOptions['variables'];
  readonly memory: ModelMemory;
  readonly fragments: readonly number[];
  readonly outputs: readonly number[];
  /** It is laid out for another view. */
  readonly isAgain?: boolean;
}

/** A member that was lost while the others went on, or came again. */
export interface LostMember {
  readonly type: string;
  readonly index: number;
  /** How often members had been lost, with this time. */
  readonly view: number;
}

export interface Lengths {
  readonly totalLength: number;
  readonly trainableLength: number;
  /** In the order of the vector, those that are trained first. */
  readonly variables: LowRankExchangeOptions['variables'];
}

/** The variables that are trained. */
export const trainedOf = ({ variables, trainableLength }: Lengths): Lengths['variables'] =>
  variables.filter(({ offset }) => offset < trainableLength).map(({ shape, offset, length }) => ({ shape, offset, length }));

export interface Placement {
  /** Elements that other processes' sums of a vector take. */
  readonly scratch: number;
  /** The part of the vector that this process updates, if each has one. */
  readonly own: Range | undefined;
}

/** The compute threads, which cannot go on without the group. */
export interface Breakable {
  fail(error: Error): never;
}

const LEAVE_MS = 2_000;
/** Those that are no faults. */
const ANSWERS: ReadonlySet<FromGroupThread['kind']> = new Set(['ok', 'timings', 'settled', 'is-new', 'told', 'entered']);

export class GroupThread {
  share: Share;
  /** Why no step can end any more. */
  lost: Error | undefined;
  private readonly cells = new Int32Array(new SharedArrayBuffer(GROUP_CELLS * 4));
  private readonly bytes = new Float64Array(new SharedArrayBuffer(2 * 8));
  private readonly worker: Worker;
  private readonly port: MessagePort;
  private readonly collectors: MessagePort[] = [];
  private answers = 0;
  /** A fragment is being exchanged, and nobody has waited for it. */
  private isUnderWay = false;
  /** With `auto`. */
  timings: readonly Timing[] = [];
  readonly communications: ModelCommunication[] = [];
  private settled: readonly Failure[] = [];
  private readonly exited: Promise<unknown>;

  /** Which of the processes that are left this one is. */
  self: number;
  /** A view that this process has to be laid out for. */
  changed: NextView | undefined;
  /** Those that are left, by their index in the cluster. */
  private left: readonly number[];
  readonly lostMembers: LostMember[] = [];
  /** Those that came again. */
  readonly joinedMembers: LostMember[] = [];
  private answer: { isNew: boolean; told: Told | undefined; entered: NextView | undefined } = {
    isNew: false,
    told: undefined,
    entered: undefined,
  };
  /** What it does with the others, where they may go on without it. */
  course: MemberCourse | undefined;

  constructor(private readonly options: GroupThreadOptions) {
    this.share = options.share;
    this.self = options.self;
    this.left = options.members.map((_, member) => member);
    const { port1, port2 } = new MessageChannel();
    this.port = port1;
    const { communication, isSharded: _, ...given } = options;
    const [cells, traffic] = [this.cells.buffer as SharedArrayBuffer, this.bytes.buffer as SharedArrayBuffer];
    const init: GroupInit = { ...given, probes: communication === 'auto', cells, traffic, port: port2 };
    this.worker = new Worker(threadEntry('members/group-thread.js'), { workerData: init, transferList: [port2], execArgv: [] });
    this.worker.unref();
    port1.unref();
    this.exited = new Promise((resolve) => this.worker.once('exit', resolve));
  }

  /** How many there are. */
  get processes(): number {
    return this.left.length;
  }

  /** Index of this process in the cluster, and of the first one that is left. */
  get index(): number {
    return this.options.self;
  }
  get first(): number {
    return this.left[0]!;
  }

  /** Tasks of those that are left. */
  get tasks(): readonly MemberAddress['task'][] {
    return this.left.map((member) => this.options.members[member]!.task);
  }

  get ownTask(): MemberAddress['task'] {
    return this.options.members[this.options.self]!.task;
  }

  get continues(): boolean {
    return this.options.onMemberLoss === 'continue';
  }

  /** This process was started again, and the others go on without it. It waits until all have come together. */
  isNew(pool: Breakable): boolean {
    this.ask(pool, { kind: 'is-new' });
    return this.answer.isNew;
  }

  /** A line of the journal. @param settles what replicas have answered is not needed any more */
  note(line: string, outputs?: readonly Float32Array[], settles = false): void {
    this.worker.postMessage({ kind: 'note', line, outputs, settles } satisfies ToGroupThread);
  }

  closeJournal(why: string): void {
    this.worker.postMessage({ kind: 'close-journal', why } satisfies ToGroupThread);
  }

  /** Lines of the others that follow those that this process knows. */
  more(pool: Breakable, known: number): ToldLines {
    this.ask(pool, { kind: 'more', known });
    return { ...this.answer.told!, view: undefined };
  }

  /** The others let this process in: the last lines, and the view that it goes on in. @throws NotLetIn */
  enter(pool: Breakable, known: number): ToldLines {
    this.ask(pool, { kind: 'enter', known });
    this.changed = this.answer.entered;
    const view = this.adopt(pool);
    return { ...this.answer.told!, view };
  }

  /** This process goes on in the view that has come. @returns it */
  adopt(pool: Breakable): NextView {
    const view = this.changed!;
    this.changed = undefined;
    const { members, self } = this.options;
    const isIn = view.entrant?.member === self;
    const lost = this.left
      .filter((member) => !view.members.includes(member) || (isIn && member === self))
      .map((member) => members[member]!);
    this.left = view.members;
    this.self = view.members.indexOf(self);
    const [{ replicas }, count] = [this.share, view.members.length];
    this.share = { replicas, ...replicasOf(replicas, count, this.self), nodes: nodesOf(replicas, count, this.self) };
    this.lostMembers.push(...lost.map(({ task: { type, index } }) => ({ type, index, view: view.number })));
    const named = lost.map(memberName).join(', ');
    const told = `${named} was lost: ${count} of ${members.length} processes go on, and compute its replicas`;
    if (lost.length > 0 && !isIn) process.emitWarning(told, { code: 'PACELINE_MEMBER_LOST' });
    this.ask(pool, { kind: 'adopt', view, share: this.share });
    if (view.entrant) this.letIn(pool, view, members[view.entrant.member]!);
    return view;
  }

  private letIn(pool: Breakable, view: NextView, member: MemberAddress): void {
    const { type, index } = member.task;
    this.joinedMembers.push({ type, index, view: view.number });
    const count = `${view.members.length} of ${this.options.members.length}`;
    process.emitWarning(`${memberName(member)} has come again: ${count} processes go on`, { code: 'PACELINE_MEMBER_JOINED' });
    this.ask(pool, { kind: 'hand-over', view });
  }

  /** Ends what `adopt` has begun. @returns what the operation in hand failed with, where it counts as done; undefined where it is to be done again */
  settle(pool: Breakable, view: NextView, inHand: number | undefined): readonly Failure[] | undefined {
    this.settled = [];
    this.ask(pool, { kind: 'settle', view, inHand });
    return view.behind.includes(this.options.self) ? this.settled : undefined;
  }

  get isGone(): boolean {
    return Atomics.load(this.cells, GROUP_ENDED) === 1 || isGone(this.worker);
  }

  /** Bytes of data that this process has sent and received, up to the last exchange. */
  get traffic(): { readonly sentBytes: number; readonly receivedBytes: number } {
    const [sentBytes, receivedBytes] = this.bytes as unknown as readonly [number, number];
    return { sentBytes, receivedBytes };
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
  open(pool: Breakable, { plan, outputs, ...opened }: OpenedModel): void {
    const model = { ...opened, topology: this.communications.find((each) => each.model === opened.model)!.topology };
    const digest = createHash('sha256').update(JSON.stringify(plan)).digest('hex').slice(0, 12);
    const text = `model ${model.model} with ${model.totalLength} parameters, optimizer ${nameOfRule(plan.rule)} (${digest})`;
    const said = { kind: 'open', ...model, plan: text, outputs, readsOutputs: plan.readsOutputs } as const;
    if (opened.isAgain) this.ask(pool, said);
    else this.operation(text, () => void this.ask(pool, said));
  }

  /** One that all processes do in the same order: where this one was not there, it comes to what it came to. */
  private operation(what: string, live: () => void): void {
    if (this.course) this.course.operation(what, live, () => undefined);
    else live();
  }

  /** All processes have the same values, in the same order. */
  agree(pool: Breakable, what: string, values: readonly string[]): void {
    const digest = createHash('sha256').update(JSON.stringify(values)).digest('hex').slice(0, 12);
    const said = `${what} (${digest})`;
    this.operation(said, () => void this.ask(pool, { kind: 'agree', what: said }));
  }

  /** Weights and optimizer state of the first process go to all others. */
  takeOver(pool: Breakable, model: number, step: number, staged: readonly SharedArrayBuffer[] | undefined): void {
    this.operation(
      `the weights of model ${model} before step ${step}`,
      () => void this.ask(pool, { kind: 'take-over', model, step, staged }),
    );
  }

  /** The same of the member that is the source of a view. */
  takeOverFrom(pool: Breakable, model: number, step: number, { members, source }: NextView): void {
    this.ask(pool, { kind: 'take-over', model, step, staged: undefined, from: members.indexOf(source) });
  }

  /** Gathers whole slots, of which each process keeps a part: all processes have to ask for it. */
  slots(pool: Breakable, model: number, step: number, into: readonly SharedArrayBuffer[]): void {
    this.ask(pool, { kind: 'slots', model, step, into });
  }

  /** The sum of a vector of all replicas that train alone, of which each process has added up its own. */
  average(pool: Breakable, model: number, vector: number, step: number): void {
    this.ask(pool, { kind: 'average', model, vector, step });
  }

  /** The same of a fragment of the parameters: it goes on while replicas take steps, until somebody waits for it. */
  beginFragment(pool: Breakable, model: number, fragment: number, step: number): void {
    this.awaitFragment(pool);
    this.post({ kind: 'fragment', model, fragment, step });
    this.isUnderWay = true;
  }

  awaitFragment(pool: Breakable): void {
    if (!this.isUnderWay) return;
    this.isUnderWay = false;
    this.answered(pool);
  }

  useBuffers(pool: Breakable, model: number, buffers: BatchBuffers): void {
    this.ask(pool, { kind: 'buffers', model, buffers });
  }

  close(pool: Breakable, model: number): void {
    this.ask(pool, { kind: 'close', model });
  }

  /** Where replicas of functions meet. */
  functions(pool: Breakable, memory: MeetingMemory): void {
    this.ask(pool, { kind: 'functions', memory });
  }

  /** The values of the replicas of all processes, in their order, for those of this one's. */
  shareValues(pool: Breakable, what: string, values: readonly ReplicaArray[]): readonly ReplicaArray[] {
    const live = (): readonly ReplicaArray[] => this.ask(pool, { kind: 'share', what, values });
    return this.course ? this.course.operation(what, live, ({ values: told }) => arraysIn(told!), { values: bytesOfArrays }) : live();
  }

  /** How a model's vectors are exchanged, and what of them lies where. */
  place(pool: Breakable, model: number, lengths: Lengths, slots: number): Placement {
    const { totalLength: length, trainableLength } = lengths;
    const { isSharded, codec, rank } = this.options;
    const { self, share, left: members } = this;
    const hosts = this.hosts();
    const lowRank = codec === LOW_RANK ? { variables: trainedOf(lengths), length, rank } : undefined;
    const packing = codec === LOW_RANK ? undefined : packedSums(codec, 0, trainableLength);
    const sumBytes = lowRank ? LowRankSum.bytesOf(lowRank) : packedBytes(length, members.length, packing);
    const known = this.communications.findIndex((each) => each.model === model);
    const { topology, keepsOrder: keeps, estimates } = this.choose(pool, sumBytes, this.communications[known]);
    const plan = { members: members.length, self, replicas: share.replicas, length, topology, hosts, isSharded };
    const options = Object.assign({}, plan, packing && { packing });
    // What a low rank takes lies in the group thread.
    const scratch = lowRank ? 0 : AllReducePlan.scratchLength(options);
    const exchanged = lowRank ? LowRankExchange.scratchLength({ ...plan, ...lowRank, seed: 0 }) : scratch;
    const own = isSharded ? rangeOf(length, members.length, self) : undefined;
    const slotBytes = slots * slotRange(own, trainableLength).length * 4;
    this.communications.splice(known < 0 ? this.communications.length : known, 1, {
      model,
      topology,
      keepsOrder: keeps && codec === 'none',
      bytes: length * 4,
      sumBytes,
      slotBytes,
      exchangeBytes: exchanged * 4,
      estimates,
    });
    return { scratch, own };
  }

  /** Of the members that are left. */
  private hosts(): readonly string[] {
    return this.left.map((member) => this.options.hosts[member]!);
  }

  /** @param before what was chosen when more members were there: what is measured then still holds for pairs of them */
  private choose(
    pool: Breakable,
    bytes: number,
    before: ModelCommunication | undefined,
  ): Pick<ModelCommunication, 'topology' | 'keepsOrder' | 'estimates'> {
    const { communication } = this.options;
    const { share } = this;
    const hosts = this.hosts();
    if (before) return { ...before, keepsOrder: keepsOrder(before.topology, hosts, share.replicas) };
    if (communication !== 'auto')
      return { topology: communication, keepsOrder: keepsOrder(communication, hosts, share.replicas), estimates: [] };
    if (this.timings.length === 0) this.ask(pool, { kind: 'timings' });
    return choose(this.timings, bytes, hosts, share.replicas, this.options.codec !== 'none');
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
  private ask(pool: Breakable, message: ToGroupThread): readonly ReplicaArray[] {
    this.awaitFragment(pool);
    this.post(message);
    return this.answered(pool);
  }

  private post(message: ToGroupThread): void {
    this.worker.postMessage(message);
    this.answers++;
  }

  /** Waits until all that was asked is answered. */
  private answered(pool: Breakable): readonly ReplicaArray[] {
    if (!waitFor(this.cells, ANSWERED, this.answers, () => this.isGone)) pool.fail(new ThreadError('the thread of the group has ended'));
    const answers = this.drain();
    const [fault] = answers.filter(({ kind }) => !ANSWERS.has(kind));
    if (fault?.kind === 'not-let-in') throw new NotLetIn(fault.why);
    if (fault?.kind === 'view') throw new MembersChanged(`view ${fault.view.number}`);
    if (fault) pool.fail(this.lost ?? new ThreadError(fault.kind === 'failed' || fault.kind === 'fault' ? fault.message : fault.kind));
    return answers.flatMap((answer) => (answer.kind === 'ok' ? (answer.shared ?? []) : []));
  }

  private drain(): FromGroupThread[] {
    const messages: FromGroupThread[] = [];
    for (let next = receiveMessageOnPort(this.port); next; next = receiveMessageOnPort(this.port))
      messages.push(next.message as FromGroupThread);
    for (const message of messages) {
      this.lost ??= this.errorOf(message);
      if (message.kind === 'timings') this.timings = message.timings;
      if (message.kind === 'view') this.changed = message.view;
      if (message.kind === 'settled') this.settled = message.failures;
      if (message.kind === 'is-new') this.answer.isNew = message.isNew;
      if (message.kind === 'told') this.answer.told = message;
      if (message.kind === 'entered') this.answer.entered = message.view;
    }
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
