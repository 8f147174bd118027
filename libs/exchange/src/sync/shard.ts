/**
 * A shard of the parameters during synchronous rounds (docs/protocol.md §9.2, server side): what members, the coordinator and a primary tell it. What becomes of a
 * gradient in between is in shard-round.ts.
 *
 *   gradient chunk → reduce → apply → publish → REDUCED(k) to the coordinator → COMMIT(k): generation k is let go
 *
 * Applied chunks are never undone. A frame from a newer view or of round k+1 is held, unapplied, until this shard's own VIEW or COMMIT has come; older
 * ones are dropped and counted. A round is measured, and applied when it is decided, chunk by chunk in slices (shard-work.ts): whatever the coordinator says next finds it done.
 *
 * The machine takes no clock and owns no socket: links are handed in, and the optimizer is the plugged-in `update`.
 */
import { FrameType, ProtocolError, type FrameHeader, type Members, type Message, type MessageOf } from '@paceline/protocol';
import type { Connection } from '../connection.js';
import { bitmapOf } from '../transfer/bitmap.js';
import type { OwnedChunk } from '../transfer/chunks.js';
import { GrantedWindow } from '../transfer/credit-window.js';
import { ParameterOutlet } from '../transfer/parameter-outlet.js';
import type { GatheredResiduals } from '../transfer/residuals.js';
import { ShardLink, ShardTransfer } from '../transfer/shard-transfer.js';
import type { Region } from '../attempt/regions.js';
import type { ReplicationOptions } from '../standby/replication.js';
import type { ShardMachine } from '../standby/shard-machine.js';
import { NO_CHUNK, RoundReplication } from './round-replication.js';
import { RowRequests } from './row-requests.js';
import { ShardResiduals } from './shard-residuals.js';
import { ShardFollower } from './shard-follower.js';
import { ShardRound, type RoundChunk } from './shard-round.js';
import { nodesIn } from './tree-nodes.js';
import { SHARD_ROWS, type ShardOptions, type ShardState } from './shard-table.js';
import { StateTable } from '../attempt/state-table.js';

interface HeldFrame {
  readonly header: FrameHeader;
  readonly region: Region;
}

/** Frames that are ahead of the shard, by round, chunk and node: what is sent again replaces what was sent. */
type HeldFrames = Map<string, HeldFrame>;

/** What the shard keeps for a connection. */
interface LinkState {
  readonly held: HeldFrames;
  readonly outlet: ParameterOutlet<RoundChunk>;
  /** Places of chunks of the present round that were dropped, as the view does not name the member: it sends them again when one does. */
  readonly dropped: Set<number>;
}

export class Shard extends ShardTransfer<LinkState, ShardOptions> implements ShardMachine {
  readonly table = new StateTable<ShardState, typeof SHARD_ROWS>('shard', SHARD_ROWS, 'GATHERING');
  private readonly present: ShardRound;
  private readonly window: GrantedWindow;
  private readonly requests: RowRequests | undefined;
  private readonly residuals: ShardResiduals | undefined;
  /** As a primary with a standby. */
  replication: Pick<RoundReplication, 'reduced' | 'holdsBack'> | undefined;
  /** As a standby. */
  private readonly follower: ShardFollower;
  /** Members of the view before the present one. */
  private before: Members = [];
  /** What validations have decided, as of the last COMMIT that said so. */
  private course: string | undefined;

  constructor(options: ShardOptions) {
    super(options);
    this.present = new ShardRound(options, this.table, this);
    this.window = new GrantedWindow(options.gradientWindowChunks ?? Math.max(1, options.chunks.length), options.chunks.length);
    this.follower = new ShardFollower(this.present, this.table, options.twoPhase !== undefined);
    if (options.tables)
      this.requests = new RowRequests(options.tables, {
        numbers: () => this.numbers(),
        isApplied: (group) => this.present.generations.next(this.present.chunkAt(group)!.place) !== undefined,
        round: () => this.round,
      });
    if (options.residuals) {
      const [{ replicas }, chunks] = [options, this.chunkIndices()];
      this.residuals = new ShardResiduals(Object.assign({ replicas, chunks }, options.residuals), {
        numbers: () => this.numbers(),
        round: () => this.round,
        isOpen: (link) => this.links.has(link),
        computes: (id, replica) => this.known().members.some((member) => member.id === id && member.replicas.includes(replica)),
        linkOf: (id) => [...this.links.keys()].find((link) => link.streams && link.id === id),
      });
    }
    this.present.layout();
  }

