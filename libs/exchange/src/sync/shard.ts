/**
 * A shard of the parameters during synchronous rounds (docs/protocol.md §9.2, server side).
 *
 * It gathers tree nodes per chunk; a chunk whose tree is complete is updated at once from generation k into k+1 and streamed
 * to all members, while other chunks still arrive. When all its chunks are applied it tells the coordinator REDUCED(k); on
 * COMMIT(k) generation k is let go. That is plan `streaming`. With plan `two-phase` it keeps the sums of all chunks, reports their
 * scalars, and applies all of them, scaled, or none, when the coordinator has decided. Applied chunks are never undone. A frame from a newer view or of round k+1 is held,
 * unapplied, until this shard's own VIEW or COMMIT has come; older ones are dropped and counted.
 *
 * The decided round is applied chunk by chunk in slices (shard-work.ts). Meanwhile nothing is gathered, and whatever the coordinator says next
 * finds it done.
 *
 * The machine takes no clock and owns no socket: links are handed in, and the optimizer is the plugged-in `update`.
 */
import {
  Codec,
  FrameType,
  ProtocolError,
  checkAttempt,
  type FrameHeader,
  type Members,
  type Message,
  type MessageOf,
} from '@paceline/protocol';
import type { Connection, FrameNumbers } from '../connection.js';
import { copyOf, type RoundDecision } from './agreement.js';
import { bitmapOf, checkGradient } from './gradient-frames.js';
import { KeptGeneration } from './kept-generation.js';
import { acquireRegion, regionSum, type Region } from '../attempt/regions.js';
import { NO_CHUNK } from '../standby/replication.js';
import { leftOut, scalarsOf, SHARD_ROWS, type ChunkReduction, type ShardOptions, type ShardState } from './shard-table.js';
import type { OwnedChunk } from '../attempt/chunks.js';
import { ShardLink } from '../attempt/shard-link.js';
import { ShardWork } from '../attempt/shard-work.js';
import { StateTable } from '../attempt/state-table.js';

/** Headers and control messages in a link's queue, beside the chunks. */
const QUEUE_SLACK_BYTES = 1 << 20;

interface ChunkState {
  readonly chunk: OwnedChunk;
  current: Region;
  next: Region | undefined;
  tree: ChunkReduction;
  /** Plan two-phase: the gradient, while the decision is not there. */
  sum: Region | undefined;
}

export class Shard {
  readonly table = new StateTable<ShardState, typeof SHARD_ROWS>('shard', SHARD_ROWS, 'GATHERING');
  private readonly states: ChunkState[];
  private readonly byIndex = new Map<number, ChunkState>();
  private readonly links = new Set<ShardLink>();
  private members: Members = [];
  private memberIds = new Set<string>();
  private applied = 0;
  /** Plan two-phase: chunks whose sum is there. */
  private gathered = 0;
  /** Plan two-phase: what was decided about the present round. */
  private decision: RoundDecision | undefined;
  /** With backup replicas: chunks that have come, by replica. */
  private readonly leaves: Uint32Array;
  private readonly generationBytes: number;
  /** Plan two-phase: the decided round is being applied. */
  private readonly work: ShardWork;
  private scratch = new Uint8Array(0);
  round: number;
  /** What validations have decided, as of the last COMMIT that said so. */
  private course: string | undefined;
  private readonly best = new KeptGeneration();
  view = 0;
  /**
   * In which this server came to lead the shard, as the arbiter says. The coordinator's own is not taken: a primary that was replaced, and has
   * not heard it, would speak in that of its successor.
   */
  term = 1;

  constructor(private readonly options: ShardOptions) {
    this.round = options.firstRound ?? 0;
    this.work = new ShardWork(options.slices);
    this.leaves = new Uint32Array(options.replicas);
    this.states = options.chunks.map((chunk, i) => ({
      chunk,
      current: options.initial[i]!,
      next: undefined,
      tree: options.createReduction(regionSum),
      sum: undefined,
    }));
    this.generationBytes = options.chunks.reduce((sum, { length }) => sum + length * 4, 0);
    for (const state of this.states) this.byIndex.set(state.chunk.index, state);
    if (this.states.length === 0) this.nothingOwned();
  }

  numbers(): FrameNumbers {
    return { attempt: this.options.attempt, term: this.term, view: this.view, round: this.round };
  }

