/**
 * A shard of the parameters in modes async and ssp (docs/protocol.md §12.3). It sends its chunks as they are to whoever fetches them for a work item, gathers
 * all of its chunks of the work item's gradient, and then applies them in one go: nothing before the last chunk has come, and each
 * work item once, whoever pushes it and however often.
 *
 *   FETCH → parameters of one moment, noted by worker and work item → gradient chunks → update → mark → APPLIED to the coordinator
 *                                                                                          └─> standby, which applies the same: a shard that follows
 *
 * With a standby nobody is told of an update before the standby has it: APPLIED and the answers to fetches wait.
 *
 * An update is applied chunk by chunk in slices (shard-work.ts). Whole gradients and fetches that come meanwhile wait in one line, and whatever
 * else reads or changes the shard finds the line done first: nothing sees half an update, and all is done in the order in which it came.
 *
 * A chunk that a socket still reads, or that was kept for the delay compensation, is not written: the update then goes to a new region.
 * The step number of an update is the count of work items done here plus one, so it follows from the marks alone.
 */
import { Codec, FrameType, ProtocolError, checkAttempt, type FrameHeader, type Members, type Message } from '@paceline/protocol';
import type { Connection, FrameNumbers } from '../connection.js';
import { acquireRegion, releaseRegions, type Region } from '../attempt/regions.js';
import { ShardLink } from '../attempt/shard-link.js';
import { ShardWork } from '../attempt/shard-work.js';
import { StateTable } from '../attempt/state-table.js';
import { FetchedParameters, type Fetched } from './fetched-parameters.js';
import { DoneSet, type WorkItem } from './done-set.js';
import { AsyncFollower } from './async-follower.js';
import { ITEMS_OF_WORKER, ASYNC_SHARD_ROWS, type AsyncShardOptions, type AsyncShardState, type AsyncUpdate } from './async-shard-table.js';

interface Gathering {
  readonly item: WorkItem;
  view: number;
  readonly regions: Map<number, Region>;
}

/** What a link is in the middle of. */
interface LinkWork {
  readonly gathering: Map<number, Gathering>;
  /** Whole gradients that wait for a view, then fetches that came behind them. */
  held: Gathering[];
  fetches: { round: number; replica: number; term: number }[];
  /** In the line of the shard. */
  readonly waiting: { gradients: number; fetches: number };
}

interface Update {
  readonly item: WorkItem;
  readonly staleness: number;
  readonly gradients: ReadonlyMap<number, Region>;
  readonly how: (place: number) => Pick<AsyncUpdate, 'fetched' | 'isCompensated'>;
}

export class AsyncShard {
  readonly table = new StateTable<AsyncShardState, typeof ASYNC_SHARD_ROWS>('async-shard', ASYNC_SHARD_ROWS, 'SERVING');
  readonly marks: DoneSet;
  private readonly current: Region[];
  private readonly places = new Map<number, number>();
  private readonly links = new Map<ShardLink, LinkWork>();
  private readonly fetched = new FetchedParameters();
  /** As a standby. */
  private readonly follower: AsyncFollower;
  private members: Members = [];
  private memberIds = new Set<string>();
  private updates = 0;
  /** The term in which the coordinator has taken the place of another: what was fetched before belongs to work items of that one. */
  private since = 0;
  private readonly work: ShardWork;
  private scratch = new Uint8Array(0);
  /** The work item whose update is under way: some chunks have it, and its mark is not set. */
  updating: WorkItem | undefined;
  view = 0;
  /** In which this server came to lead the shard; the coordinator's is its own (see Shard). */
  term = 1;

  constructor(private readonly options: AsyncShardOptions) {
    this.marks = new DoneSet(options.plan, options.firstRound);
    this.current = [...options.initial];
    this.work = new ShardWork(options.slices);
    this.follower = new AsyncFollower({
      chunks: options.chunks,
      apply: (item, staleness, gradients, done) => {
        const act = (): void => {
          this.table.take('replica');
          this.update({ item, staleness, gradients, how: () => ({ fetched: undefined, isCompensated: true }) }, () => {
            this.finish(item);
            done();
          });
        };
        this.work.inTurn(act, [...gradients.values()]);
      },
      leaveOut: (item) => {
        this.table.take('replica');
        this.leaveOut(item);
      },
    });
    options.chunks.forEach((chunk, place) => this.places.set(chunk.index, place));
  }