  get round(): number {
    return this.present.number;
  }

  override known(): ReturnType<ShardMachine['known']> {
    return { ...super.known(), leftOut: [...this.follower.leftOut] };
  }

  // ---- from members ----

  /** Admits a connection whose HELLO the gate has accepted. */
  attach(id: string, connection: Connection): ShardLink {
    this.table.take('join');
    const { chunks, generations } = this.present;
    const applied = bitmapOf(chunks.map((chunk) => this.present.isDone(chunk)));
    const nodes = nodesIn(
      chunks.map((chunk) => (this.present.isDone(chunk) ? undefined : chunk.tree)),
      this.options.replicas,
    );
    const outlet = new ParameterOutlet<RoundChunk>({
      connection,
      numbers: () => this.numbers(),
      find: (generation, { place }, base) => generations.published(generation, place, base),
      sendsDifferences: this.options.encoder?.advance !== undefined,
      windowBytes: this.options.parameterWindowBytes,
    });
    const link = this.admit(
      new ShardLink(id, connection, true, this.options.decoder),
      { held: new Map(), outlet, dropped: new Set() },
      {
        applied,
        window: this.window.size,
        base: this.present.base,
        phase: this.table.state,
        ...(nodes.length > 0 ? { nodes } : {}),
        ...this.residuals?.offered,
      },
    );
    if (link.streams) this.residuals?.attached(link);
    const whole = chunks.filter(({ rows }) => !rows);
    for (const chunk of whole) outlet.offer(this.round, chunk);
    // What the round does not exchange it has of both generations then.
    for (const chunk of whole) if (generations.next(chunk.place) && this.present.exchanges(chunk)) outlet.offer(this.round + 1, chunk);
    this.tellLink(link, true);
    return link;
  }

  /** A connection is gone. Held frames go with it; what is in the trees stays (it is pure). */
  detach(link: ShardLink, isReplaced = false): void {
    const state = this.drop(link);
    if (!state) return;
    for (const { region } of state.held.values()) region.release();
    state.outlet.end();
    this.requests?.forget(link);
    this.residuals?.forget(link);
    if (isReplaced) link.connection.close();
    else if (this.table.state !== 'OVER') this.tellLink(link, false);
  }

  /**
   * Where the payload of a gradient frame goes: a region of the chunk's arena, or scratch when it will be dropped.
   * @throws ProtocolError for everything that a member never sends.
   */
  payloadFor(link: ShardLink, header: FrameHeader): Uint8Array {
    if (this.requests && header.type === FrameType.rows) return this.requests.payloadFor(link, header);
    if (this.residuals && header.type === FrameType.residual) return this.residuals.payloadFor(link, header);
    const { replicas, isValidNode } = this.options;
    const { round, nodeLo, nodeHi } = header;
    const chunk = this.present.chunkAt(header.chunk);
    this.checkGradient(link, header, chunk);
    if (!isValidNode(nodeLo, nodeHi)) throw new ProtocolError('BAD_NODE', `[${nodeLo}, ${nodeHi})`);
    if (round > this.round + 1) throw new ProtocolError('BAD_ROUND', `round ${round}, this server gathers ${this.round}`);
    this.checkWindow(round, chunk);
    const held = this.links.get(link)?.held;
    // What the tree holds already takes no memory.
    const isStale = round < this.round || (round === this.round && this.present.holds(chunk, header)) || this.table.state === 'OVER';
    if (isStale || !held) return link.receive(header, undefined);
    // A tree over R replicas has less than 2·R nodes.
    if (held.size > this.window.size * 2 * replicas)
      throw new ProtocolError('BAD_ROUND', 'more frames ahead of the view than one round has');
    return link.receive(header, chunk);
  }

