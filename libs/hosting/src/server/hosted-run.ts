/**
 * One attempt of a run as this server process holds it: its shard and, on server 0, the coordinator beside it. Both speak
 * through connections only: server 0 reaches its coordinator over an in-process pair, the others over sockets.
 *
 *   worker ── hello ──> gate ──> admitWorker ── gradients ──> Shard ── REDUCED ──> Coordinator ── COMMIT ──> all
 */
import {
  PeerTimeouts,
  spans,
  type CancelTimer,
  type Connection,
  type FrameReceiver,
  type GatheredResiduals,
  type KnownNumbers,
  type PlaceEnd,
  type Region,
  type ShardHost,
  type ShardMachine,
  type Slices,
  type StoredResiduals,
} from '@paceline/exchange';
import type { PlacementJob, ServerAddress } from '@paceline/control-plane';
import { createSchedule, layoutHash, shardChunks, type Layout, type Schedule } from '@paceline/learning';
import { ProtocolError, type MessageOf } from '@paceline/protocol';
import { appliedByServers, keepsEstimate, rateFactor, roundsOf } from '@paceline/spec';
import type { Manifest } from '@paceline/storage';
import { CheckpointWriter } from './checkpoint-writer.js';
import { CoordinatorHost, type CoordinatorOwner, type Successor } from './coordinator-host.js';
import { HostedPlace, type PlaceOwner } from './hosted-place.js';
import type { ParameterStore } from './parameter-store.js';
import { checkEstimatesAreStored, residualsIn } from '../residuals.js';
import { openInitialWeights } from './initial-weights.js';
import { WorkerReceiver, type WorkersRun } from './receivers.js';
import { openCheckpoint } from './restore.js';
import { firstCourseOf } from './run-measures.js';
import { reportFailed, type ServerContext } from './server-context.js';
import { copiesInFlight, createShard, windowOf } from './create-shard.js';
import { callInSlices, inSlices } from './slices.js';
import type { UncollectedJournal } from './uncollected-journals.js';
import { decidedRate } from './validation-course.js';

const HEARTBEAT_MS = 1_000;
/** Workers and servers speak every second; who says nothing for this long is behind a dead link, or stopped. */
const SILENT_AFTER_MS = 10_000;
/** When the run is over, workers hear it from the coordinator and go; connections of those that do not are closed. */
const GO_AFTER_MS = 3_000;
const SHUTDOWN_POLL_MS = 20;
/** When everything is shut down, the standby stops too. A primary waits this long to hear so before handing over. */
const HAND_OVER_AFTER_MS = 300;

/** Is told of what is made in a run before anything is sent to it. For tests and the simulator: it looks, and takes no part. */
export interface HostingObserver {
  hosted(run: HostedRun): void;
  coordinates(run: HostedRun, coordinator: CoordinatorHost): void;
  placed(run: HostedRun): void;
}

export class HostedRun implements ShardHost, CoordinatorOwner, PlaceOwner, WorkersRun {
  readonly layout: Layout;
  readonly layoutHash: string;
  readonly schedule: Schedule;
  /** On server 0, once there is one. */
  coordinator: CoordinatorHost | undefined;
  readonly counters = { droppedFrames: 0 };
  readonly shard: ShardMachine;
  readonly store: ParameterStore;
  private readonly writer: CheckpointWriter;
  private readonly cancelHeart: CancelTimer;
  /** The connections of the workers. */
  readonly silence: PeerTimeouts;
  /** What joins the coordinator, and with standbys in the run both servers of the shard. */
  private readonly hostedPlace: HostedPlace;
  /** The manifest of the checkpoint that the attempt begins with. */
  private parent: Manifest | undefined;
  private storedResiduals: StoredResiduals | undefined;
  /** All servers of the attempt are claimed, and it was told so. */
  hasStarted = false;
  /** What validations have made of the learning rate, as of the last COMMIT. */
  private decidedRate = 1;
  /** What the attempt begins with is in memory: nobody is sent parameters before. */
  private isPrepared = false;
  private over = false;
  private readonly released = new AbortController();

