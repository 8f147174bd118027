/**
 * The invariants of modes async and ssp, looked at after every event. What a shard applies is followed work item by work item and compared with what its
 * marks say, with what workers have computed, and with what the coordinator counts; in mode ssp every issued work item is held against the bound.
 * Bits differ with timing here, so a checkpoint is compared with what the shards held when it was taken.
 */
import { AsyncShard, type Coordinator, type WorkItems, type Region, type WorkItem, type AsyncUpdate } from '@paceline/exchange';
import type { Cluster } from '../cluster.js';
import type { Part } from '../actors/part.js';
import { isNonFinite, type AsyncShape } from '../run/async-run.js';

interface ShardSeen {
  count: number;
  /** Chunks to which each work item was applied, by its number. */
  readonly applied: Map<number, Set<number>>;
}

interface CoordinatorSeen {
  count: number;
  view: number;
  readonly counted: Set<number>;
  /** Numbers of work items that were ever issued. */
  readonly issued: Set<number>;
  /** Items that it counts but leaves out. Kept per coordinator: a deposed one that has not heard so decides on its own. */
  readonly left: Set<number>;
}

const ITEMS_OF_WORKER = 4;

export class AsyncInvariants {
  private readonly shards = new Map<Part, ShardSeen>();
  private readonly coordinators = new Map<Coordinator, CoordinatorSeen>();
  /** Gradients by attempt and work item, as workers have computed them. */
  private readonly gradients = new Map<string, Float32Array[]>();
  /** Bits of the chunks in each checkpoint, by attempt, round and chunk. */
  private readonly checkpoints = new Map<string, Float32Array>();
  /** Present bits of the chunks, by attempt and chunk. */
  private readonly present = new Map<string, Float32Array>();
  /** Bits at the primary after each update, by attempt, chunk and number of the update: its standby must have the same. */
  private readonly steps = new Map<string, Float32Array>();
  /** Work items that any coordinator has counted, by attempt: whoever takes over counts them too. */
  private readonly countedIn = new Map<number, Set<number>>();
  /** Work items that are left out, in the lineage of the present attempt: workers may disagree about one, so it is what the coordinator says. */
  private readonly left = new Set<number>();
  /** Work items that any coordinator has meant to leave out, by attempt: DROP of one that was replaced, and has not heard it, counts at a shard. */
  private readonly meant = new Map<number, Set<number>>();
  /** The highest staleness that any shard has measured. */
  highestStaleness = 0;

  constructor(
    private readonly cluster: Cluster,
    readonly shape: AsyncShape,
  ) {}

  afterEvent(part: Part): void {
    if (part.shard instanceof AsyncShard) this.shard(part, part.shard);
    if (part.coordinator && part.items) this.coordinator(part, part.coordinator, part.items);
  }

  /** A worker begins to compute. */
  begun(attempt: number, item: WorkItem): void {
    if (this.shape.mode !== 'ssp') return;
    const { hosted, run } = this.cluster;
    const first = hosted.find((part) => part.attempt === attempt)?.restore?.round ?? 0;
    const counted = setOf(this.countedIn, attempt);
    const isDone = (other: WorkItem): boolean =>
      other.round < first || run.replicaExamples(other.round, other.replica) === 0 || counted.has(this.numberOf(other));
    this.withinBound(isDone, item, 'is computed');
  }

  computed(attempt: number, item: WorkItem, gradient: Float32Array): void {
    const key = `${attempt}/${this.numberOf(item)}`;
    this.gradients.set(key, [...(this.gradients.get(key) ?? []), gradient.slice()]);
  }