  check(link: ShardLink, header: FrameHeader): void {
    this.checkGradient(link, header, this.present.chunkAt(header.chunk));
  }

  /** @throws ProtocolError for a chunk that no member was granted */
  private checkWindow(round: number, { place }: RoundChunk): void {
    const base = round === this.round ? this.present.base : 0;
    if (round >= this.round && place >= base + this.window.size)
      throw new ProtocolError('BAD_ROUND', `place ${place} of round ${round}, the window ends at ${base + this.window.size}`);
  }

  /** A whole gradient frame has come. */
  data(link: ShardLink, header: FrameHeader): void {
    if (header.type === FrameType.rows) return this.table.state === 'OVER' ? undefined : this.requests?.data(link, header);
    if (header.type === FrameType.residual) {
      if (this.table.state !== 'OVER') this.table.take('residual');
      return this.residuals?.data(link, header);
    }
    const region = link.received();
    const held = this.links.get(link)?.held;
    if (!region || !held || this.table.state === 'OVER' || header.round < this.round) {
      region?.release();
      return this.dropped('stale');
    }
    if (header.view <= this.view && header.round === this.round) return this.gather(link, header, region, 'not a member');
    this.table.take('chunkHeld');
    const key = `${header.round}/${header.chunk}/${header.nodeLo}-${header.nodeHi}`;
    held.get(key)?.region.release();
    held.set(key, { header, region });
  }

  onPull(link: ShardLink, generation: number, chunk: number): void {
    if (this.table.state === 'OVER') return;
    const { tables } = this.options;
    const ofTable =
      this.links.get(link)?.outlet && link.streams
        ? undefined
        : tables?.find(chunk, generation === this.present.generations.bestNumber && generation !== this.round);
    if (ofTable) {
      this.table.take('pull');
      return this.sendTo(link, { type: FrameType.parameters, round: generation, lo: 0, hi: 0 }, { index: chunk }, ofTable.retain());
    }
    const pulled = this.present.chunkAt(chunk);
    if (!pulled || pulled.rows) throw new ProtocolError('UNKNOWN_CHUNK', `chunk ${chunk}`);
    this.table.take('pull');
    const outlet = this.links.get(link)?.outlet;
    const region = this.present.generations.find(generation, pulled.place);
    // What is not there comes with the next generation, or never: nothing else is remembered for a member.
    if (outlet) return region || generation === this.round + 1 ? outlet.offer(generation, pulled, true) : undefined;
    // The coordinator, which collects the weights a few at a time.
    if (region) this.sendTo(link, { type: FrameType.parameters, round: generation, lo: 0, hi: 0 }, pulled, region.retain());
  }

  /** Tells members and collectors that this process lives; call it every second. */
  heartbeat(): void {
    this.beat(this.round);
  }

  fromWorker(link: ShardLink, message: Message): boolean {
    if (message.type === 'residual-pull' && this.residuals) {
      if (this.table.state === 'OVER') return true;
      this.table.take('residualPull');
      this.residuals.pulled(link, message);
      return true;
    }
    if (message.type !== 'pull') return false;
    this.onPull(link, message.generation, message.chunk);
    return true;
  }

  // ---- to a standby ----

  replicate(options: ReplicationOptions): RoundReplication {
    const replication = new RoundReplication({ ...options, replicas: this.options.replicas, chunkIndices: () => this.chunkIndices() });
    this.replication = replication;
    return replication;
  }

  /** A chunk is reduced and about to be applied. @param willChange the update may write to it */
  reduced(chunk: OwnedChunk, sum: Region, willChange: boolean): void {
    this.replication?.reduced(this.round, chunk.index, sum, willChange);
  }

  // ---- from the coordinator ----