  /** Admits a connection whose HELLO the gate has accepted. */
  attach(id: string, connection: Connection, streams: boolean): ShardLink {
    this.table.take('join');
    for (const old of this.links) if (old.id === id && old.streams === streams) this.detach(old, true);
    const link = new ShardLink(id, connection, streams);
    this.links.add(link);
    const where = { server: this.options.index, round: this.round, view: this.view, term: this.term };
    const applied = bitmapOf(this.states.map(({ next }) => next !== undefined));
    connection.sendMessage({ type: 'welcome', id, ...where, applied, phase: this.table.state }, this.numbers());
    if (streams) {
      for (const state of this.states) this.sendChunk(link, this.round, state.chunk.index, state.current);
      for (const state of this.states) if (state.next) this.sendChunk(link, this.round + 1, state.chunk.index, state.next);
      this.options.tellCoordinator({ type: 'member-link', id, up: true });
    }
    return link;
  }

  /** A connection is gone. Held frames go with it; what is in the trees stays (it is pure). */
  detach(link: ShardLink, replaced = false): void {
    if (!this.links.delete(link)) return;
    link.receiving?.release();
    link.receiving = undefined;
    for (const held of link.held.values()) held.region.release();
    link.held.clear();
    if (replaced) link.connection.close();
    else if (link.streams && this.memberIds.has(link.id) && this.table.state !== 'OVER') {
      this.options.tellCoordinator({ type: 'member-link', id: link.id, up: false });
    }
  }

  /**
   * Where the payload of a gradient frame goes: a region of the chunk's arena, or scratch when it will be dropped.
   * @throws ProtocolError for everything that a member never sends.
   */
  payloadFor(link: ShardLink, header: FrameHeader): Uint8Array {
    const { options } = this;
    if (header.type !== FrameType.gradient) throw new ProtocolError('BAD_FRAME', 'a server takes no parameters');
    checkAttempt(header, options.attempt);
    const state = this.byIndex.get(header.chunk);
    checkGradient(header, options.isValidNode, state);
    if (header.round > this.round + 1) throw new ProtocolError('BAD_ROUND', `round ${header.round}, this server gathers ${this.round}`);
    if (!link.streams) throw new ProtocolError('NOT_A_MEMBER', 'this connection may only pull');
    const stale = header.round < this.round || (header.round === this.round && this.isDone(state)) || this.table.state === 'OVER';
    if (stale) return this.scratchOf(header.length);
    // A tree over R replicas has less than 2·R nodes.
    if (link.held.size > this.states.length * 2 * options.replicas)
      throw new ProtocolError('BAD_ROUND', 'more frames ahead of the view than one round has');
    link.receiving = acquireRegion(state.chunk.arena, state.chunk.length);
    return link.receiving.bytes;
  }

  /** A whole gradient frame has come. */
  data(link: ShardLink, header: FrameHeader): void {
    const region = link.receiving;
    link.receiving = undefined;
    if (!region) return this.dropped('stale');
    if (this.table.state === 'OVER' || header.round < this.round) {
      region.release();
      return this.dropped('stale');
    }
    if (header.view > this.view || header.round > this.round) {
      this.table.take('chunkHeld');
      const key = `${header.round}/${header.chunk}/${header.nodeLo}-${header.nodeHi}`;
      link.held.get(key)?.region.release();
      link.held.set(key, { header, region });
      return;
    }
    if (!this.memberIds.has(link.id)) {
      // Late pushes of somebody who was declared lost, mostly; it sends again when a view has it back.
      region.release();
      return this.dropped('not a member');
    }
    this.gather(header, region);
  }

  onView(view: number, members: Members): void {
    if (view <= this.view || this.table.state === 'OVER') return;
    this.table.take('view');
    this.setMembers(view, members);
    this.releaseHeld();
  }

  onCommit({ round, view, members, checkpoint, course, best }: Omit<MessageOf<'commit'>, 'type'>): void {
    if (round < this.round || this.table.state === 'OVER') return this.table.take('commitRepeated');
    if (round > this.round) throw new Error(`shard ${this.options.index}: COMMIT(${round}) in round ${this.round}`);
    if (this.states.length === 0 && this.table.state === 'DECIDING') this.table.take('decision', 'REDUCED');
    this.table.take('commit', 'GATHERING');
    this.decision = undefined;
    for (const state of this.states) {
      state.current.release();
      state.current = state.next!;
      state.next = undefined;
      state.tree = this.options.createReduction(regionSum);
    }
    this.applied = 0;
    this.gathered = 0;
    this.leaves.fill(0);
    this.round++;
    if (course !== undefined) this.options.onCourse?.((this.course = course));
    if (members) this.setMembers(view, members);
    const retained = (): Region[] => this.states.map((state) => state.current.retain());
    if (checkpoint) this.options.onCheckpoint?.(this.round, retained());
    if (best) this.best.keep(this.round, retained());
    if (this.states.length === 0) this.nothingOwned();
    else this.releaseHeld();
  }