  /** Before a shard applies a gradient to a chunk. */
  applying(part: Part, chunk: number, { item, staleness, step }: AsyncUpdate, gradient: Region): void {
    const { checks, run } = this.cluster;
    const number = this.numberOf(item);
    const seen = this.seenOf(part);
    const what = `the work item of replica ${item.replica} in round ${item.round} at ${part.name}, attempt ${part.attempt}`;
    let chunks = seen.applied.get(number);
    if (!chunks) seen.applied.set(number, (chunks = new Set()));
    checks.expect(!chunks.has(chunk), 'I2', () => `${what} was applied twice to chunk ${chunk}`);
    checks.expect(item.round >= (part.restore?.round ?? 0), 'I2', () => `${what} is in the checkpoint that the attempt began with`);
    chunks.add(chunk);
    const { offset, length } = run.layout.chunks[chunk]!;
    // What a standby is sent has the delay compensation in it.
    const isOther = isFollower(part) && this.shape.delayCompensation > 0;
    const isComputed =
      isOther ||
      (this.gradients.get(`${part.attempt}/${number}`) ?? []).some((all) =>
        sameBits(all.subarray(offset, offset + length), gradient.floats),
      );
    checks.expect(isComputed, 'I2', () => `${what}: nobody has computed the gradient that was applied to chunk ${chunk}`);
    checks.expect(staleness >= 0 && step > 0, 'I3', () => `${what} has staleness ${staleness} and step ${step}`);
    this.highestStaleness = Math.max(this.highestStaleness, staleness);
    if (this.shape.mode !== 'ssp') return;
    // Fetched when every clock was at k − bound at least; nobody is issued more than k + bound until it is counted.
    const most = (2 * this.shape.stalenessBound + 1) * run.shape.replicas - 1;
    checks.expect(staleness <= most, 'I3', () => `${what} has staleness ${staleness}, the bound allows ${most}`);
  }

  /** After it. */
  applied(part: Part, chunk: number, { item, step }: AsyncUpdate, params: Region): void {
    const key = `${part.attempt}/${chunk}/${step}`;
    if (isFollower(part)) {
      const { checks } = this.cluster;
      const held = this.steps.get(key);
      const what = () => `chunk ${chunk} of ${part.name} after update ${step}, replica ${item.replica} of round ${item.round}`;
      checks.expect(held !== undefined && sameBits(held, params.floats), 'I8', () => `${what()} is not that of its primary`);
      return;
    }
    // One that was stopped, and goes on without knowing that it was replaced, changes nothing that counts.
    if (!part.counts) return;
    this.steps.set(key, params.floats.slice());
    this.present.set(`${part.attempt}/${chunk}`, params.floats.slice());
  }

  /** Every shard has the same set: all rounds before the checkpoint, and nothing beyond. */
  checkpoint(part: Part, generation: number, regions: readonly Region[]): void {
    const { checks } = this.cluster;
    const { marks } = part.shard as AsyncShard;
    if (part.memory.chunks.length === 0) return;
    for (const item of this.items())
      checks.expect(
        marks.has(item) === item.round < generation,
        'I2',
        () =>
          `${part.name} takes round ${generation} ${marks.has(item) ? 'with' : 'without'} replica ${item.replica} of round ${item.round}`,
      );
    part.memory.chunks.forEach(({ index }, place) =>
      this.checkpoints.set(`${part.attempt}/${generation}/${index}`, regions[place]!.floats.slice()),
    );
  }

  /** True when these are the bits that the chunk had when the checkpoint was taken. */
  heldAtCheckpoint(attempt: number, round: number, chunk: number, values: Float32Array): boolean {
    const held = this.checkpoints.get(`${attempt}/${round}/${chunk}`);
    return held !== undefined && sameBits(held, values);
  }

  /** The weights at the end are what the shards hold. */
  collected(attempt: number, chunk: number, values: Float32Array): boolean {
    const held = this.present.get(`${attempt}/${chunk}`);
    return held === undefined || sameBits(held, values);
  }

  /** Examples that a round leaves out: those of gradients that are no numbers. */
  droppedIn(round: number): number {
    const { run } = this.cluster;
    let examples = 0;
    for (let replica = 0; replica < run.shape.replicas; replica++)
      if (this.left.has(this.numberOf({ round, replica }))) examples += run.replicaExamples(round, replica);
    return examples;
  }