  get round(): number {
    return Math.floor(this.marks.count / this.options.plan.replicas);
  }

  numbers(): FrameNumbers {
    return { attempt: this.options.attempt, term: this.term, view: this.view, round: this.round };
  }

  chunkIndices(): readonly number[] {
    return this.options.chunks.map(({ index }) => index);
  }

  /** Admits a connection whose HELLO the gate has accepted. */
  attach(id: string, connection: Connection, streams: boolean): ShardLink {
    this.table.take('join');
    for (const old of this.links.keys()) if (old.id === id && old.streams === streams) this.detach(old, true);
    const link = new ShardLink(id, connection, streams);
    this.links.set(link, { gathering: new Map(), held: [], fetches: [], waiting: { gradients: 0, fetches: 0 } });
    const { index } = this.options;
    const where = { round: this.round, view: this.view, term: this.term };
    connection.sendMessage({ type: 'welcome', id, server: index, ...where, applied: '', phase: this.table.state }, this.numbers());
    if (streams) this.options.tellCoordinator({ type: 'member-link', id, up: true });
    return link;
  }

  /** A connection is gone, and what it was sending; its worker sends it again, or somebody else computes it. */
  detach(link: ShardLink, replaced = false): void {
    this.finishWork();
    const work = this.links.get(link);
    if (!work) return;
    this.links.delete(link);
    link.receiving?.release();
    link.receiving = undefined;
    for (const gathering of [...work.gathering.values(), ...work.held]) releaseAll(gathering);
    if (replaced) return link.connection.close();
    if (!this.memberIds.has(link.id)) this.fetched.forget(link.id);
    if (link.streams && this.memberIds.has(link.id) && this.table.state !== 'OVER')
      this.options.tellCoordinator({ type: 'member-link', id: link.id, up: false });
  }

  /**
   * Where the payload of a gradient frame goes: a region of the chunk's arena, or scratch when it will be dropped.
   * @throws ProtocolError for everything that a member never sends.
   */
  payloadFor(link: ShardLink, header: FrameHeader): Uint8Array {
    const { options } = this;
    if (header.type !== FrameType.gradient) throw new ProtocolError('BAD_FRAME', 'a server takes no parameters');
    checkAttempt(header, options.attempt);
    if (header.codec !== Codec.none) throw new ProtocolError('BAD_CODEC');
    const place = this.places.get(header.chunk);
    if (place === undefined) throw new ProtocolError('UNKNOWN_CHUNK', `chunk ${header.chunk}`);
    const chunk = options.chunks[place]!;
    if (header.length !== chunk.length * 4)
      throw new ProtocolError('WRONG_LENGTH', `chunk ${header.chunk} has ${chunk.length * 4} bytes, not ${header.length}`);
    if (header.nodeHi !== header.nodeLo + 1 || header.nodeLo >= options.plan.replicas)
      throw new ProtocolError('BAD_NODE', `[${header.nodeLo}, ${header.nodeHi}) is no work item`);
    if (header.round >= options.plan.totalRounds) throw new ProtocolError('BAD_ROUND', `round ${header.round}`);
    if (!link.streams) throw new ProtocolError('NOT_A_MEMBER', 'this connection may only pull');
    const item = itemOf(header);
    const work = this.links.get(link);
    if (!work || this.table.state === 'OVER' || this.marks.has(item) || !this.fetchOf(link.id, item)) return this.scratchOf(header.length);
    const gathering = work.gathering.has(this.marks.numberOf(item)) ? 0 : 1;
    if (work.gathering.size + work.held.length + work.waiting.gradients + gathering > ITEMS_OF_WORKER)
      throw new ProtocolError('BAD_ROUND', `more than ${ITEMS_OF_WORKER} work items at once`);
    link.receiving = acquireRegion(chunk.arena, chunk.length);
    return link.receiving.bytes;
  }