  onPull(link: ShardLink, generation: number, chunk: number): void {
    if (this.table.state === 'OVER') return;
    const state = this.byIndex.get(chunk);
    if (!state) throw new ProtocolError('UNKNOWN_CHUNK', `chunk ${chunk}`);
    this.table.take('pull');
    const other = generation === this.round + 1 ? state.next : this.best.regionOf(generation, this.states.indexOf(state));
    const region = generation === this.round ? state.current : other;
    if (region) this.sendChunk(link, generation, chunk, region);
  }

  /** Tells members and collectors that this process lives; call it every second. */
  heartbeat(): void {
    for (const link of this.links) link.connection.sendMessage({ type: 'heartbeat', progress: this.round }, this.numbers());
  }

  /** Replicas whose gradient some chunk still lacks, for messages about what a round waits for. */
  missingReplicas(): number[] {
    const missing = new Set<number>();
    for (const state of this.states) if (!this.isDone(state)) for (const leaf of state.tree.missingLeaves()) missing.add(leaf);
    return [...missing].sort((a, b) => a - b);
  }

  /** Standby: where the sum of a reduced chunk goes; undefined when it is applied already. @throws ProtocolError */
  regionForReplica(header: FrameHeader): Region | undefined {
    const state = this.byIndex.get(header.chunk);
    if (!state) throw new ProtocolError('UNKNOWN_CHUNK', `chunk ${header.chunk}`);
    if (header.length !== state.chunk.length * 4) throw new ProtocolError('WRONG_LENGTH', `chunk ${header.chunk}`);
    if (header.round > this.round) throw new ProtocolError('BAD_ROUND', `round ${header.round}, this standby is in ${this.round}`);
    if (header.round < this.round || state.next) return undefined;
    // Unscaled it would be another update than that of the primary, and nobody would notice.
    if (this.options.twoPhase && !this.decision) throw new ProtocolError('BAD_ROUND', `the DECISION of round ${header.round} has not come`);
    return acquireRegion(state.chunk.arena, state.chunk.length);
  }

  /** Standby: applies what the primary has reduced. */
  applyReplica(header: FrameHeader, gradient: Region | undefined, acknowledge: (message: Message) => void): void {
    const state = this.byIndex.get(header.chunk)!;
    if (gradient && header.round === this.round && !state.next && this.table.state === 'GATHERING') {
      state.next = acquireRegion(state.chunk.arena, state.chunk.length);
      this.options.update(state.chunk, this.round, state.current, state.next, gradient, this.decision);
      this.applied++;
      this.table.take('replica', this.applied === this.states.length ? 'REDUCED' : undefined);
    }
    gradient?.release();
    acknowledge({ type: 'replicated', round: header.round, chunk: header.chunk });
  }

  /** Standby: VIEW, DECISION and COMMIT in the primary's order. A checkpoint is the primary's to write. */
  followOrder(message: Message): readonly Message[] | undefined {
    const replicated = (round: number, chunks: readonly number[]) => chunks.map((chunk): Message => ({ type: 'replicated', round, chunk }));
    if (message.type === 'decision') return replicated(message.round, this.decideReplica(message));
    if (message.type === 'view') this.onView(message.view, message.members);
    else if (message.type === 'commit') this.onCommit({ ...message, checkpoint: false });
    else return undefined;
    return message.type === 'commit' && this.states.length === 0 ? replicated(this.round, [NO_CHUNK]) : [];
  }

  /** False when the coordinator sends no such message to a shard. */
  fromCoordinator(link: ShardLink, message: Message): boolean {
    this.finishWork();
    if (message.type === 'view') this.onView(message.view, message.members);
    else if (message.type === 'commit') this.onCommit(message);
    else if (message.type === 'include') this.onInclude(message);
    else if (message.type === 'decision') this.onDecision(message);
    else if (message.type === 'pull') this.onPull(link, message.generation, message.chunk);
    else if (message.type === 'tell-again') this.tellAgain();
    else return false;
    return true;
  }

