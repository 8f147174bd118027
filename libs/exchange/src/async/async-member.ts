/**
 * A worker's side of a run in modes async and ssp (docs/protocol.md §12).
 *
 *   ITEMS → FETCH to every server → all chunks are there → compute → contribution and gradient to every shard → the next work item
 *
 * The fetch of the next work item follows the gradient of this one on the same connections, so a shard answers it with its own update
 * applied, and no round trip to the coordinator lies between. A gradient is kept until ITEMS names its work item no more. When the connection to
 * the coordinator breaks, all work items are taken back there: everything is let go here too, and fetched anew. The machine owns no
 * socket, no thread and no clock.
 */
import { Codec, FrameType, ProtocolError, checkAttempt, type FrameHeader, type Message, type MessageOf } from '@paceline/protocol';
import type { Connection, FrameNumbers } from '../connection.js';
import type { Outcome } from '../attempt/attempt-options.js';
import type { GradientNode, MemberChunk } from '../attempt/chunks.js';
import { ServerTerms } from '../attempt/server-terms.js';
import { IdleDetector } from '../attempt/stall.js';
import { StateTable, type StateRows } from '../attempt/state-table.js';
import type { WorkItem } from './done-set.js';

export type AsyncMemberState = 'WAITING' | 'FETCHING' | 'COMPUTING' | 'OVER';

export const ASYNC_MEMBER_ROWS = {
  welcome: {
    from: ['WAITING', 'FETCHING', 'COMPUTING'],
    event: 'WELCOME from a server',
    does: 'send contributions and gradients of held work items again; fetch again what was being fetched',
    next: '–',
  },
  items: {
    from: ['WAITING', 'FETCHING', 'COMPUTING'],
    event: 'ITEMS',
    does: 'let gradients of work items go that are not named; a work item that is not named is fetched anew if it comes again; start the first one',
    next: '–',
  },
  takenOver: {
    from: ['WAITING', 'FETCHING', 'COMPUTING'],
    event: 'WELCOME from a server in a higher term',
    does: 'its standby has taken the shard over, and knows of no fetch: let gradients go, compute all held work items from parameters that are fetched anew',
    next: '–',
  },
  staleTerm: {
    from: 'any',
    event: 'a message or a chunk of an older term than the shard has',
    does: 'refuse it: STALE_TERM; it comes from a former primary',
    next: '–',
  },
  toldAgain: {
    from: ['WAITING', 'FETCHING', 'COMPUTING'],
    event: 'TELL-AGAIN: nothing moves',
    does: 'send contributions and gradients of held work items again; fetch again what was being fetched',
    next: '–',
  },
  view: { from: ['WAITING', 'FETCHING', 'COMPUTING'], event: 'VIEW', does: 'take its number and members', next: '–' },
  fetch: {
    from: ['WAITING'],
    event: 'a work item is held that is not computed, or blocks of the evaluation split are',
    does: 'FETCH to every server',
    next: ['FETCHING'],
  },
  parameters: { from: ['FETCHING'], event: 'chunk of the work item that is fetched', does: 'keep it', next: '–' },
  complete: { from: ['FETCHING'], event: 'the last chunk has come', does: 'compute', next: ['COMPUTING', 'WAITING'] },
  parametersStale: { from: 'any', event: 'any other chunk', does: 'drop it', next: '–' },
  computed: {
    from: ['COMPUTING'],
    event: 'the compute thread has the gradient',
    does: 'contribution to the coordinator, the gradient to every shard; go on with the next work item',
    next: ['WAITING'],
  },
  obsolete: { from: ['COMPUTING'], event: 'the same, of a work item that was taken back', does: 'let it go', next: ['WAITING'] },
  nonFinite: { from: ['COMPUTING'], event: 'the gradient has NaN or infinity', does: 'say so, push nothing', next: ['WAITING'] },
  measured: { from: ['COMPUTING'], event: 'measures of a block', does: 'EVALUATED to the coordinator', next: ['WAITING'] },
  detached: {
    from: 'any',
    event: 'the connection to the coordinator closes',
    does: 'the work items are taken back there: let everything go',
    next: '–',
  },
  end: { from: 'any', event: 'END or leave granted', does: 'let everything go', next: ['OVER'] },
} as const satisfies StateRows<AsyncMemberState>;

/** What the member asks of the compute thread; answers come through `contribution` and `node`, `nonFinite`, `evaluated`, `failed`. */
export interface AsyncComputePort {
  /** Compute a work item from the parameters that are in the store now. @param next the work item that follows, as far as is known: its rows can be prepared */
  item(item: WorkItem, next: WorkItem | undefined): void;
  /** Measure blocks of the evaluation split with the parameters that are in the store now. */
  evaluate(generation: number, blocks: readonly { from: number; to: number }[]): void;
}

