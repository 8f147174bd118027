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
 * The step number of an update is the count of work items done here plus one, so it follows from the marks alone.
 */
import { FrameType, ProtocolError, type FrameHeader, type Members, type Message } from '@paceline/protocol';
import type { Connection } from '../connection.js';
import { releaseRegions, type Region } from '../attempt/regions.js';
import { ShardWork } from '../attempt/shard-work.js';
import type { ReplicationOptions } from '../standby/replication.js';
import type { ShardMachine } from '../standby/shard-machine.js';
import { AsyncReplication } from './async-replication.js';
import { StateTable } from '../attempt/state-table.js';
import type { OwnedChunk } from '../transfer/chunks.js';
import { ShardLink, ShardTransfer } from '../transfer/shard-transfer.js';
import { FetchedParameters, type Fetched } from './fetched-parameters.js';
import { LiveParameters } from './live-parameters.js';
import { DoneSet, type WorkItem } from './done-set.js';
import { PushedGradients, releaseGradient, type Fetch, type PushedGradient } from './pushed-gradients.js';
import { AsyncFollower } from './async-follower.js';
import { ITEMS_OF_WORKER, ASYNC_SHARD_ROWS, type AsyncShardOptions, type AsyncShardState, type AsyncUpdate } from './async-shard-table.js';

interface Update {
  readonly item: WorkItem;
  readonly staleness: number;
  readonly gradients: ReadonlyMap<number, Region>;
  readonly how: (place: number) => Pick<AsyncUpdate, 'fetched' | 'isCompensated'>;
}

export class AsyncShard extends ShardTransfer<PushedGradients, AsyncShardOptions> implements ShardMachine {
  readonly table = new StateTable<AsyncShardState, typeof ASYNC_SHARD_ROWS>('async-shard', ASYNC_SHARD_ROWS, 'SERVING');
  readonly marks: DoneSet;
  private readonly parameters: LiveParameters;
  /** By the index of the chunk, its place among those of the shard. */
  private readonly places: ReadonlyMap<number, number>;
  private readonly fetched = new FetchedParameters();
  /** As a primary with a standby. */
  replication: Pick<AsyncReplication, 'applied' | 'whenReplicated'> | undefined;
  /** As a standby. */
  private readonly follower: AsyncFollower;
  private updates = 0;
  /** The term in which the coordinator has taken the place of another: what was fetched before belongs to work items of that one. */
  private since = 0;
  private readonly work: ShardWork;
  /** The work item whose update is under way: some chunks have it, and its mark is not set. */
  updating: WorkItem | undefined;