  private shard(part: Part, shard: AsyncShard): void {
    const { checks, run } = this.cluster;
    const seen = this.seenOf(part);
    const { count } = shard.marks;
    if (count === seen.count) return;
    checks.expect(count > seen.count, 'I1', () => `the shard of ${part.name} went from ${seen.count} work items to ${count}`);
    seen.count = count;
    const owned = part.memory.chunks.length;
    if (owned === 0) return;
    for (const item of this.items()) {
      if (item.round < (part.restore?.round ?? 0)) continue;
      const chunks = seen.applied.get(this.numberOf(item))?.size ?? 0;
      const isTold = shard.marks.isLeftOut(item) && setOf(this.meant, part.attempt).has(this.numberOf(item));
      const isDropped = chunks === 0 && isTold && isNonFinite(run, item.round, item.replica);
      const isInHand = shard.updating?.round === item.round && shard.updating.replica === item.replica;
      const isRight = shard.marks.has(item) ? chunks === owned || isDropped : chunks === 0 || (isInHand && chunks < owned);
      checks.expect(
        isRight,
        'I2',
        () =>
          `replica ${item.replica} of round ${item.round} is ${shard.marks.has(item) ? '' : 'not '}marked at ${part.name}, and applied to ${chunks} of ${owned} chunks`,
      );
    }
    this.bounded(part);
  }

  private coordinator(part: Part, coordinator: Coordinator, { marks, present }: WorkItems): void {
    const { checks, runInvariants } = this.cluster;
    if (coordinator.takeovers.isAsking) return;
    let seen = this.coordinators.get(coordinator);
    if (!seen) {
      if (part.isStandby) this.takenOver(part, marks);
      seen = { count: -1, view: 0, counted: new Set(), issued: new Set(), left: new Set(this.left) };
      this.coordinators.set(coordinator, seen);
    }
    // What one that is dead, or was replaced, meant to leave out may be issued again.
    const leads = this.cluster.coordinatorPart === part;
    for (const [number, { item, isDropped }] of present.byNumber) {
      const leftOut = leads ? [seen.left, this.left] : [seen.left];
      if (isDropped) for (const numbers of [...leftOut, setOf(this.meant, part.attempt)]) numbers.add(number);
      if (seen.issued.has(number)) continue;
      if (!isDropped) for (const numbers of leftOut) numbers.delete(number); // of an attempt before
      seen.issued.add(number);
      if (this.shape.mode === 'ssp') this.withinBound((other) => marks.has(other), item, 'is issued');
    }
    if (marks.count === seen.count && coordinator.view === seen.view) return;
    const { count, view } = seen;
    checks.expect(marks.count >= count, 'I1', () => `the coordinator went from ${count} work items to ${marks.count}`);
    checks.expect(coordinator.view >= view, 'I1', () => `the coordinator went from view ${view} to ${coordinator.view}`);
    seen.count = marks.count;
    seen.view = coordinator.view;
    runInvariants.committedRounds = Math.max(runInvariants.committedRounds, marks.rounds);
    this.counted(part, part.items!, seen);
    const held = new Map<number, string>();
    for (const { seat, workerId } of coordinator.seats()) {
      checks.expect(!held.has(seat), 'refusal', () => `seat ${seat} is held by ${held.get(seat)} and ${workerId}`);
      held.set(seat, workerId);
    }
  }

  /** Every counted item is at every shard, and in the ledger. */
  private counted(part: Part, items: WorkItems, seen: CoordinatorSeen): void {
    const { checks, hosted, run } = this.cluster;
    const shards = hosted.filter((other) => other.attempt === part.attempt && other.counts && other.memory.chunks.length > 0);
    let examples = 0;
    let dropped = 0;
    for (const item of this.items()) {
      if (!items.marks.has(item)) continue;
      const rows = run.replicaExamples(item.round, item.replica);
      if (seen.left.has(this.numberOf(item))) dropped += rows;
      else examples += rows;
      const number = this.numberOf(item);
      if (seen.counted.has(number)) continue;
      seen.counted.add(number);
      setOf(this.countedIn, part.attempt).add(number);
      for (const holder of shards)
        checks.expect(
          (holder.shard as AsyncShard).marks.has(item),
          'I2',
          () => `replica ${item.replica} of round ${item.round} is counted, and ${holder.name} has not applied it`,
        );
    }
    const ledger = items.ledger.state();
    const exceptions = ledger.exceptions.reduce((sum, exception) => sum + exception.examples, 0);
    checks.expect(
      ledger.examples === examples && exceptions === dropped,
      'I4',
      () => `the ledger has ${ledger.examples} examples and ${exceptions} dropped; ${examples} and ${dropped} are counted`,
    );
  }