export interface AsyncMemberOptions {
  readonly id: string;
  readonly attempt: number;
  readonly chunks: readonly MemberChunk[];
  readonly servers: number;
  /** The flat vector in shared memory. It is written only while nothing computes. */
  readonly store: Uint8Array;
  readonly compute: AsyncComputePort;
  /** The coordinator ended this member's part. */
  onEnd(outcome: Outcome, message: string): void;
}

interface SentGradient {
  readonly node: GradientNode;
  /** Socket writes that still read its memory, plus one until its work item is counted. */
  holds: number;
}

interface HeldItem {
  readonly item: WorkItem;
  contribution: MessageOf<'contribution'> | undefined;
  gradient: SentGradient | undefined;
  isNonFinite: boolean;
}

type Blocks = readonly { from: number; to: number }[];
interface Work {
  readonly round: number;
  /** −1: the evaluation split. */
  readonly replica: number;
  readonly blocks: Blocks;
  /** Its work item was taken back meanwhile. */
  isObsolete: boolean;
}

export class AsyncMember {
  readonly table = new StateTable<AsyncMemberState, typeof ASYNC_MEMBER_ROWS>('async-member', ASYNC_MEMBER_ROWS, 'WAITING');
  private readonly connections: (Connection | undefined)[];
  private held: HeldItem[] = [];
  private work: Work | undefined;
  private measures: { generation: number; blocks: Blocks }[] = [];
  /** Blocks that the compute thread owes, and what was told of others: told again after WELCOME. */
  private measuring = 0;
  private told: MessageOf<'evaluated'>[] = [];
  private readonly have: Uint8Array;
  private missing = 0;
  private scratch = new Uint8Array(0);
  private restBeats = 0;
  private readonly rest = new IdleDetector();
  private waitsFor: string | undefined;
  replicas: readonly number[] = [];
  /** Seats held in the run, for the fairness rule at the end of a slice. */
  heldSeats = 0;
  view = 0;
  /** Of its coordinator. */
  term = 0;
  private readonly terms: ServerTerms;

  constructor(private readonly options: AsyncMemberOptions) {
    this.terms = new ServerTerms(options.servers, () => this.table.take('staleTerm'));
    this.connections = Array.from({ length: options.servers }, () => undefined);
    this.have = new Uint8Array(options.chunks.length);
  }

  get round(): number {
    return this.work?.round ?? 0;
  }

  /** A connection to a server is open and welcomed. */
  attach(server: number, connection: Connection): void {
    this.connections[server] = connection;
  }

  detach(server: number, connection: Connection): void {
    if (this.connections[server] !== connection) return;
    this.connections[server] = undefined;
    if (server !== 0 || this.table.state === 'OVER') return;
    this.table.take('detached');
    this.keep([]);
    this.measures = [];
  }

  /** Where a parameter chunk goes. @throws ProtocolError */
  payloadFor(header: FrameHeader): Uint8Array {
    if (header.type !== FrameType.parameters) throw new ProtocolError('BAD_FRAME', 'a worker takes no gradients');
    this.rest.moved();
    checkAttempt(header, this.options.attempt);
    const chunk = this.options.chunks[header.chunk];
    if (!chunk) throw new ProtocolError('UNKNOWN_CHUNK', `chunk ${header.chunk}`);
    this.terms.check(chunk.server, header.term);
    if (header.length !== chunk.byteLength)
      throw new ProtocolError('WRONG_LENGTH', `chunk ${header.chunk} has ${chunk.byteLength} bytes, not ${header.length}`);
    if (!this.isWanted(header)) return this.scratchOf(header.length);
    return this.options.store.subarray(chunk.byteOffset, chunk.byteOffset + chunk.byteLength);
  }

  /** A whole parameter chunk has come. */
  data(header: FrameHeader): void {
    this.rest.moved();
    if (!this.isWanted(header)) return this.table.take('parametersStale');
    this.table.take('parameters');
    this.have[header.chunk] = 1;
    if (--this.missing === 0) this.complete();
  }

  /** A message is about to come, in this term. @throws ProtocolError STALE_TERM when it is one of a former primary */
  hears(server: number, term: number): void {
    this.terms.hears(server, term);
  }

