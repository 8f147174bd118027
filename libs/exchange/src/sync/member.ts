/**
 * A worker's side of a run (docs/protocol.md §9.1): one member, its connections to all servers, two generations of parameters.
 *
 *   generation k complete and COMMIT(k-1) known → compute the replicas that the view gives → contribution, then gradient
 *   nodes chunk by chunk → k+1 chunks stream back → COMMIT(k) → gradients of k are let go → next round.
 *
 * Gradients and generation k are kept until COMMIT(k): a view can hand over more replicas of round k, and a server that
 * reconnects is sent again what its WELCOME does not name. The machine owns no socket, no thread and no clock.
 */
import {
  Codec,
  FrameType,
  ProtocolError,
  checkAttempt,
  type CodecSwitch,
  type FrameHeader,
  type Members,
  type Message,
  type MessageOf,
} from '@paceline/protocol';
import type { Connection } from '../connection.js';
import { bitsOf } from '../transfer/bitmap.js';
import { TakenCredits } from '../transfer/credit-window.js';
import { type GradientNode, type MemberChunk } from '../transfer/chunks.js';
import { RowPulls } from '../transfer/row-pulls.js';
import type { ReplicaResidual } from '../transfer/residuals.js';
import type { Rows } from '../transfer/rows.js';
import { HeldGradient, WorkerTransfer } from '../transfer/worker-transfer.js';
import type { Outcome } from '../attempt/attempt-options.js';
import { MEMBER_ROWS, type MemberOptions, type MemberState } from './member-table.js';
import { StateTable } from '../attempt/state-table.js';
import { spans } from '../trace/spans.js';
import { HeldGenerations } from './held-generations.js';
import { MemberResiduals } from './member-residuals.js';
import { RoundPace } from './round-pace.js';
import { HeldByTrees } from './tree-nodes.js';
import { inWindow } from './window-order.js';

export class Member extends WorkerTransfer<MemberOptions> {
  readonly table = new StateTable<MemberState, typeof MEMBER_ROWS>('member', MEMBER_ROWS, 'SYNCING');
  private readonly held: HeldGenerations;
  private readonly ownedBy: MemberChunk[][];
  private readonly credits = new TakenCredits();
  private readonly heldByTrees = new HeldByTrees();
  private readonly pulls: RowPulls;
  private nodes: HeldGradient[] = [];
  /** What was told to the coordinator in this round: told again after WELCOME, since it may have been lost with a connection. */
  private told: MessageOf<'contribution' | 'evaluated'>[] = [];
  private asked = new Set<number>();
  /** Residuals that were missing in a round that was over before its contribution came: what that round has left here lacks them too. */
  private readonly untold = new Map<number, NonNullable<MessageOf<'contribution'>['lost']>>();
  /** With EF21: replicas of this round whose gradient is not sent. */
  private readonly withheld = new Set<number>();
  /** The generation of each chunk that is being received: the round may move on before the chunk is whole. */
  private readonly receiving = new Map<number, number>();
  /** The first replica of each sum that would be sent without a codec, among the replicas that were asked for. */
  private firsts: ReadonlySet<number> | undefined;
  /** Blocks of the evaluation split that the compute thread owes. */
  private measuring = 0;
  private pendingEvaluation: { generation: number; blocks: { from: number; to: number }[] } | undefined;
  round = 0;
  private roundKnown = false;
  /** The run has ended before its last round. */
  private isTrained = false;
  /** With `codec: auto`: how its rounds pass, and what the coordinator has picked. */
  private readonly rate: RoundPace | undefined;
  private codec: CodecSwitch | undefined;
  private readonly kept: MemberResiduals | undefined;
  /** What its compute thread had done by the last heartbeat. */
  private computed = 0;