  constructor(options: AsyncShardOptions) {
    super(options);
    this.marks = new DoneSet(options.plan, options.firstRound);
    this.parameters = new LiveParameters(options.chunks, options.initial);
    this.places = new Map(options.chunks.map(({ index }, place) => [index, place]));
    this.work = new ShardWork(options.slices);
    this.follower = new AsyncFollower({
      chunks: options.chunks.length,
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
  }

  get round(): number {
    return Math.floor(this.marks.count / this.options.plan.replicas);
  }

  chunkAt(index: number): OwnedChunk | undefined {
    return this.options.chunks[this.places.get(index) ?? -1];
  }

  /** Admits a connection whose HELLO the gate has accepted. */
  attach(id: string, connection: Connection): ShardLink {
    this.table.take('join');
    const link = new ShardLink(id, connection, true, this.options.decoder);
    this.admit(link, new PushedGradients(), { applied: '', window: 0, base: 0, phase: this.table.state });
    this.tellLink(link, true);
    return link;
  }

  /** A connection is gone, and what it was sending; its worker sends it again, or somebody else computes it. */
  detach(link: ShardLink, isReplaced = false): void {
    this.finishWork();
    const pushed = this.drop(link);
    if (!pushed) return;
    pushed.letGo();
    if (isReplaced) return link.connection.close();
    if (!this.isMember(link.id)) this.fetched.forget(link.id);
    if (this.table.state !== 'OVER') this.tellLink(link, false);
  }

  /**
   * Where the payload of a gradient frame goes: a region of the chunk's arena, or scratch when it will be dropped.
   * @throws ProtocolError for everything that a member never sends.
   */
  payloadFor(link: ShardLink, header: FrameHeader): Uint8Array {
    const { replicas, totalRounds } = this.options.plan;
    const chunk = this.chunkAt(header.chunk);
    this.checkGradient(link, header, chunk);
    if (header.nodeHi !== header.nodeLo + 1 || header.nodeLo >= replicas)
      throw new ProtocolError('BAD_NODE', `[${header.nodeLo}, ${header.nodeHi}) is no work item`);
    if (header.round >= totalRounds) throw new ProtocolError('BAD_ROUND', `round ${header.round}`);
    const item = itemOf(header);
    const pushed = this.links.get(link);
    if (!pushed || this.table.state === 'OVER' || this.marks.has(item) || !this.fetchOf(link.id, item))
      return link.receive(header, undefined);
    pushed.checkRoom(this.marks.numberOf(item));
    return link.receive(header, chunk);
  }

  check(link: ShardLink, header: FrameHeader): void {
    this.checkGradient(link, header, this.chunkAt(header.chunk));
  }

  /** A whole gradient frame has come. */
  data(link: ShardLink, header: FrameHeader): void {
    const { chunks } = this.options;
    const region = link.received()?.decoded();
    const item = itemOf(header);
    const pushed = this.links.get(link);
    if (!region || !pushed || this.marks.has(item)) {
      region?.release();
      const isLast = header.chunk === chunks.at(-1)!.index;
      if (isLast && this.table.state !== 'OVER' && this.marks.has(item)) this.tellApplied(item, 0);
      return this.dropped('stale');
    }
    this.table.take('chunkKept');
    const gradient = pushed.add(this.marks.numberOf(item), item, header.view, header.chunk, region, chunks.length);
    if (!gradient) return;
    pushed.inLine.gradients++;
    const act = (): void => {
      pushed.inLine.gradients--;
      this.whole(link, pushed, gradient);
    };
    this.work.inTurn(act, [...gradient.regions.values()]);
  }

  onFetch(link: ShardLink, fetch: Fetch): void {
    const { round, replica } = fetch;
    const pushed = this.links.get(link);
    if (this.table.state === 'OVER' || !pushed) return;
    if (replica >= this.options.plan.replicas || round > this.options.plan.totalRounds)
      throw new ProtocolError('BAD_ROUND', `round ${round}, replica ${replica}`);
    if (pushed.fetches.length + pushed.inLine.fetches >= ITEMS_OF_WORKER)
      throw new ProtocolError('BAD_ROUND', 'more fetches than work items');
    pushed.inLine.fetches++;
    const act = (): void => {
      pushed.inLine.fetches--;
      // Its own update comes first, or a lone worker would compute from parameters without it.
      if (pushed.held.length === 0) return this.answer(link, fetch);
      pushed.fetches.push(fetch);
      this.table.take('fetchHeld');
    };
    this.work.inTurn(act);
  }

  onDrop(round: number, replica: number): void {
    this.finishWork();
    if (this.table.state === 'OVER') return;
    const item = { round, replica };
    if (this.leaveOut(item)) this.replication?.applied({ item, staleness: 0, isDropped: true }, []);
    this.tellApplied(item, 0);
  }

  /** @param since the term in which its coordinator has taken the place of another */
  onView(view: number, members: Members, since = 0): void {
    if (view <= this.view || this.table.state === 'OVER') return;
    this.finishWork();
    this.table.take('view');
    this.takeView(view, members);
    const isSucceeded = since > this.since;
    this.since = Math.max(this.since, since);
    const connected = new Set([...this.links.keys()].map(({ id }) => id));
    for (const id of this.fetched.workers) if (!this.isMember(id) && !connected.has(id)) this.fetched.forget(id);
    for (const [link, pushed] of [...this.links]) {
      for (const gradient of pushed.held.splice(0)) {
        this.whole(link, pushed, gradient);
        this.finishWork();
      }
      if (pushed.held.length === 0) for (const fetch of pushed.fetches.splice(0)) this.answer(link, fetch);
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
    this.options.host?.checkpointWanted(generation, this.parameters.retained());
  }

  /** For the coordinator, which collects the weights when nothing moves any more. */
  onPull(link: ShardLink, generation: number, chunk: number): void {
    if (this.table.state === 'OVER') return;
    const place = this.places.get(chunk);
    if (place === undefined) throw new ProtocolError('UNKNOWN_CHUNK', `chunk ${chunk}`);
    this.finishWork();
    this.table.take('pull');
    if (generation !== this.round) return;
    const vector = { type: FrameType.parameters, round: generation, lo: 0, hi: 0 };
    this.sendTo(link, vector, this.options.chunks[place]!, this.parameters.retain(place));
  }

  /** Tells members and collectors that this process lives; call it every second. */
  heartbeat(): void {
    this.beat(this.marks.count);
  }

  end(): void {
    if (this.table.state === 'OVER') return;
    this.table.take('end', 'OVER');
    this.work.cancel();
    this.updating = undefined;
    for (const link of this.links.keys()) this.detach(link);
    for (const id of this.fetched.workers) this.fetched.forget(id);
    this.follower.letGo();
    this.parameters.letGo();
  }

  fromWorker(link: ShardLink, message: Message, term: number): boolean {
    if (message.type !== 'fetch') return false;
    const { n, round, replica } = message;
    this.onFetch(link, { n, round, replica, term });
    return true;
  }

  replicate(options: ReplicationOptions): AsyncReplication {
    const replication = new AsyncReplication(options);
    this.replication = replication;
    return replication;
  }

  // ---- to a coordinator ----

  /** False when the coordinator sends no such message to a shard. */
  fromCoordinator(link: ShardLink, message: Message): boolean {
    if (message.type === 'view') this.onView(message.view, message.members, message.since);
    else if (message.type === 'commit') this.onCommit(message);
    else if (message.type === 'drop') this.onDrop(message.round, message.replica);
    else if (message.type === 'pull') this.onPull(link, message.generation, message.chunk);
    else return false;
    return true;
  }

  /** Says which work items are done, as soon as the standby has all of them. */
  stand(tell: (standing: Message) => void): void {
    this.finishWork();
    const { round, view, term } = this;
    const standing: Message = { type: 'standing', round, view, term, isReduced: false, marks: this.marks.told(this.since) };
    this.whenReplicated(() => tell(standing));
  }

  /** The coordinator lacks something that it was told: another one has taken over, or nothing moves. */
  tellAgain(): void {
    if (this.table.state === 'OVER') return;
    this.table.take('toldAgain');
    this.stand((standing) => this.options.coordinator.tell(standing));
  }

  // ---- as a standby ----

  wantsReplica(header: FrameHeader): boolean {
    return this.follower.expects(header);
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

  private answer(link: ShardLink, { n, round, replica, term }: Fetch): void {
    this.table.take('fetch');
    if (replica >= 0) this.noteFetch(link.id, { round, replica }, term);
    const regions = this.parameters.retained();
    const vector = { type: FrameType.parameters, round, lo: Math.max(replica, 0), hi: replica + 1 };
    const send = (): void => {
      const numbers = Object.assign(this.numbers(), { view: n });
      regions.forEach((region, place) => this.sendTo(link, vector, this.options.chunks[place]!, region, numbers));
    };
    this.whenReplicated(send, () => releaseRegions(regions));
  }

  private noteFetch(id: string, item: WorkItem, term: number): void {
    const regions = this.options.keepsFetched ? this.parameters.retained() : [];
    this.fetched.note(id, this.marks.numberOf(item), { updates: this.updates, term, regions });
  }

  private fetchOf(id: string, item: WorkItem): Fetched | undefined {
    const fetched = this.fetched.of(id, this.marks.numberOf(item));
    return fetched && fetched.term >= this.since ? fetched : undefined;
  }

  /** A whole gradient: applies it, holds it for a view that is on its way, or drops it. */
  private whole(link: ShardLink, pushed: PushedGradients, gradient: PushedGradient): void {
    const fetched = this.fetchOf(link.id, gradient.item);
    if (this.marks.has(gradient.item) || !fetched) {
      releaseGradient(gradient);
      return this.dropped('stale');
    }
    // The view that is on its way may bring its sender, or a checkpoint that comes before this work item.
    if (gradient.view > this.view) {
      pushed.held.push(gradient);
      return this.table.take('gradientHeld');
    }
    if (!this.isMember(link.id)) {
      // Late pushes of somebody who was declared lost, mostly: the work item is issued again.
      releaseGradient(gradient);
      return this.dropped('not a member');
    }
    this.apply(gradient, fetched);
  }

  private apply({ item, regions }: PushedGradient, { updates, regions: kept }: Fetched): void {
    this.table.take('applied');
    const staleness = this.updates - updates;
    this.update({ item, staleness, gradients: regions, how: (place) => ({ fetched: kept[place] }) }, () => {
      const chunks = this.options.chunks.map(({ index }) => ({ index, gradient: regions.get(index)! }));
      this.replication?.applied({ item, staleness, isDropped: false }, chunks);
      this.finish(item);
      this.tellApplied(item, staleness);
    });
  }

  /** All chunks, which nobody sees in between. @param done called before the gradients are let go */
  private update({ item, staleness, gradients, how }: Update, done: () => void): void {
    this.updating = item;
    const step = this.marks.count + 1;
    const steps = this.parameters.update((chunk, place, from, to) =>
      this.options.store.update(chunk, { item, step, staleness, ...how(place) }, from, to, gradients.get(chunk.index)!),
    );
    const isDone = (): void => {
      this.updates++;
      this.updating = undefined;
      done();
    };
    this.work.begin(steps, isDone, [...gradients.values()]);
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
    for (const pushed of this.links.values()) pushed.forget(number);
  }

  private tellApplied({ round, replica }: WorkItem, staleness: number): void {
    const isDropped = this.marks.isLeftOut({ round, replica });
    const message: Message = { type: 'applied', round, replica, staleness, ...(isDropped ? { isDropped } : {}) };
    this.whenReplicated(() => this.options.coordinator.tell(message));
  }

  private whenReplicated(act: () => void, cancel: () => void = () => undefined): void {
    if (this.replication) this.replication.whenReplicated(act, cancel);
    else act();
  }

  private dropped(reason: string): void {
    this.table.take('chunkStale');
    this.options.host?.frameDropped(reason);
  }
}

function itemOf({ round, nodeLo }: FrameHeader): WorkItem {
  return { round, replica: nodeLo };
}