  message(server: number, message: Message): void {
    if (this.table.state === 'OVER') return;
    switch (message.type) {
      case 'welcome':
        return this.onWelcome(server, message.term);
      case 'view':
        this.table.take('view');
        this.view = Math.max(this.view, message.view);
        this.term = Math.max(this.term, message.term);
        this.heldSeats = message.members.length;
        this.replicas = message.members.find(({ id }) => id === this.options.id)?.replicas ?? [];
        return;
      case 'items':
        this.table.take('items');
        this.waitsFor = message.waitsFor ?? undefined;
        this.keep(message.items);
        return this.start();
      case 'evaluate':
        this.measures.push({ generation: message.generation, blocks: message.blocks });
        return this.start();
      case 'tell-again':
        this.table.take('toldAgain');
        return this.connections.forEach((_, index) => this.sendAgain(index));
      case 'end':
        return this.end(message.outcome, message.message);
      case 'heartbeat':
        return;
      default:
        throw new ProtocolError('BAD_MESSAGE', `a server does not send ${message.type} to a worker`);
    }
  }

  // ---- from the compute thread ----

  contribution(round: number, replica: number, examples: number, sums: readonly number[]): void {
    const held = this.find({ round, replica });
    if (!held || this.work?.isObsolete) return;
    held.contribution = { type: 'contribution', round, replica, examples, sums: [...sums] };
    this.send(0, held.contribution);
  }

  /** The gradient of a work item: sums of the trainable section, changes of the state section. */
  node(node: GradientNode): void {
    if (this.table.state === 'OVER') return node.release();
    const held = this.find({ round: node.round, replica: node.lo });
    if (!held || !this.work || this.work.isObsolete) {
      node.release();
      return this.idle('obsolete');
    }
    held.gradient = { node, holds: 1 };
    for (const chunk of this.options.chunks) this.sendChunk(held.gradient, chunk);
    this.idle('computed');
  }

  nonFinite(round: number, replica: number): void {
    if (this.table.state === 'OVER') return;
    const held = this.find({ round, replica });
    if (!held || !this.work || this.work.isObsolete) return this.idle('obsolete');
    held.isNonFinite = true;
    this.send(0, { type: 'item-non-finite', round, replica });
    this.idle('nonFinite');
  }

  evaluated(generation: number, from: number, to: number, examples: number, sums: readonly number[]): void {
    if (this.table.state === 'OVER') return;
    const message: MessageOf<'evaluated'> = { type: 'evaluated', generation, from, to, examples, sums: [...sums] };
    this.told.push(message);
    this.send(0, message);
    if (--this.measuring > 0) this.table.take('measured');
    else this.idle('measured');
  }

  failed(code: string, message: string, round: number, replica: number): void {
    this.send(0, { type: 'failed', code: code.slice(0, 100), message: message.slice(0, 2000), round, replica });
  }

  // ---- from the worker ----

  leave(reason: string): void {
    this.send(0, { type: 'leave', reason: reason.slice(0, 300) });
  }

  /** Says that this process lives, and by `progress` that its compute thread moves: for one that owes nothing the number moves by itself. */
  heartbeat(computed: number): void {
    const isComputing = this.table.state === 'COMPUTING';
    if (!isComputing) this.restBeats++;
    const rests = this.rest.rests(isComputing, this.connections);
    const progress = computed + this.restBeats;
    for (let server = 0; server < this.connections.length; server++) this.send(server, { type: 'heartbeat', progress, rests });
  }

  /** Nothing here waits for a time: what a broken connection loses is asked for again at WELCOME. */
  tick(): void {}

  /** What the member waits for, for deadlines and logs. */
  waitingFor(): string {
    const broken = this.connections.findIndex((c) => !c?.isOpen);
    if (broken >= 0) return `the connection to parameter server ${broken}`;
    if (this.table.state === 'FETCHING') return `parameters for replica ${this.work!.replica} of round ${this.work!.round}`;
    if (this.table.state === 'COMPUTING') return `its own work item of replica ${this.work!.replica} in round ${this.work!.round}`;
    return this.waitsFor ?? 'a work item';
  }

  end(outcome: Outcome, message: string): void {
    if (this.table.state === 'OVER') return;
    this.keep([]);
    this.table.take('end', 'OVER');
    this.options.onEnd(outcome, message);
  }

  // ---- inside ----

  numbers(): FrameNumbers {
    return { attempt: this.options.attempt, term: this.term, view: this.view, round: this.round };
  }

  private onWelcome(server: number, term: number): void {
    if (this.terms.welcomes(server, term)) this.takenOver();
    this.table.take('welcome');
    this.sendAgain(server);
    this.start();
  }