  constructor(
    readonly job: PlacementJob,
    private readonly context: ServerContext,
    /** Called once, when nothing of the run is left here but the journal that is given, if one is. */
    private readonly onGone: (run: HostedRun, uncollected?: UncollectedJournal) => void,
    private readonly observer?: HostingObserver,
  ) {
    const { spec } = job;
    this.layout = context.layoutOf(job.model);
    this.layoutHash = layoutHash(this.layout);
    this.schedule = createSchedule({ ...roundsOf(spec, job.data.trainExamples), length: spec.length });
    const owned = shardChunks(this.layout, job.servers, job.index);
    this.silence = new PeerTimeouts(context.clock, { silentAfterMs: SILENT_AFTER_MS, tickMs: HEARTBEAT_MS });
    const { optimizer, gradient, learningRate } = appliedByServers(spec);
    const scheduled = rateFactor(learningRate, { ...this.schedule, globalBatch: spec.globalBatch });
    const plan = {
      layout: this.layout,
      owned,
      model: job.model,
      optimizer,
      freeze: spec.freeze,
      seed: spec.seed,
      gradientsInFlight: copiesInFlight(spec),
      window: windowOf(spec, this.layout, owned),
      examplesIn: (round: number) => this.schedule.round(round).count,
      clipValue: gradient.clipValue,
      lastRound: this.schedule.totalRounds - 1,
      rateFactor: (round: number) => scheduled(round) * this.decidedRate,
    };
    this.store = context.createStore(plan, job);
    const { runId, attempt, index, servers } = job;
    this.writer = new CheckpointWriter({
      checkpoints: context.checkpoints,
      runId,
      attempt,
      index,
      servers,
      needsResiduals: keepsEstimate(spec),
      clock: context.clock,
      tell: (message) => this.guard(() => this.place.tell(message)),
    });
    this.hostedPlace = new HostedPlace(this, context);
    const slices: Slices = (next) => callInSlices(next, context, (act) => this.guard(act));
    this.shard = createShard(job, this.layout, this.store, this.schedule, {
      host: this,
      coordinator: this.place,
      slices,
      windows: context.windows,
      storedResiduals: () => this.storedResiduals,
    });
    this.cancelHeart = context.clock.every(HEARTBEAT_MS, () => this.beat());
    observer?.hosted(this);
  }

  /**
   * Loads the checkpoint that the attempt begins with, or computes the initial values; server 0 makes its coordinator.
   * @throws StorageError when it cannot be used, with what is wrong with it
   */
  async prepare(): Promise<void> {
    checkEstimatesAreStored(this.job, this.layout);
    const checkpoint = await openCheckpoint(this.context.checkpoints, this.job, this.layout);
    if (checkpoint) await this.store.restore(checkpoint, this.released.signal);
    else {
      await inSlices(this.store.begin(), this.context, this.released.signal);
      if (this.job.spec.weights) await this.store.overlay(await openInitialWeights(this.context.checkpoints.store, this.job, this.layout));
    }
    this.isPrepared = true;
    this.parent = checkpoint?.manifest;
    if (checkpoint)
      this.storedResiduals = residualsIn(checkpoint, this.job, (error) =>
        this.context.log.warn({ err: error, run: this.job.runId }, 'a residual of the checkpoint could not be read'),
      );
    this.takeCourse(firstCourseOf(this.job, this.schedule, this.parent));
    if (!this.over && this.job.index === 0 && this.job.role !== 'standby') this.coordinator = this.makeCoordinator();
  }

  private takeCourse(course: string | undefined): void {
    if (course !== undefined) this.decidedRate = decidedRate(course);
  }

  private makeCoordinator(successor?: Successor): CoordinatorHost {
    const { job, context, parent } = this;
    const weights = job.spec.checkpoint.final ? context.weights.pathOf(job) : null;
    const host = new CoordinatorHost(job, this.layout, this.schedule, context, weights, parent, this, successor);
    this.observer?.coordinates(this, host);
    return host;
  }

  /** This server's place in its shard. */
  get place(): HostedPlace['place'] {
    return this.hostedPlace.place;
  }