  /** A whole gradient frame has come. */
  data(link: ShardLink, header: FrameHeader): void {
    const region = link.receiving;
    link.receiving = undefined;
    const item = itemOf(header);
    const work = this.links.get(link);
    if (!region || !work || this.marks.has(item)) {
      region?.release();
      const isLast = header.chunk === this.options.chunks.at(-1)!.index;
      if (isLast && this.table.state !== 'OVER' && this.marks.has(item)) this.tellApplied(item, 0);
      return this.dropped('stale');
    }
    this.table.take('chunkKept');
    const number = this.marks.numberOf(item);
    let gathering = work.gathering.get(number);
    if (!gathering) work.gathering.set(number, (gathering = { item, view: header.view, regions: new Map() }));
    gathering.regions.get(header.chunk)?.release(); // sent again
    gathering.regions.set(header.chunk, region);
    gathering.view = header.view;
    if (gathering.regions.size < this.options.chunks.length) return;
    work.gathering.delete(number);
    const whole = gathering;
    work.waiting.gradients++;
    const act = (): void => {
      work.waiting.gradients--;
      this.whole(link, work, whole);
    };
    this.work.inTurn(act, [...whole.regions.values()]);
  }

  /** @param term in which the coordinator has taken over that issued the work item */
  onFetch(link: ShardLink, round: number, replica: number, term = Infinity): void {
    const work = this.links.get(link);
    if (this.table.state === 'OVER' || !work) return;
    if (replica >= this.options.plan.replicas || round > this.options.plan.totalRounds)
      throw new ProtocolError('BAD_ROUND', `round ${round}, replica ${replica}`);
    if (work.fetches.length + work.waiting.fetches >= ITEMS_OF_WORKER) throw new ProtocolError('BAD_ROUND', 'more fetches than work items');
    work.waiting.fetches++;
    const act = (): void => {
      work.waiting.fetches--;
      // Its own update comes first, or a lone worker would compute from parameters without it.
      if (work.held.length === 0) return this.answer(link, round, replica, term);
      work.fetches.push({ round, replica, term });
      this.table.take('fetchHeld');
    };
    this.work.inTurn(act);
  }

  onDrop(round: number, replica: number): void {
    this.finishWork();
    if (this.table.state === 'OVER') return;
    const item = { round, replica };
    if (this.leaveOut(item)) this.options.onApplied?.({ item, staleness: 0, isDropped: true }, []);
    this.tellApplied(item, 0);
  }

  /** @param since the term in which its coordinator has taken the place of another */
  onView(view: number, members: Members, since = 0): void {
    if (view <= this.view || this.table.state === 'OVER') return;
    this.finishWork();
    this.table.take('view');
    this.view = view;
    const isSucceeded = since > this.since;
    this.since = Math.max(this.since, since);
    this.members = members;
    this.memberIds = new Set(members.map(({ id }) => id));
    const linked = new Set([...this.links.keys()].map(({ id }) => id));
    for (const id of this.fetched.workers) if (!this.memberIds.has(id) && !linked.has(id)) this.fetched.forget(id);
    for (const [link, work] of [...this.links]) {
      for (const gathering of work.held.splice(0)) {
        this.whole(link, work, gathering);
        this.finishWork();
      }
      if (work.held.length === 0)
        for (const { round, replica, term: known } of work.fetches.splice(0)) this.answer(link, round, replica, known);
    }
    if (isSucceeded) this.tellAgain();
  }

  onCommit({ round, checkpoint }: { readonly round: number; readonly checkpoint?: boolean | undefined }): void {
    if (this.table.state === 'OVER' || !checkpoint) return;
    this.finishWork();
    this.table.take('checkpoint');
    const generation = round + 1;
    // A server without chunks has no part in any work item, and an empty part in every checkpoint.
    if (this.options.chunks.length > 0 && !this.marks.isExactly(generation))
      throw new Error(`shard ${this.options.index}: a checkpoint of round ${generation} with ${this.marks.count} work items done`);
    this.options.onCheckpoint?.(
      generation,
      this.current.map((region) => region.retain()),
    );
  }

  /** For the coordinator, which collects the weights when nothing moves any more. */
  onPull(link: ShardLink, generation: number, chunk: number): void {
    if (this.table.state === 'OVER') return;
    const place = this.places.get(chunk);
    if (place === undefined) throw new ProtocolError('UNKNOWN_CHUNK', `chunk ${chunk}`);
    this.finishWork();
    this.table.take('pull');
    if (generation === this.round) this.sendRegion(link, generation, 0, 0, place, this.current[place]!.retain());
  }