  /** False when the coordinator sends no such message to a shard. */
  fromCoordinator(link: ShardLink, message: Message): boolean {
    this.finishWork();
    // Before the view or commit: chunks that it releases may be encoded.
    if ((message.type === 'view' || message.type === 'commit') && message.codec) this.options.encoder?.picked?.(message.codec);
    if (message.type === 'view') this.onView(message.view, message.members);
    else if (message.type === 'commit') this.onCommit(message);
    else if (message.type === 'include') this.present.include(message);
    else if (message.type === 'decision') this.present.decide(message);
    else if (message.type === 'pull') this.onPull(link, message.generation, message.chunk);
    else return false;
    return true;
  }

  onView(view: number, members: Members): void {
    if (view <= this.view || this.table.state === 'OVER') return;
    this.table.take('view');
    this.before = this.known().members;
    this.takeView(view, members);
    this.releaseHeld();
    this.askForDropped();
  }

  onCommit({ round, view, members, checkpoint, handedOn, course, best }: Omit<MessageOf<'commit'>, 'type'>): void {
    if (round < this.round || this.table.state === 'OVER') return this.commitAgain(round, checkpoint);
    if (round > this.round) throw new Error(`shard ${this.options.index}: COMMIT(${round}) in round ${this.round}`);
    this.offerCarried();
    this.present.commit();
    for (const { dropped } of this.links.values()) dropped.clear();
    this.window.reset();
    const { generations } = this.present;
    if (course !== undefined) this.options.host?.courseDecided((this.course = course));
    // A standby that was promoted hears VIEW first, which holds for the next round already.
    const computed = members && view === this.view ? this.before : this.known().members;
    const residuals = checkpoint ? this.residuals?.gather(round, computed) : undefined;
    this.residuals?.committed(round, handedOn ?? [], computed);
    if (members) this.takeView(view, members);
    if (checkpoint) this.handToCheckpoint(residuals);
    if (best) {
      generations.keepAsBest();
      this.options.tables?.keepAsBest();
    }
    this.requests?.look();
    this.present.layout();
    if (this.window.mustTell(this.present.base)) this.tellCredit(); // chunks that the round does not exchange are done
    this.releaseHeld();
  }

  /** It is committed. A coordinator that has taken over may want the checkpoint once more that belongs to it. */
  private commitAgain(round: number, checkpoint: boolean | undefined): void {
    const isWanted = checkpoint === true && round === this.round - 1 && this.table.state !== 'OVER';
    this.table.take(isWanted ? 'checkpointAgain' : 'commitRepeated');
    if (isWanted) this.handToCheckpoint();
  }

  private handToCheckpoint(residuals?: GatheredResiduals): void {
    const [{ generations }, { tables, host }] = [this.present, this.options];
    host?.checkpointWanted(this.round, tables ? tables.whole(generations.retained()) : generations.retained(), residuals);
  }

  /** A chunk that the round has not exchanged, and that a member does not have of its generation yet, comes to it as the next one. */
  private offerCarried(): void {
    if (!this.options.isExchanged) return;
    const carried = this.present.chunks.filter((chunk) => !this.present.exchanges(chunk));
    for (const { outlet } of this.links.values())
      for (const chunk of carried) if (outlet.owes(this.round, chunk)) outlet.offer(this.round + 1, chunk);
  }

  /** Where this shard stands, for a coordinator that it joins. What its standby has not acknowledged yet is not reduced. */
  standing(): MessageOf<'standing'> {
    this.finishWork();
    // Without chunks there is nothing that could be missing.
    const isReduced = this.table.state === 'REDUCED' || this.present.chunks.length === 0;
    const { round, view, term, course } = this;
    const { decision } = this.present;
    const standing = { type: 'standing', round, view, term, isReduced: isReduced && !this.replication?.holdsBack } as const;
    return { ...standing, ...(decision ? { decision } : {}), ...(course === undefined ? {} : { course }) };
  }

  stand(tell: (standing: Message) => void): void {
    tell(this.standing());
  }

  /** The coordinator lacks something that it was told: another one has taken over, or the round stands still. */
  tellAgain(): void {
    this.finishWork();
    if (this.table.state === 'OVER') return;
    const missing = this.table.state === 'GATHERING' ? this.missingReplicas() : [];
    this.options.coordinator.tell({ ...this.standing(), missing });
    this.tellCredit();
    this.present.tellAgain();
  }