  get isOver(): boolean {
    return this.over;
  }

  /** All servers of the attempt are claimed: joins the coordinator, or its primary. */
  start(servers: readonly ServerAddress[], standbys: readonly ServerAddress[] = []): void {
    this.hasStarted = true;
    this.hostedPlace.start(servers, standbys);
    this.observer?.placed(this);
  }

  coordinateHere(successor: Successor | undefined): Connection {
    if (successor) this.coordinator = this.makeCoordinator(successor);
    const coordinator = this.coordinator!;
    const [here, there] = this.context.memoryPair();
    coordinator.begin();
    coordinator.admitServer(0, there, this.shard.term);
    return here;
  }

  attemptConcluded(coordinator: CoordinatorHost): void {
    this.place.conclude(() => coordinator.sayEnd());
  }

  attemptOver(): void {
    this.end();
  }

  // ---- the shard ----

  checkpointWanted(generation: number, regions: readonly Region[], residuals?: GatheredResiduals): void {
    this.writer.start(this.store.takeSnapshot(generation, regions), residuals);
  }

  courseDecided(course: string): void {
    this.takeCourse(course);
  }

  frameDropped(): void {
    this.counters.droppedFrames++;
  }

  /** Nothing is left to do here: the run is over, the coordinator is gone for good, another server has this place, or nobody says who does. */
  placeOver(end: PlaceEnd, why: string): void {
    if (this.over) return;
    const { job, context } = this;
    if (end === 'RUN_OVER') return this.end();
    const { replication, standby } = this.place;
    context.log.warn({ run: job.runId, index: job.index, why }, 'this server leaves its place in the run');
    if (replication?.table.state !== 'DEPOSED') {
      if (end === 'COORDINATOR_GONE' && standby?.table.state !== 'OVER')
        reportFailed(context, job, 'COORDINATOR_LOST', `parameter server 0 was lost in round ${this.shard.round}: ${why}`);
      return this.end();
    }
    this.giveWay(why);
  }

  /** Nobody hears that the attempt is over: all look for the standby. */
  private giveWay(why: string): void {
    const refusal = new ProtocolError('NOT_PRIMARY', why);
    this.coordinator?.close(refusal);
    this.release();
    for (const connection of this.silence.connections()) connection.close(refusal);
    this.onGone(this);
  }

  /** @throws ProtocolError NOT_PRIMARY where workers and servers have nothing to ask for */
  private checkPrimary(): void {
    if (!this.place.isPrimary || (this.job.index === 0 && !this.coordinator)) throw new ProtocolError('NOT_PRIMARY');
  }

  /** A worker's connection whose token is good. @throws ProtocolError */
  admitWorker(hello: MessageOf<'hello'>, connection: Connection, known: KnownNumbers): FrameReceiver {
    if (this.over) throw new ProtocolError('RUN_OVER');
    if (!this.isPrepared) throw new ProtocolError('RUN_UNKNOWN', 'the attempt is still loading');
    if (hello.layout !== this.layoutHash) throw new ProtocolError('LAYOUT_MISMATCH');
    this.checkPrimary();
    if (this.coordinator?.holdsEnd) throw new ProtocolError('NOT_PRIMARY', 'the attempt is over here, unless the standby goes on with it');
    this.coordinator?.machine.memberJoined(hello, connection, known);
    const receiver = new WorkerReceiver(this, this.shard.attach(hello.id, connection));
    connection.setReceiver(receiver);
    return receiver;
  }

  /** Another server's connection to the coordinator. @throws ProtocolError */
  admitServer(hello: MessageOf<'hello'>, connection: Connection, term: number): FrameReceiver {
    if (this.over) throw new ProtocolError('RUN_OVER');
    if (hello.role === 'standby') {
      if (hello.seat !== this.job.index) throw new ProtocolError('NOT_PRIMARY');
      return this.place.admitStandby(hello.id, connection);
    }
    if (this.job.index === 0) this.checkPrimary();
    if (!this.coordinator || hello.seat < 1 || hello.seat >= this.job.servers)
      throw new ProtocolError('TOKEN_WRONG_RUN', 'the coordinator is server 0');
    if (hello.layout !== this.layoutHash) throw new ProtocolError('LAYOUT_MISMATCH');
    return this.coordinator.admitServer(hello.seat, connection, term);
  }