  private takenOver(): void {
    this.table.take('takenOver');
    for (const held of this.held) {
      if (held.gradient) this.unhold(held.gradient);
      held.gradient = undefined;
    }
    if (this.table.state === 'COMPUTING' && this.work!.replica >= 0) this.work!.isObsolete = true;
  }

  private send(server: number, message: Message): void {
    this.connections[server]?.sendMessage(message, this.numbers());
  }

  private find({ round, replica }: WorkItem): HeldItem | undefined {
    return this.held.find(({ item }) => item.round === round && item.replica === replica);
  }

  /** These are the work items that it holds; of all others it lets go. */
  private keep(items: readonly WorkItem[]): void {
    const before = this.held;
    this.held = items.map((item) => this.find(item) ?? { item, contribution: undefined, gradient: undefined, isNonFinite: false });
    for (const old of before) if (old.gradient && !this.held.includes(old)) this.unhold(old.gradient);
    if (this.work && this.work.replica >= 0 && !this.find(this.work)) this.work.isObsolete = true;
  }

  private start(): void {
    if (this.table.state !== 'WAITING') return;
    const todo = this.held.find(({ gradient, isNonFinite }) => !gradient && !isNonFinite);
    const measure = todo ? undefined : this.measures.shift();
    if (todo) this.work = { ...todo.item, blocks: [], isObsolete: false };
    else if (measure) this.work = { round: measure.generation, replica: -1, blocks: measure.blocks, isObsolete: false };
    else return;
    this.table.take('fetch', 'FETCHING');
    this.have.fill(0);
    this.missing = this.options.chunks.length;
    const owners = new Set(this.options.chunks.map(({ server }) => server));
    for (const server of owners) this.fetchFrom(server);
  }

  private fetchFrom(server: number): void {
    this.send(server, { type: 'fetch', round: this.work!.round, replica: this.work!.replica });
  }

  private isWanted({ round, nodeLo, nodeHi, chunk }: FrameHeader): boolean {
    if (this.table.state !== 'FETCHING' || !this.work || this.have[chunk]) return false;
    return round === this.work.round && nodeHi === this.work.replica + 1 && nodeLo === Math.max(this.work.replica, 0);
  }

  private complete(): void {
    const { round, replica, blocks, isObsolete } = this.work!;
    if (isObsolete) {
      this.table.take('complete', 'WAITING');
      return this.start();
    }
    this.table.take('complete', 'COMPUTING');
    if (replica < 0) {
      this.measuring = blocks.length;
      return this.options.compute.evaluate(round, blocks);
    }
    const item = this.find({ round, replica })!.item;
    this.options.compute.item(item, this.held.find((held) => held.item !== item && !held.gradient && !held.isNonFinite)?.item);
  }

  private idle(row: 'computed' | 'obsolete' | 'nonFinite' | 'measured'): void {
    this.table.take(row, 'WAITING');
    this.work = undefined;
    this.start();
  }

  private sendAgain(server: number): void {
    if (server === 0) {
      for (const { contribution, isNonFinite, item } of this.held) {
        if (contribution) this.send(0, contribution);
        if (isNonFinite) this.send(0, { type: 'item-non-finite', ...item });
      }
      for (const message of this.told) this.send(0, message);
    }
    for (const { gradient } of this.held)
      for (const chunk of this.options.chunks) if (gradient && chunk.server === server) this.sendChunk(gradient, chunk);
    if (this.table.state !== 'FETCHING') return;
    for (const { index, server: owner } of this.options.chunks) {
      if (owner !== server || !this.have[index]) continue;
      this.have[index] = 0; // its chunks are of one moment, or none of them count
      this.missing++;
    }
    if (this.options.chunks.some((chunk) => chunk.server === server)) this.fetchFrom(server);
  }

  private sendChunk(gradient: SentGradient, chunk: MemberChunk): void {
    const connection = this.connections[chunk.server];
    if (!connection?.isOpen) return;
    const { round, lo, hi, bytes } = gradient.node;
    gradient.holds++;
    connection.sendData(
      { type: FrameType.gradient, codec: Codec.none, ...this.numbers(), round, nodeLo: lo, nodeHi: hi, chunk: chunk.index },
      bytes.subarray(chunk.byteOffset, chunk.byteOffset + chunk.byteLength),
      () => this.unhold(gradient),
    );
  }

  private unhold(gradient: SentGradient): void {
    if (--gradient.holds === 0) gradient.node.release();
  }

  private scratchOf(bytes: number): Uint8Array {
    if (this.scratch.length < bytes) this.scratch = new Uint8Array(bytes);
    return this.scratch.subarray(0, bytes);
  }
}