  constructor(options: MemberOptions) {
    super(options);
    this.held = new HeldGenerations({
      chunks: this.byIndex,
      bytes: (generation) => options.store.bytes(generation),
      isExchanged: options.isExchanged,
      arrivals: options.compute.arrivals,
      opens: (generation) => {
        if (generation > this.round + 1 && this.roundKnown) this.table.take('parametersAhead', 'SYNCING');
      },
    });
    if (options.paceClock) this.rate = new RoundPace(options.paceClock);
    const { chunks, groups = [] } = options;
    const owned = [...chunks, ...groups.map(({ index, server, rows, width }) => ({ index, server, offset: 0, length: rows * width }))];
    this.ownedBy = Array.from({ length: options.servers }, (_, server) => owned.filter((chunk) => chunk.server === server));
    const connectionTo = (server: number): Connection | undefined => this.connectionTo(server);
    if (options.residuals) {
      const { chunks, compute } = options;
      const allSent = (round: number): void => this.send(0, { type: 'handed-on', round }, 'behind data');
      const taken = (replica: number): void => void this.untold.delete(replica);
      this.kept = new MemberResiduals(
        options.residuals,
        { chunks, compute, mayNotLack: options.keepsEstimates, allSent, taken },
        connectionTo,
        () => this.numbers(),
      );
    }
    const deliver = (generation: number, group: number, rows: Rows): void => options.compute.rows?.(generation, group, rows);
    this.pulls = new RowPulls(groups, connectionTo, () => this.numbers(), deliver);
  }

  /** Where a parameter chunk goes. @throws ProtocolError */
  payloadFor(header: FrameHeader): Uint8Array {
    if (header.codec === Codec.rows || header.type === FrameType.residual) return this.payloadOfOther(header);
    const chunk = this.chunkOf(header);
    const generation = this.generationOf(header);
    this.receiving.set(chunk.index, generation);
    const slot = this.table.state === 'OVER' ? undefined : this.held.slotFor(generation);
    // A chunk that is here is in use: the compute thread reads it, and a second copy may yet fail its checksum.
    const isWanted =
      slot !== undefined && !slot.have.has(chunk.index) && (!this.isDifference(header.codec) || this.baseOf(header) !== undefined);
    return this.destination(header, chunk, isWanted ? this.options.store.bytes(generation) : undefined);
  }

  /** A chunk that is late is that of the present generation, where the rounds in between have not exchanged it. */
  private generationOf({ round, chunk }: FrameHeader): number {
    let generation = round;
    while (generation < this.round && !this.held.exchanges(generation, chunk)) generation++;
    return generation;
  }

  /** The vector of the generation before, where this chunk of it is here. */
  private baseOf({ round, chunk }: FrameHeader): Uint8Array | undefined {
    return this.held.has(round - 1, chunk) ? this.options.store.bytes(round - 1) : undefined;
  }

  /** Where the payload of a frame goes that is no chunk of parameters: rows, or what a replica has kept. */
  private payloadOfOther(header: FrameHeader): Uint8Array {
    const { type, codec, chunk, term } = header;
    const takes = codec === Codec.rows && type === FrameType.parameters ? this.pulls : type === FrameType.residual ? this.kept : undefined;
    if (!takes) throw new ProtocolError('BAD_FRAME', `a frame of type ${type} from a server`);
    checkAttempt(header, this.options.attempt);
    this.rest.moved();
    this.terms.check(takes === this.pulls ? this.pulls.groupOf(chunk).server : (this.byIndex.get(chunk)?.server ?? 0), term);
    return takes.payloadFor(header);
  }

  /** A whole parameter chunk has come. */
  data(header: FrameHeader): void {
    this.rest.moved();
    if (this.table.state === 'OVER') return;
    if (header.type === FrameType.residual) {
      this.table.take('residual');
      return this.kept?.data(header);
    }
    if (header.codec === Codec.rows) return this.receivedShorter(this.pulls.groupOf(header.chunk).server, this.pulls.data(header) ?? 0);
    const generation = this.receiving.get(header.chunk)!;
    const slot = this.held.at(generation);
    if (slot.generation !== generation) return this.table.take('parametersStale');
    const isKept = this.wasKept(
      header,
      () => this.options.store.bytes(generation),
      () => this.baseOf(header),
    );
    if (!isKept) {
      this.table.take('parameters');
      // A difference to what is not here.
      const isMissing = this.isDifference(header.codec) && !slot.have.has(header.chunk);
      return isMissing ? this.sendToOwner(header.chunk, { type: 'pull', generation: header.round, chunk: header.chunk }) : undefined;
    }
    this.held.came(generation, header.chunk);
    this.rate?.arrived(header.length);
    if (generation < this.round) this.held.carry(generation, [header.chunk]);
    const complete = this.held.isComplete(this.round);
    this.table.take('parameters', complete && this.roundKnown ? 'READY' : undefined);
    if (complete) this.start();
  }