  /** Ends this server's part at once: a newer attempt, or something broke. */
  stop(why: string, cause?: 'STOPPED'): void {
    if (this.over) return;
    if (!this.hasStarted) return this.drop();
    this.coordinator?.machine.fail(why, cause);
    this.end();
  }

  /**
   * This process has to end: a standby takes its place, or, where none could, the attempt takes a last checkpoint, as far as that is done within
   * the deadline. A standby that is promoted meanwhile leads to the same.
   */
  async shutdown(why: string, deadlineMs: number): Promise<void> {
    if (this.over || !this.hasStarted) return this.stop(why);
    this.place.leaves(why);
    if (await this.handsOver()) return;
    const { clock } = this.context;
    const deadline = clock.now() + deadlineMs;
    for (let isTold = false; !this.over && clock.now() < deadline;) {
      isTold ||= this.comesToStop(why);
      await new Promise<void>((resolve) => clock.after(SHUTDOWN_POLL_MS, resolve));
    }
    if (this.over) return;
    // Its standby may have been promoted, or may be yet.
    if (this.coordinator && (this.coordinator.holdsEnd || this.place.isAsking)) return this.giveWay(why);
    this.stop(why, 'STOPPED');
  }

  /** False when this server does not lead its shard. */
  private comesToStop(why: string): boolean {
    if (!this.place.isPrimary) return false;
    if (this.coordinator) this.coordinator.machine.stops.shutdown(why);
    else this.place.tell({ type: 'stopping', reason: why.slice(0, 300) });
    return true;
  }

  private async handsOver(): Promise<boolean> {
    const { clock } = this.context;
    const pause = (): Promise<void> => new Promise((resolve) => clock.after(HAND_OVER_AFTER_MS, resolve));
    if (!this.place.canHandOver) return false;
    // What the journal holds by now the successor need not write again.
    await Promise.all([pause(), Promise.race([this.flush(), pause()])]);
    return !this.over && this.place.handOver();
  }

  /** Lets a part go that never began: its place was given to another server, or its run needs none any more. Nobody is told. */
  drop(): void {
    if (this.over) return;
    this.coordinator?.close();
    this.release();
    this.onGone(this);
  }

  /** Tells the api what the journal holds, without waiting for the next turn. */
  async flush(): Promise<void> {
    await this.coordinator?.flush();
  }

  /** Every second: says that this server lives, and closes connections on which nothing comes any more. */
  private beat(): void {
    this.shard.heartbeat();
    this.coordinator?.heartbeat();
    this.place.heartbeat();
    this.silence.tick();
  }

  /** Protocol errors go to the peer. Anything else is ours: this run fails loudly, the server's other runs go on. */
  guard(act: () => void): void {
    const { owner } = spans;
    spans.owner = this.job.runId;
    try {
      act();
      if (spans.isOn) spans.mark(this.shard.round, this.job.runId);
    } catch (error) {
      if (error instanceof ProtocolError) throw error;
      this.context.log.error({ err: error as Error, run: this.job.runId }, 'a run failed inside the server');
      reportFailed(this.context, this.job, (error as Error).name, (error as Error).message);
      this.stop(`server ${this.job.index}: ${(error as Error).message}`);
    } finally {
      spans.owner = owner;
    }
  }

  private end(): void {
    if (this.over) return;
    this.coordinator?.sayEnd();
    if (this.over) return; // with its last word
    this.release();
    if (this.coordinator) this.coordinator.drain((uncollected) => this.onGone(this, uncollected));
    else this.onGone(this);
  }

  private release(): void {
    this.over = true;
    this.released.abort();
    this.cancelHeart();
    this.writer.abandon();
    this.hostedPlace.end();
    this.shard.end();
    this.context.clock.after(GO_AFTER_MS, () => {
      for (const connection of this.silence.connections()) connection.close(new ProtocolError('RUN_OVER'));
    });
  }
}