  /** A standby coordinates: nothing that was counted is lost, and what is left out is what the shards were told to leave out. */
  private takenOver(part: Part, counted: WorkItems['marks']): void {
    const { checks } = this.cluster;
    const shards = this.cluster.hosted.filter((other) => other.attempt === part.attempt && other.counts && other.memory.chunks.length > 0);
    for (const item of this.items()) {
      const number = this.numberOf(item);
      const isLost = setOf(this.countedIn, part.attempt).has(number) && !counted.has(item);
      checks.expect(!isLost, 'I2', () => `replica ${item.replica} of round ${item.round} was counted, and is lost with the takeover`);
      if (!counted.has(item) || item.round < (part.restore?.round ?? 0)) continue;
      if (shards.some(({ shard }) => (shard as AsyncShard).marks.isLeftOut(item))) this.left.add(number);
      else this.left.delete(number);
    }
  }

  private withinBound(isDone: (item: WorkItem) => boolean, { round, replica }: WorkItem, what: string): void {
    const { shape, schedule } = this.cluster.run;
    let slowest = schedule.totalRounds;
    for (let other = 0; other < shape.replicas; other++) {
      let clock = 0;
      while (clock < slowest && isDone({ round: clock, replica: other })) clock++;
      slowest = Math.min(slowest, clock);
    }
    const bound = this.shape.stalenessBound;
    this.cluster.checks.expect(
      round <= slowest + bound,
      'I3',
      () => `the work item of replica ${replica} in round ${round} ${what}, the slowest clock is ${slowest} and the bound ${bound}`,
    );
  }

  /** Arena blocks are of 64 bytes here: present, slots, gradients on their way or held, what sockets read, what was fetched. */
  private bounded(part: Part): void {
    const { run, network, checks, workers } = this.cluster;
    let links = 0;
    for (const stream of network.streams) if (stream.process === part.server.process) links++;
    const owned = part.memory.chunks.length;
    const ofLinks = links * (owned * 2 * ITEMS_OF_WORKER + 1);
    const slots = run.optimizer.slots.length;
    // With a standby: answers that wait for it, and gradients that it has not taken yet.
    const ofStandby = run.shape.standby * 2 * workers.length * owned * ITEMS_OF_WORKER;
    const blocks = owned * (2 + slots + (1 + slots)) + ofLinks + workers.length * owned * ITEMS_OF_WORKER + ofStandby;
    const { bytesInUse } = part.memory.arena;
    checks.expect(bytesInUse <= blocks * 64, 'I10', () => `${part.name} holds ${bytesInUse} bytes, its bound is ${blocks * 64}`);
  }

  private seenOf(part: Part): ShardSeen {
    let seen = this.shards.get(part);
    if (!seen) this.shards.set(part, (seen = { count: (part.restore?.round ?? 0) * this.cluster.run.shape.replicas, applied: new Map() }));
    return seen;
  }

  private numberOf({ round, replica }: WorkItem): number {
    return round * this.cluster.run.shape.replicas + replica;
  }

  /** All work items that have rows. */
  private *items(): Iterable<WorkItem> {
    const { run } = this.cluster;
    for (let round = 0; round < run.schedule.totalRounds; round++)
      for (let replica = 0; replica < run.shape.replicas; replica++) if (run.replicaExamples(round, replica) > 0) yield { round, replica };
  }
}

/** It applies what its primary has applied. */
const isFollower = ({ run }: Part): boolean => run.place.standby?.table.state === 'FOLLOWING';

function setOf(byAttempt: Map<number, Set<number>>, attempt: number): Set<number> {
  let numbers = byAttempt.get(attempt);
  if (!numbers) byAttempt.set(attempt, (numbers = new Set()));
  return numbers;
}

function sameBits(a: Float32Array, b: Float32Array): boolean {
  if (a.length !== b.length) return false;
  const x = new Uint32Array(a.buffer, a.byteOffset, a.length);
  const y = new Uint32Array(b.buffer, b.byteOffset, b.length);
  for (let i = 0; i < x.length; i++) if (x[i] !== y[i]) return false;
  return true;
}