  message(server: number, message: Message): void {
    if (this.table.state === 'OVER') return;
    switch (message.type) {
      case 'welcome':
        return this.onWelcome(server, message);
      case 'view':
        return this.onView(message);
      case 'commit':
        return this.onCommit(message);
      case 'evaluate':
        this.table.take('evaluate');
        return this.onEvaluate(message);
      case 'tell-again':
        this.table.take('toldAgain');
        this.tellAgain();
        this.pull();
        this.pulls.sendAgain();
        this.kept?.tellAgain();
        return this.sendAgain();
      case 'residual-pull':
        this.table.take('residualPull');
        if (!this.kept) throw new ProtocolError('BAD_MESSAGE', 'this run keeps nothing of replicas in checkpoints');
        return this.kept.pulled(server, message, this.round);
      case 'credit':
        this.table.take('credit');
        this.credits.credit(server, message.round, message.base);
        return this.sendWindow(server);
      case 'dropped':
        return this.onDropped(server, message);
      case 'end':
        return this.end(message.outcome, message.message);
      case 'heartbeat':
        if (message.echo !== undefined) this.rate?.answered(message.echo);
        return;
      default:
        throw new ProtocolError('BAD_MESSAGE', `a server does not send ${message.type} to a worker`);
    }
  }

  // ---- from the compute thread ----

  contribution(round: number, replica: number, examples: number, sums: readonly number[], lost?: MessageOf<'contribution'>['lost']): void {
    if (this.table.state === 'OVER') return;
    if (round !== this.round) {
      if (lost !== undefined) this.untold.set(replica, lost);
      return;
    }
    const loss = lost ?? this.untold.get(replica);
    this.untold.delete(replica);
    if (loss !== undefined && this.options.keepsEstimates) this.withheld.add(replica);
    this.tell({ type: 'contribution', round, replica, examples, sums: [...sums], ...(loss === undefined ? {} : { lost: loss }) });
  }

  node(node: GradientNode): void {
    if (node.round !== this.round || this.table.state === 'OVER' || this.withheld.has(node.lo)) return node.release();
    this.table.take('node');
    this.nodes.push(new HeldGradient(node, this.options.servers, this.isExtra(node)));
    if (this.rate && !this.owesNodes()) this.measured(this.rate);
    for (const server of this.ownedBy.keys()) this.sendWindow(server);
  }

  /** The first pace is told before the gradient: over a slow link the coordinator hears it that much sooner. */
  private measured(rate: RoundPace): void {
    const isKnown = rate.pace !== undefined;
    rate.computed(this.nodes.length, this.asked.size);
    if (!isKnown && rate.pace) this.heartbeat(this.computed);
  }

  /** Every replica that is encoded is sent by itself. */
  private isExtra({ lo }: GradientNode): boolean {
    const { firstOfSums } = this.options;
    if (!firstOfSums) return false;
    this.firsts ??= new Set(firstOfSums([...this.asked]));
    return !this.firsts.has(lo);
  }

  /** Copies of what a round has left of replicas. */
  residuals(round: number, residuals: readonly ReplicaResidual[]): void {
    if (this.table.state !== 'OVER') this.kept?.copied(round, residuals);
  }

  /** It computes from rows of a table that it does not have. */
  wants(generation: number, group: number, ids: Uint32Array): void {
    if (generation >= this.round && this.table.state !== 'OVER') this.pulls.ask(generation, group, ids);
  }

  /** @param examples 0 where the compute thread has not measured the block, since nobody wants it any more */
  evaluated(generation: number, from: number, to: number, examples: number, sums: readonly number[]): void {
    this.measuring = Math.max(0, this.measuring - 1);
    if (examples === 0 || !this.mayMeasure(generation) || this.table.state === 'OVER') return;
    this.tell({ type: 'evaluated', generation, from, to, examples, sums: [...sums] });
  }

  // ---- from the worker ----

  /**
   * A compute thread that owes nothing rests, so that one that hangs between its last contribution and its node is found too. For replicas whose residuals are
   * loaded it owes nothing, as for those whose parameters are.
   */
  heartbeat(computed: number): void {
    this.computed = computed;
    const isComputing = this.measuring > 0 || this.owesNodes() || (this.kept?.isCopying ?? false);
    this.beat(computed, isComputing, this.codec && !this.options.measuresStrategy ? undefined : this.rate);
  }