  end(): void {
    if (this.table.state === 'OVER') return;
    this.table.take('end', 'OVER');
    this.present.end();
    this.options.tables?.letGo();
    this.residuals?.end();
    for (const link of this.links.keys()) this.detach(link);
  }

  /** What comes next finds the round measured, and the decided one applied. */
  finishWork(): void {
    this.present.finishWork();
  }

  missingReplicas(): number[] {
    return this.present.missingReplicas();
  }

  // ---- from a primary, as its standby ----

  chunkAt(index: number): OwnedChunk | undefined {
    return this.present.chunkAt(index);
  }

  wantsReplica(header: FrameHeader): boolean {
    return this.follower.wants(header);
  }

  applyReplica(header: FrameHeader, sum: Region | undefined, acknowledge: (message: Message) => void): void {
    this.follower.arrived(header, sum, acknowledge);
  }

  /** VIEW, DECISION and COMMIT in the primary's order. A checkpoint is the primary's to write. */
  followOrder(message: Message): readonly Message[] | undefined {
    const replicated = (round: number, chunks: readonly number[]) => chunks.map((chunk): Message => ({ type: 'replicated', round, chunk }));
    if (message.type === 'decision') return replicated(message.round, this.follower.decide(message));
    if (message.type === 'view') this.onView(message.view, message.members);
    else if (message.type === 'commit') this.onCommit({ ...message, checkpoint: false });
    else return undefined;
    return message.type === 'commit' && this.present.chunks.length === 0 ? replicated(this.round, [NO_CHUNK]) : [];
  }

  /** It is the primary now. It stands where its former primary had it; links come, and the coordinator is told. */
  promote(term: number): void {
    this.table.take('promoted');
    this.term = Math.max(this.term, term);
  }

  // ---- inside ----

  /** A chunk of generation k+1 is made: to all members. */
  publish(chunk: RoundChunk): void {
    // It is asked for; and the group counts as applied from now on.
    if (chunk.rows) return this.requests?.look();
    for (const [{ streams }, { outlet }] of this.links) if (streams) outlet.offer(this.round + 1, chunk);
  }

  /** @param otherwise why a gradient of somebody who is no member is dropped: a late push of a worker that was declared lost, mostly; it is asked for again when a view has it back */
  private gather(link: ShardLink, header: FrameHeader, region: Region, otherwise: string): void {
    let why: string | undefined = otherwise;
    if (this.isMember(link.id)) why = this.present.reduce(header, region);
    else {
      region.release();
      this.links.get(link)?.dropped.add(this.present.chunkAt(header.chunk)!.place);
    }
    if (why) this.dropped(why);
    if (this.window.mustTell(this.present.base)) this.tellCredit();
  }

  private tellCredit(): void {
    const { round } = this;
    const { base } = this.present;
    for (const { connection, streams } of this.links.keys())
      if (streams) connection.sendMessage({ type: 'credit', round, base }, this.numbers());
  }

  /** Asks members of the present view that sent something before they were in it. */
  private askForDropped(): void {
    for (const [{ id, connection }, { dropped }] of this.links) {
      if (dropped.size === 0 || !this.isMember(id)) continue;
      const chunks = bitmapOf(this.present.chunks.map((chunk) => dropped.has(chunk.place) && !this.present.isDone(chunk)));
      connection.sendMessage({ type: 'dropped', round: this.round, chunks }, this.numbers());
      dropped.clear();
    }
  }

  private releaseHeld(): void {
    for (const [link, { held }] of [...this.links]) {
      for (const [key, { header, region }] of [...held]) {
        if (header.view > this.view || header.round > this.round) continue;
        held.delete(key);
        if (header.round === this.round) this.gather(link, header, region, 'stale');
        else {
          region.release();
          this.dropped('stale');
        }
      }
    }
  }

  private dropped(reason: string): void {
    if (this.table.allows('chunkStale')) this.table.take('chunkStale');
    this.options.host?.frameDropped(reason);
  }
}