  /** Tells members and collectors that this process lives; call it every second. */
  heartbeat(): void {
    for (const link of this.links.keys()) link.connection.sendMessage({ type: 'heartbeat', progress: this.marks.count }, this.numbers());
  }

  end(): void {
    if (this.table.state === 'OVER') return;
    this.table.take('end', 'OVER');
    this.work.cancel();
    this.updating = undefined;
    for (const link of [...this.links.keys()]) this.detach(link);
    for (const id of this.fetched.workers) this.fetched.forget(id);
    this.follower.letGo();
    for (const region of this.current) region.release();
  }

  // ---- to a coordinator ----

  /** False when the coordinator sends no such message to a shard. */
  fromCoordinator(link: ShardLink, message: Message): boolean {
    if (message.type === 'view') this.onView(message.view, message.members, message.since);
    else if (message.type === 'commit') this.onCommit(message);
    else if (message.type === 'drop') this.onDrop(message.round, message.replica);
    else if (message.type === 'pull') this.onPull(link, message.generation, message.chunk);
    else return message.type === 'tell-again'; // its workers push again, and that is answered
    return true;
  }

  /** Says which work items are done, as soon as the standby has all of them. */
  stand(tell: (standing: Message) => void): void {
    this.finishWork();
    const { round, view, term } = this;
    const standing: Message = { type: 'standing', round, view, term, isReduced: false, marks: this.marks.told(this.since) };
    this.whenReplicated(() => tell(standing));
  }

  /** The members as this shard knows them, for a coordinator that begins here. */
  known(): { readonly view: number; readonly members: Members } {
    return { view: this.view, members: this.members };
  }

  /** The coordinator lacks something that it was told: another one has taken over, or nothing moves. */
  tellAgain(): void {
    if (this.table.state === 'OVER') return;
    this.table.take('toldAgain');
    this.stand((standing) => this.options.tellCoordinator(standing));
  }

  // ---- as a standby ----

  /** Where a gradient of the update that is coming in goes. @throws ProtocolError when none is */
  regionForReplica(header: FrameHeader): Region {
    return this.follower.regionFor(header);
  }

  applyReplica(header: FrameHeader, gradient: Region | undefined, acknowledge: (message: Message) => void): void {
    this.follower.arrived(header, gradient, acknowledge);
  }

  /** VIEW and UPDATE in the primary's order. */
  followOrder(message: Message): readonly Message[] | undefined {
    if (message.type === 'update') {
      if (message.isDropped) this.finishWork(); // it is done at once, and acknowledged after those before it
      return this.follower.begins(message);
    }
    if (message.type !== 'view') return undefined;
    this.onView(message.view, message.members, message.since);
    return [];
  }

  promote(term: number): void {
    this.finishWork();
    this.table.take('promoted');
    this.follower.letGo();
    this.term = Math.max(this.term, term);
  }

  /** Ends the update that is under way, and all that waits behind it. */
  finishWork(): void {
    this.work.finish();
  }

  private answer(link: ShardLink, round: number, replica: number, term: number): void {
    this.table.take('fetch');
    if (replica >= 0) this.noteFetch(link.id, { round, replica }, term);
    const regions = this.current.map((region) => region.retain());
    const send = (): void =>
      regions.forEach((region, place) => this.sendRegion(link, round, Math.max(replica, 0), replica + 1, place, region));
    this.whenReplicated(send, () => releaseRegions(regions));
  }

  private noteFetch(id: string, item: WorkItem, term: number): void {
    const regions = this.options.keepsFetched ? this.current.map((region) => region.retain()) : [];
    this.fetched.note(id, this.marks.numberOf(item), { updates: this.updates, term, regions });
  }

  private fetchOf(id: string, item: WorkItem): Fetched | undefined {
    const fetched = this.fetched.of(id, this.marks.numberOf(item));
    return fetched && fetched.term >= this.since ? fetched : undefined;
  }