  private owesNodes(): boolean {
    const covered = (replica: number): boolean => this.nodes.some(({ node: { lo, hi } }) => lo <= replica && replica < hi);
    return ![...this.asked].every((replica) => covered(replica) || this.kept?.awaits(replica));
  }

  /** What the member waits for, for deadlines and logs. */
  waitingFor(): string {
    const missing = this.missingConnection();
    if (missing !== undefined) return missing;
    if (!this.held.isComplete(this.round)) return `parameters of generation ${this.round}`;
    if (this.asked.size > this.told.length) return `its own replicas of round ${this.round}`;
    return `COMMIT of round ${this.round}`;
  }

  end(outcome: Outcome, message: string): void {
    if (this.table.state === 'OVER') return;
    this.table.take('end', 'OVER');
    this.releaseNodes();
    this.options.onEnd(outcome, message);
  }

  // ---- inside ----

  private tell(message: MessageOf<'contribution' | 'evaluated'>): void {
    this.told.push(message);
    this.send(0, message);
  }

  private onWelcome(server: number, message: MessageOf<'welcome'>): void {
    if (this.terms.welcomes(server, message.term)) this.takenOver(server);
    this.table.take('welcome');
    if (server === 0) this.moveTo(message.round);
    const { round, base, window, applied } = message;
    this.credits.welcome(server, { round, base, window, isApplied: bitsOf(applied) });
    this.heldByTrees.welcome(server, round, message.nodes);
    this.pulls.sendAgain(server);
    this.kept?.welcome(server, message, this.round);
    if (round > this.round) return;
    if (server === 0) this.tellAgain();
    for (const node of this.nodes) node.next[server] = 0;
    this.sendWindow(server);
  }

  private onDropped(server: number, { round, chunks }: MessageOf<'dropped'>): void {
    this.table.take('dropped');
    const isDropped = bitsOf(chunks);
    if (round !== this.round) return;
    for (const [place, chunk] of this.ownedBy[server]!.entries())
      // What was not sent yet comes with its credit.
      if (isDropped(place)) for (const node of this.nodes) if (place < node.next[server]!) this.sendChunk(node, chunk, true);
  }

  /** Generations that are committed stay: the standby had them whole before they were. */
  private takenOver(server: number): void {
    this.table.take('takenOver');
    for (const { index } of this.ownedBy[server]!) this.held.forget(this.round + 1, index);
  }

  private onView(message: MessageOf<'view'>): void {
    if (message.view < this.view) return this.table.take('viewOld');
    this.table.take('view');
    this.codec = message.codec ?? this.codec;
    this.moveTo(message.round);
    this.takeMembers(message.view, message.term, message.members);
    this.start();
  }

  private tellAgain(): void {
    for (const message of this.told) this.send(0, message);
  }

  /** Asks for the chunks that it misses: of the present generation, then of the next one where that is to be measured. */
  private pull(): void {
    const generation = this.held.isComplete(this.round) ? this.pendingEvaluation?.generation : this.round;
    if (!this.roundKnown || generation === undefined || !this.mayMeasure(generation) || this.held.isComplete(generation)) return;
    for (const chunk of this.options.chunks)
      if (!this.held.has(generation, chunk.index)) this.send(chunk.server, { type: 'pull', generation, chunk: chunk.index });
  }

  /** From the first chunk on: what a server lacks of them is not known. */
  private sendAgain(): void {
    for (const node of this.nodes) node.next.fill(0);
    for (const server of this.ownedBy.keys()) this.sendWindow(server);
  }

  /** What the window of the server allows and was not sent yet. */
  private sendWindow(server: number): void {
    const chunks = this.ownedBy[server]!;
    const limit = Math.min(chunks.length, this.credits.limit(server, this.round));
    const bytesOf = ({ node }: { readonly node: HeldGradient }, at: number): number =>
      this.held.exchanges(this.round, chunks[at]!.index) ? node.bytesOf(chunks[at]!) : 0;
    const senders = this.nodes.map((node) => ({
      node,
      get next(): number {
        return node.next[server]!;
      },
    }));
    for (const [{ node }, place] of inWindow(senders, limit, bytesOf)) {
      node.next[server] = place + 1;
      if (this.credits.isApplied(server, this.round, place) || this.heldByTrees.has(server, this.round, place, node.node)) continue;
      if (this.held.exchanges(this.round, chunks[place]!.index)) this.sendChunk(node, chunks[place]!);
    }
  }