  /** Standby, plan two-phase: what comes next is applied like this, or not at all. Returns the chunks that are done with it. */
  private decideReplica({ round, ...decision }: Omit<MessageOf<'decision'>, 'type'>): number[] {
    if (round !== this.round || this.table.state !== 'GATHERING') return [];
    this.decision = copyOf(decision);
    if (!decision.skip) return [];
    for (const state of this.states) state.next ??= leftOut(this.options, this.round, state);
    this.applied = this.states.length;
    this.table.take('replica', 'REDUCED');
    return this.chunkIndices();
  }

  chunkIndices(): number[] {
    return this.states.map(({ chunk }) => chunk.index);
  }

  /** Standby: it is the primary now. It stands where its former primary had it; links come, and the coordinator is told. */
  promote(term: number): void {
    this.table.take('promoted');
    this.term = Math.max(this.term, term);
  }

  /**
   * Where this shard stands, for a coordinator that it joins.
   * @param isHeldBack what is reduced here is not so at the standby yet
   */
  standing(isHeldBack = false): MessageOf<'standing'> {
    this.finishWork();
    // Without chunks there is nothing that could be missing.
    const isReduced = this.table.state === 'REDUCED' || this.states.length === 0;
    const { round, view, term, decision, course } = this;
    const standing = { type: 'standing', round, view, term, isReduced: isReduced && !isHeldBack } as const;
    return { ...standing, ...(isReduced && decision ? { decision } : {}), ...(course === undefined ? {} : { course }) };
  }

  stand(tell: (standing: Message) => void, isHeldBack: boolean): void {
    tell(this.standing(isHeldBack));
  }

  /** The members as this shard knows them, for a coordinator that begins here. */
  known(): { readonly view: number; readonly members: Members } {
    return { view: this.view, members: this.members };
  }

  /**
   * The coordinator lacks something that it was told: another one has taken over, or the round stands still.
   * @param isHeldBack what is reduced here is not so at the standby yet
   */
  tellAgain(isHeldBack = false): void {
    this.finishWork();
    if (this.table.state === 'OVER') return;
    const missing = this.table.state === 'GATHERING' ? this.missingReplicas() : [];
    this.options.tellCoordinator({ ...this.standing(isHeldBack), missing });
    if (this.table.state === 'DECIDING') return this.reportScalars('toldAgain');
    this.table.take('toldAgain');
    if (this.table.state === 'GATHERING' && this.options.twoPhase?.hasBackups)
      this.leaves.forEach((chunks, replica) => chunks > 0 && this.tellComplete(replica));
  }

  end(): void {
    if (this.table.state === 'OVER') return;
    this.table.take('end', 'OVER');
    this.work.cancel();
    this.best.letGo();
    for (const link of [...this.links]) this.detach(link);
    for (const state of this.states) {
      state.tree.dispose();
      state.sum?.release();
      state.next?.release();
      state.current.release();
    }
  }

  /** What comes next finds the decided round applied. */
  finishWork(): void {
    this.work.finish();
  }

  private setMembers(view: number, members: Members): void {
    this.view = view;
    this.members = members;
    this.memberIds = new Set(this.members.map((member) => member.id));
  }

  /** What comes for the chunk in this round is not needed any more. */
  private isDone(state: ChunkState): boolean {
    return state.next !== undefined || state.sum !== undefined || this.table.state === 'DECIDING';
  }

  private gather(header: FrameHeader, region: Region): void {
    const state = this.byIndex.get(header.chunk)!;
    if (this.isDone(state) || this.table.state === 'REDUCED') {
      region.release();
      return this.dropped('applied');
    }
    const outcome = state.tree.insert({ lo: header.nodeLo, hi: header.nodeHi }, region);
    if (outcome === 'dropped') return this.dropped('duplicate');
    this.table.take('chunkKept');
    if (this.options.twoPhase?.hasBackups) this.countLeaf(header.nodeLo);
    else if (outcome === 'complete' && this.options.twoPhase) this.keepSum(state);
    else if (outcome === 'complete') this.apply(state);
  }

  private keepSum(state: ChunkState): void {
    state.sum = state.tree.takeRoot!();
    this.gathered++;
    if (this.gathered === this.states.length) this.reportScalars('chunkGathered');
    else this.table.take('chunkGathered');
  }

  private countLeaf(replica: number): void {
    this.leaves[replica]!++;
    this.tellComplete(replica);
  }

  private tellComplete(replica: number): void {
    if (this.leaves[replica] !== this.states.length) return;
    this.table.take('replicaComplete');
    this.options.tellCoordinator({ type: 'replica-complete', round: this.round, replica });
  }