  /** A whole gradient: applies it, holds it for a view that is on its way, or drops it. */
  private whole(link: ShardLink, work: LinkWork, gathering: Gathering): void {
    const fetched = this.fetchOf(link.id, gathering.item);
    if (this.marks.has(gathering.item) || !fetched) {
      releaseAll(gathering);
      return this.dropped('stale');
    }
    // The view that is on its way may bring its sender, or a checkpoint that comes before this work item.
    if (gathering.view > this.view) {
      work.held.push(gathering);
      return this.table.take('gradientHeld');
    }
    if (!this.memberIds.has(link.id)) {
      // Late pushes of somebody who was declared lost, mostly: the work item is issued again.
      releaseAll(gathering);
      return this.dropped('not a member');
    }
    this.apply(gathering, fetched);
  }

  private apply({ item, regions }: Gathering, { updates, regions: kept }: Fetched): void {
    this.table.take('applied');
    const staleness = this.updates - updates;
    this.update({ item, staleness, gradients: regions, how: (place) => ({ fetched: kept[place] }) }, () => {
      const chunks = this.options.chunks.map(({ index }) => ({ index, gradient: regions.get(index)! }));
      this.options.onApplied?.({ item, staleness, isDropped: false }, chunks);
      this.finish(item);
      this.tellApplied(item, staleness);
    });
  }

  /** All chunks, which nobody sees in between. @param done called before the gradients are let go */
  private update(update: Update, done: () => void): void {
    this.updating = update.item;
    const isDone = (): void => {
      this.updates++;
      this.updating = undefined;
      done();
    };
    this.work.begin(this.chunkByChunk(update), isDone, [...update.gradients.values()]);
  }

  /** A chunk that somebody else reads is not written: the update goes to a new region. */
  private *chunkByChunk({ item, staleness, gradients, how }: Update): Generator<void> {
    const step = this.marks.count + 1;
    for (const [place, chunk] of this.options.chunks.entries()) {
      if (place > 0) yield;
      const from = this.current[place]!;
      const to = from.isShared ? acquireRegion(chunk.arena, chunk.length) : from;
      this.options.update(chunk, { item, step, staleness, ...how(place) }, from, to, gradients.get(chunk.index)!);
      if (to !== from) from.release();
      this.current[place] = to;
    }
  }

  /** False when that is known already. */
  private leaveOut(item: WorkItem): boolean {
    const isNew = this.marks.leaveOut(item);
    if (this.marks.has(item)) this.table.take('dropRepeated');
    else {
      this.table.take('drop');
      this.finish(item);
    }
    return isNew;
  }

  /** Marks a work item, and lets go what was kept for it, here and on its way. */
  private finish(item: WorkItem): void {
    this.marks.add(item);
    const number = this.marks.numberOf(item);
    this.fetched.done(number);
    for (const { gathering } of this.links.values()) {
      const partial = gathering.get(number);
      if (partial) releaseAll(partial);
      gathering.delete(number);
    }
  }

  private tellApplied({ round, replica }: WorkItem, staleness: number): void {
    const isDropped = this.marks.isLeftOut({ round, replica });
    const message: Message = { type: 'applied', round, replica, staleness, ...(isDropped ? { isDropped } : {}) };
    this.whenReplicated(() => this.options.tellCoordinator(message));
  }

  private whenReplicated(act: () => void, cancel: () => void = () => undefined): void {
    if (this.options.whenReplicated) this.options.whenReplicated(act, cancel);
    else act();
  }

  /** Lets go of the region when it is sent. */
  private sendRegion(link: ShardLink, round: number, nodeLo: number, nodeHi: number, place: number, region: Region): void {
    const { index } = this.options.chunks[place]!;
    link.connection.sendData(
      { type: FrameType.parameters, codec: Codec.none, ...this.numbers(), round, nodeLo, nodeHi, chunk: index },
      region.bytes,
      () => region.release(),
    );
  }

  private scratchOf(bytes: number): Uint8Array {
    if (this.scratch.length < bytes) this.scratch = new Uint8Array(bytes);
    return this.scratch.subarray(0, bytes);
  }

  private dropped(reason: string): void {
    this.table.take('chunkStale');
    this.options.onDropped?.(reason);
  }
}

function itemOf({ round, nodeLo }: FrameHeader): WorkItem {
  return { round, replica: nodeLo };
}

function releaseAll({ regions }: Gathering): void {
  releaseRegions([...regions.values()]);
}