  private onCommit(message: MessageOf<'commit'>): void {
    const sinceMs = spans.now();
    this.committed(message);
    spans.add('commit', sinceMs);
  }

  private committed(message: MessageOf<'commit'>): void {
    if (message.round < this.round) {
      this.table.take('commitOld');
      if (message.members && message.view > this.view) this.takeMembers(message.view, message.term, message.members);
      return this.start();
    }
    this.codec = message.codec ?? this.codec;
    if (message.last) this.isTrained = true;
    // What is still computed may begin with other residuals than the gradient of another worker, which counted, and nobody would hear of it.
    this.kept?.committed(
      message,
      this.told.flatMap((told) => (told.type === 'contribution' ? [told.replica] : [])),
    );
    this.told = [];
    this.moveTo(message.round + 1);
    // What the last rounds have sent is known before the attempt is over.
    if (this.isTrained || this.round >= this.options.totalRounds) this.heartbeat(this.computed);
    if (message.members) this.takeMembers(message.view, message.term, message.members);
    this.table.take('commit', this.held.isComplete(this.round) ? 'READY' : 'SYNCING');
    this.start();
  }

  protected override takeMembers(view: number, term: number, members: Members): void {
    super.takeMembers(view, term, members);
    this.options.onRound?.(this.round, this.replicas);
  }

  /** The round is known to be `round` now; everything of earlier ones is let go. */
  private moveTo(round: number): void {
    this.roundKnown = true;
    if (round <= this.round) return;
    this.round = round;
    this.held.moveTo(round);
    spans.mark(round);
    this.releaseNodes();
    // It may not have been heard, if its COMMIT was not: it is said with the next contribution of the replica.
    for (const told of this.told.splice(0))
      if (told.type === 'contribution' && told.lost !== undefined) this.untold.set(told.replica, told.lost);
    this.asked.clear();
    this.withheld.clear();
    this.firsts = undefined;
    this.pulls.moveTo(round);
    this.kept?.moveTo(round);
    this.options.compute.committed(round - 1);
    this.options.onRound?.(round, this.replicas);
  }

  private start(): void {
    if (!this.roundKnown || !this.held.isComplete(this.round)) return;
    this.held.carry(this.round, this.held.at(this.round).have);
    this.measure();
    if (this.isTrained || this.round >= this.options.totalRounds) return;
    const fresh = this.replicas.filter((replica) => !this.asked.has(replica));
    if (fresh.length === 0) return;
    for (const replica of fresh) this.asked.add(replica);
    this.firsts = undefined;
    const picked = this.codec && this.round >= this.codec.fromRound ? this.codec : undefined;
    this.rate?.begins(this.round, picked?.fromRound);
    const step = (replicas: readonly number[]): void => this.options.compute.step(this.round, replicas, picked?.kind);
    return this.kept ? this.kept.prepare(this.round, fresh, step) : step(fresh);
  }

  private onEvaluate({ generation, blocks }: MessageOf<'evaluate'>): void {
    const pending = this.pendingEvaluation?.generation === generation ? this.pendingEvaluation.blocks : [];
    this.pendingEvaluation = { generation, blocks: [...pending, ...blocks] };
    this.start();
  }

  /** The present generation, or the next one: it is measured before it is committed. */
  private mayMeasure(generation: number): boolean {
    return generation === this.round || generation === this.round + 1;
  }

  private measure(): void {
    if (!this.pendingEvaluation) return;
    const { generation, blocks } = this.pendingEvaluation;
    if (generation >= this.round && !(this.mayMeasure(generation) && this.held.isComplete(generation))) return;
    this.pendingEvaluation = undefined;
    if (generation < this.round) return;
    this.measuring += blocks.length;
    this.options.compute.evaluate(generation, blocks);
  }

  /** Unless its generation k+1 is here: the server has applied it. */
  protected override sendChunk(node: HeldGradient, chunk: MemberChunk, isAsked = false): void {
    const { round } = node.node;
    if (!this.held.has(round + 1, chunk.index)) super.sendChunk(node, chunk, isAsked);
  }

  private releaseNodes(): void {
    for (const node of this.nodes.splice(0)) node.letGo();
  }
}