  /** Which replicas count. */
  onInclude({ round, replicas }: Omit<MessageOf<'include'>, 'type'>): void {
    if (round !== this.round || this.table.state !== 'GATHERING') return this.table.take('decisionRepeated');
    const included = new Set(replicas);
    for (const state of this.states) state.sum = state.tree.takeSum!(included);
    this.reportScalars('include');
  }

  onDecision({ round, ...decision }: Omit<MessageOf<'decision'>, 'type'>): void {
    if (round !== this.round || this.table.state !== 'DECIDING') return this.table.take('decisionRepeated');
    this.work.begin(this.applyDecided(decision), () => {
      this.decision = copyOf(decision);
      this.reportReduced('decision');
    });
  }

  private *applyDecided(decision: RoundDecision): Generator<void> {
    for (const [i, state] of this.states.entries()) {
      if (i > 0) yield;
      const sum = state.sum!;
      state.sum = undefined;
      if (decision.skip) state.next = leftOut(this.options, this.round, state);
      else {
        this.options.onReduced?.(this.round, state.chunk.index, sum, decision);
        state.next = acquireRegion(state.chunk.arena, state.chunk.length);
        this.options.update(state.chunk, this.round, state.current, state.next, sum, decision);
      }
      sum.release();
      this.applied++;
      this.publish(state);
    }
  }

  private reportScalars(row: 'chunkGathered' | 'include' | 'nothingOwned' | 'toldAgain'): void {
    this.table.take(row, 'DECIDING');
    const chunks = this.states.map((state) => scalarsOf(this.options, this.round, state));
    this.options.tellCoordinator({ type: 'scalars', round: this.round, chunks });
  }

  private nothingOwned(): void {
    const { twoPhase } = this.options;
    if (!twoPhase) return this.reportReduced('nothingOwned');
    if (!twoPhase.hasBackups) this.reportScalars('nothingOwned'); // with backup replicas it answers to INCLUDE
  }

  private apply(state: ChunkState): void {
    const gradient = state.tree.takeRoot!();
    if (!gradient.arena.kernels.allFinite(gradient.pointer, gradient.length)) {
      this.table.take('nonFinite');
      gradient.release();
      return this.options.tellCoordinator({ type: 'non-finite', round: this.round, chunk: state.chunk.index });
    }
    this.options.onReduced?.(this.round, state.chunk.index, gradient);
    const next = acquireRegion(state.chunk.arena, state.chunk.length);
    this.options.update(state.chunk, this.round, state.current, next, gradient);
    gradient.release();
    state.next = next;
    this.applied++;
    this.publish(state);
    if (this.applied === this.states.length) this.reportReduced('chunkComplete');
    else this.table.take('chunkComplete');
  }

  private publish(state: ChunkState): void {
    for (const link of this.links) if (link.streams) this.sendChunk(link, this.round + 1, state.chunk.index, state.next!);
  }

  private reportReduced(row: 'chunkComplete' | 'decision' | 'nothingOwned'): void {
    this.table.take(row, 'REDUCED');
    this.options.tellCoordinator({ type: 'reduced', round: this.round });
  }

  /** To a peer that has two generations still to read nothing is sent: it pulls what it misses when it has read them. */
  private sendChunk(link: ShardLink, generation: number, chunk: number, region: Region): void {
    if (link.connection.queuedBytes > 2 * this.generationBytes + QUEUE_SLACK_BYTES) return;
    region.retain();
    link.connection.sendData(
      { type: FrameType.parameters, codec: Codec.none, ...this.numbers(), round: generation, nodeLo: 0, nodeHi: 0, chunk },
      region.bytes,
      () => region.release(),
    );
  }

  private releaseHeld(): void {
    for (const link of [...this.links]) {
      for (const [key, { header, region }] of [...link.held]) {
        if (header.view > this.view || header.round > this.round) continue;
        link.held.delete(key);
        if (header.round < this.round || !this.memberIds.has(link.id)) {
          region.release();
          this.dropped('stale');
        } else this.gather(header, region);
      }
    }
  }

  private scratchOf(bytes: number): Uint8Array {
    if (this.scratch.length < bytes) this.scratch = new Uint8Array(bytes);
    return this.scratch.subarray(0, bytes);
  }

  private dropped(reason: string): void {
    if (this.table.allows('chunkStale')) this.table.take('chunkStale');
    this.options.onDropped?.(reason);
  }
}
