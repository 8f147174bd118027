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
import { ProtocolError, type FrameHeader, type Message, type MessageOf } from '@paceline/protocol';
import type { Connection } from '../connection.js';
import type { Outcome } from '../attempt/attempt-options.js';
import { StateTable } from '../attempt/state-table.js';
import type { GradientNode } from '../transfer/chunks.js';
import { HeldGradient, WorkerTransfer } from '../transfer/worker-transfer.js';
import type { WorkItem } from './done-set.js';
import { ASYNC_MEMBER_ROWS, type AsyncMemberOptions, type AsyncMemberState } from './async-member-table.js';

interface HeldItem {
  readonly item: WorkItem;
  contribution: MessageOf<'contribution'> | undefined;
  gradient: HeldGradient | undefined;
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

export class AsyncMember extends WorkerTransfer<AsyncMemberOptions> {
  readonly table = new StateTable<AsyncMemberState, typeof ASYNC_MEMBER_ROWS>('async-member', ASYNC_MEMBER_ROWS, 'WAITING');
  private held: HeldItem[] = [];
  private work: Work | undefined;
  private measures: { generation: number; blocks: Blocks }[] = [];
  /** Blocks that the compute thread owes, and what was told of others: told again after WELCOME. */
  private measuring = 0;
  private told: MessageOf<'evaluated'>[] = [];
  /** Chunks that have come of what is fetched, by their index. */
  private readonly have = new Set<number>();
  private waitsFor: string | undefined;
  /** Number of the last fetch, and by server that of the one whose answer counts: chunks of two moments are never put together. */
  private lastFetch = 0;
  private readonly fetches: number[] = [];

  get round(): number {
    return this.work?.round ?? 0;
  }

  override detach(server: number, connection: Connection): boolean {
    if (!super.detach(server, connection)) return false;
    if (server !== 0 || this.table.state === 'OVER') return true;
    this.table.take('detached');
    this.keep([]);
    this.measures = [];
    return true;
  }

  /** Where a parameter chunk goes. @throws ProtocolError */
  payloadFor(header: FrameHeader): Uint8Array {
    const chunk = this.chunkOf(header);
    return this.destination(header, chunk, this.isWanted(header) ? this.options.store : undefined);
  }

  /** A whole parameter chunk has come. */
  data(header: FrameHeader): void {
    this.rest.moved();
    if (!this.wasKept(header, () => this.options.store) || !this.isWanted(header)) return this.table.take('parametersStale');
    this.table.take('parameters');
    this.have.add(header.chunk);
    if (this.isWhole(this.have)) this.complete();
  }

  message(server: number, message: Message): void {
    if (this.table.state === 'OVER') return;
    switch (message.type) {
      case 'welcome':
        return this.onWelcome(server, message.term);
      case 'view':
        this.table.take('view');
        this.takeMembers(message.view, message.term, message.members);
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
        for (let index = 0; index < this.options.servers; index++) this.sendAgain(index);
        return;
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
    held.gradient = new HeldGradient(node);
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

  // ---- from the worker ----

  heartbeat(computed: number): void {
    this.beat(computed, this.table.state === 'COMPUTING');
  }

  /** What the member waits for, for deadlines and logs. */
  waitingFor(): string {
    const missing = this.missingConnection();
    if (missing !== undefined) return missing;
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

  private onWelcome(server: number, term: number): void {
    if (this.terms.welcomes(server, term)) this.takenOver();
    this.table.take('welcome');
    this.sendAgain(server);
    this.start();
  }

  private takenOver(): void {
    this.table.take('takenOver');
    for (const held of this.held) {
      held.gradient?.letGo();
      held.gradient = undefined;
    }
    if (this.table.state === 'COMPUTING' && this.work!.replica >= 0) this.work!.isObsolete = true;
  }

  private find({ round, replica }: WorkItem): HeldItem | undefined {
    return this.held.find(({ item }) => item.round === round && item.replica === replica);
  }

  /** These are the work items that it holds; of all others it lets go. */
  private keep(items: readonly WorkItem[]): void {
    const before = this.held;
    this.held = items.map((item) => this.find(item) ?? { item, contribution: undefined, gradient: undefined, isNonFinite: false });
    for (const old of before) if (!this.held.includes(old)) old.gradient?.letGo();
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
    this.have.clear();
    const owners = new Set(this.options.chunks.map(({ server }) => server));
    for (const server of owners) this.fetchFrom(server);
  }

  private fetchFrom(server: number): void {
    // Behind the gradient of the work item before it: the answer has its update in it.
    const { round, replica } = this.work!;
    this.fetches[server] = ++this.lastFetch;
    this.send(server, { type: 'fetch', n: this.lastFetch, round, replica }, 'behind data');
  }

  private isWanted({ round, nodeLo, nodeHi, chunk, view }: FrameHeader): boolean {
    if (this.table.state !== 'FETCHING' || !this.work || this.have.has(chunk)) return false;
    if (view !== this.fetches[this.options.chunks[chunk]!.server]) return false;
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
    const owned = this.options.chunks.filter((chunk) => chunk.server === server);
    for (const { index } of owned) this.have.delete(index); // they are of one moment, or none of them count
    if (owned.length > 0) this.fetchFrom(server);
  }
}
