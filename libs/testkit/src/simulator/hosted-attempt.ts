/**
 * One attempt as a simulated server holds it: the shard, its checkpoints and, on server 0, the coordinator. The wiring follows
 * libs/hosting/src/hosted-run.ts and coordinator-host.ts line by line; what it adds is that everything is watched.
 */
import {
  Coordinator,
  Journal,
  PacedTick,
  Shard,
  ShardLink,
  SilenceWatch,
  TokenShard,
  type CompletedCut,
  type Connection,
  type CoordinatorOptions,
  type Outcome,
  type FrameReceiver,
  type Region,
  type ShardOptions,
  type TokenCoordinator,
} from '@paceline/exchange';
import { reportFailed, type JournalPublisher, type PlacedRun } from '@paceline/hosting';
import type { PlacementJob, RestorePoint, ServerAddress } from '@paceline/jobs';
import { ProtocolError, checkAttempt, type FrameHeader, type Message, type MessageOf } from '@paceline/protocol';
import { StorageError, type Checkpoints, type Manifest } from '@paceline/storage';
import type { Cluster } from './cluster.js';
import { fenced } from './fences.js';
import { coordinatorPlan, shardPlan } from './gradient-shape.js';
import type { SimServer } from './sim-server.js';
import { ShardMemory } from './shard-memory.js';
import { manifestOf } from './sim-storage.js';
import { publisherOf, restored, WeightsCollection } from './coordinator-surroundings.js';
import { addressOf } from './tiny-spec.js';
import { createTokenCoordinator, createTokenShard } from './token-parts.js';

const HEARTBEAT_MS = 1_000;
const SILENT_AFTER_MS = 10_000;
const TICK_MS = 100;
const GO_AFTER_MS = 3_000;
const DRAIN_DEADLINE_MS = 600_000;

export class HostedAttempt implements PlacedRun {
  readonly attempt: number;
  /** Of the shard that it holds. */
  readonly index: number;
  readonly restore: RestorePoint | undefined;
  readonly shard: Shard | TokenShard;
  coordinator: Coordinator | TokenCoordinator | undefined;
  journal: Journal | undefined;
  private publisher: JournalPublisher | undefined;
  private readonly checkpoints: Checkpoints;
  private writing: AbortController | undefined;
  readonly memory: ShardMemory;
  outcome: { outcome: Outcome; message: string } | undefined;
  private toCoordinator: Connection | undefined;
  private untold: Message[] = [];
  private readonly silence: SilenceWatch;
  private readonly serverLinks = new Map<number, Connection>();
  private readonly cancel: (() => void)[] = [];
  private collection: WeightsCollection | undefined;
  over = false;
  hasStarted = false;
  private isPrepared = false;

  constructor(
    readonly job: PlacementJob,
    readonly server: SimServer,
    private readonly cluster: Cluster,
    private readonly onGone: (part: HostedAttempt) => void,
  ) {
    const { run } = cluster;
    const { shape } = run;
    const { process } = server;
    this.attempt = job.attempt;
    this.index = job.index;
    this.restore = job.restore ?? undefined;
    this.memory = new ShardMemory(cluster, this.index);
    this.checkpoints = cluster.disk.checkpointsOf(process);
    const hooks = {
      onCut: (generation: number, regions: readonly Region[]) => this.cut(generation, regions),
      tellCoordinator: (message: Message) => this.tell(message),
    };
    this.shard = shape.tokens ? createTokenShard(this, cluster, shape.tokens, hooks) : this.makeShard(hooks);
    this.silence = new SilenceWatch(process, { silentAfterMs: SILENT_AFTER_MS, tickMs: HEARTBEAT_MS });
    this.cancel.push(process.every(HEARTBEAT_MS, () => this.beat()));
    cluster.tables.push(this.shard.table);
  }

  private makeShard(hooks: Pick<ShardOptions, 'onCut' | 'tellCoordinator'>): Shard {
    const { cluster, attempt, restore } = this;
    const { replicas } = cluster.run.shape;
    const shard = new Shard({
      ...{ index: this.index, attempt, replicas, chunks: this.memory.chunks },
      initial: this.memory.initial,
      firstRound: restore?.round ?? 0,
      ...shardPlan(cluster.run),
      update: (chunk, round, paramIn, paramOut, gradient, decision) => {
        cluster.applied(this, chunk.index, round);
        this.memory.update(chunk, round, paramIn, paramOut, gradient, decision);
      },
      ...hooks,
      onDropped: (reason) => cluster.world.note(`dropped: ${reason}`),
    });
    cluster.plant?.shard?.(shard, cluster);
    return shard;
  }

  /** Loads the checkpoint that the attempt begins with; server 0 makes its coordinator. @throws StorageError */
  async prepare(): Promise<void> {
    const reader = await restored(this, this.checkpoints, this.cluster);
    this.isPrepared = true;
    if (!this.over && this.index === 0) this.coordinator = this.makeCoordinator(reader?.manifest);
  }

  private makeCoordinator(parent: Manifest | undefined): Coordinator | TokenCoordinator {
    const { cluster, attempt } = this;
    const { run } = cluster;
    const { shape } = run;
    const { process } = this.server;
    this.journal = new Journal({ now: () => Math.floor(process.now()) });
    const common: CoordinatorOptions = {
      ...{ attempt, replicas: shape.replicas, servers: shape.servers, evalExamples: shape.evalExamples, journal: this.journal },
      firstRound: parent?.round ?? 0,
      ...(parent ? { firstLedger: parent.ledger } : {}),
      ...coordinatorPlan(run),
      schedule: {
        totalRounds: run.schedule.totalRounds,
        examplesIn: (round) => run.schedule.round(round).count,
        epochOf: (round) => run.schedule.round(round).epoch,
        replicaExamples: (round, replica) => run.replicaExamples(round, replica),
      },
      cuts: { everyRounds: shape.cutEveryRounds, everyMs: 0, deadlineMs: 20_000, final: shape.cutEveryRounds > 0 },
      publishCut: (cut) => void this.publishCut(cut, parent),
      now: () => process.now(),
      stepDeadlineMs: cluster.stepDeadlineMs,
      collectWeights: () => this.collection!.begin(),
      onOver: (outcome, message) => {
        this.outcome = { outcome, message };
        void this.publisher!.flush(); // the next attempt begins with what this journal says last
        this.end();
      },
    };
    const coordinator = shape.tokens ? createTokenCoordinator(common, cluster, shape.tokens) : new Coordinator(common);
    if (coordinator instanceof Coordinator) cluster.plant?.coordinator?.(coordinator, cluster);
    cluster.tables.push(coordinator.table);
    this.collection = new WeightsCollection(this, coordinator, this.serverLinks, cluster);
    this.cancel.push(() => this.collection?.stop());
    this.publisher = publisherOf(this, coordinator, this.journal, cluster);
    return coordinator;
  }

  /** As libs/hosting/src/checkpoint-writer.ts: in the background, one at a time; a newer cut gives up an older one. */
  private cut(generation: number, regions: readonly Region[]): void {
    this.writing?.abort();
    const writing = new AbortController();
    this.writing = writing;
    const { run, runId } = this.cluster;
    const tensors = this.memory.tensors(regions);
    const id = { runId, attempt: this.attempt, round: generation };
    this.checkpoints.writeShard(id, this.index, tensors, { servers: run.shape.servers, signal: writing.signal }).then(
      (file) => this.server.process.run(() => !writing.signal.aborted && this.tell({ type: 'cut-written', generation, file })),
      (error: Error) =>
        this.server.process.run(() => {
          if (this.writing !== writing || this.over) return;
          const code = error instanceof StorageError ? error.code : error.name;
          this.tell({ type: 'cut-failed', generation, code, message: error.message.slice(0, 2000) });
        }),
    );
  }

  private async publishCut(cut: CompletedCut, parent: Manifest | undefined): Promise<void> {
    const { cluster, attempt, server } = this;
    const id = { runId: cluster.runId, attempt, round: cut.generation };
    try {
      const { sha256 } = await this.checkpoints.publish(manifestOf(cluster, id, cut, parent));
      const bytes = cut.files.reduce((sum, file) => sum + file.bytes, 0);
      server.process.run(() => this.coordinator!.cutPublished(cut.generation, { bytes, sha256, loss: cut.loss }));
    } catch (error) {
      server.process.run(() => this.coordinator!.cutFailed(cut.generation, (error as Error).message));
    }
  }

  get isOver(): boolean {
    return this.over;
  }

  /** SIGTERM: a last checkpoint within the deadline. */
  async shutdown(why: string, deadlineMs: number): Promise<void> {
    const { process } = this.server;
    if (this.over || !this.hasStarted) return this.stop(why);
    if (this.coordinator) this.coordinator.shutdown(why);
    else this.tell({ type: 'stopping', reason: why });
    const startedMs = process.now();
    while (!this.over && process.now() - startedMs < deadlineMs) await new Promise<void>((resolve) => process.after(20, resolve));
    this.stop(why);
  }

  async flush(): Promise<void> {
    await this.publisher?.flush();
  }

  /** It never began: its place was given to another server, or its run needs none any more. */
  drop(): void {
    if (this.over) return;
    this.release();
    this.onGone(this);
  }

  /** All servers of the attempt are claimed. */
  async start(servers: readonly ServerAddress[]): Promise<void> {
    const { process } = this.server;
    if (this.over) return;
    this.hasStarted = true;
    if (this.coordinator) {
      const [here, there] = this.cluster.network.pair(process);
      const { coordinator } = this;
      const paced = new PacedTick(process);
      this.publisher!.start();
      this.cancel.push(process.every(TICK_MS, () => paced.isDue() && coordinator.tick()));
      this.admitCoordinated(0, there);
      this.joinCoordinator(here);
      return;
    }
    const connection = await this.cluster.network.connect(process, addressOf(servers[0]!), 5_000);
    if (this.over) return connection.close();
    this.joinCoordinator(connection);
    connection.sendMessage(
      {
        ...{
          type: 'hello',
          token: `server/${this.attempt}`,
          run: this.cluster.runId,
          role: 'server',
          id: process.name,
          host: process.host,
        },
        ...{ seat: this.index, n: 0, fingerprint: '', layout: '' },
      },
      { attempt: this.attempt, term: 0, view: 0, round: 0 },
    );
    for (const message of this.untold.splice(0)) this.tell(message);
  }

  admitWorker(hello: MessageOf<'hello'>, connection: Connection): FrameReceiver {
    if (this.over) throw new ProtocolError('RUN_OVER');
    if (!this.isPrepared) throw new ProtocolError('RUN_UNKNOWN', 'the attempt is still loading');
    this.coordinator?.memberJoined(hello, connection);
    const link = this.shard.attach(hello.id, connection, true);
    const heard = (): void => {
      this.silence.heard(connection);
      this.coordinator?.memberHeard(hello.id, connection);
    };
    heard();
    const receiver: FrameReceiver = {
      payloadFor: (header) => {
        heard();
        return this.shard.payloadFor(link, header);
      },
      data: (header) => {
        heard();
        fenced(this, this.cluster, header.attempt, 'a gradient', () => this.shard.data(link, header));
      },
      message: (message, header) => {
        heard();
        this.received(header, message, () => this.workerMessage(link, message));
      },
      closed: ({ description, error }) => {
        this.cluster.refused(this.server.process.name, error);
        this.silence.forget(connection);
        this.shard.detach(link);
        this.coordinator?.memberClosed(hello.id, connection, description);
      },
    };
    connection.setReceiver(receiver);
    return receiver;
  }

  admitServer(hello: MessageOf<'hello'>, connection: Connection): FrameReceiver {
    if (this.over) throw new ProtocolError('RUN_OVER');
    if (!this.isPrepared) throw new ProtocolError('RUN_UNKNOWN', 'the attempt is still loading');
    if (!this.coordinator || hello.seat < 1) throw new ProtocolError('TOKEN_WRONG_RUN', 'the coordinator is server 0');
    return this.admitCoordinated(hello.seat, connection);
  }

  /** A newer attempt, or the process ends. */
  stop(why: string): void {
    if (this.over) return;
    if (!this.hasStarted) return this.drop();
    this.coordinator?.fail(why);
    this.end();
  }

  /** The fence that every message passes, and what came of it. */
  private received(header: FrameHeader, { type }: Message, hand: () => void): void {
    fenced(this, this.cluster, header.attempt, `a message (${type})`, () => {
      if (!this.cluster.plant?.believesOldAttempts) checkAttempt(header, this.attempt);
      hand();
    });
  }

  private workerMessage(link: ShardLink, message: Message): void {
    if (this.shard instanceof TokenShard) {
      if (message.type === 'fetch') return this.shard.onFetch(link, message.round, message.replica);
    } else if (message.type === 'pull') return this.shard.onPull(link, message.generation, message.chunk);
    if (this.coordinator) return this.coordinator.memberMessage(link.id, message);
    if (message.type !== 'heartbeat') throw new ProtocolError('BAD_MESSAGE', `${message.type} is for the coordinator`);
  }

  private admitCoordinated(index: number, connection: Connection): FrameReceiver {
    if (this.serverLinks.has(index)) throw new ProtocolError('SEAT_TAKEN', `server ${index} is connected already`);
    this.serverLinks.set(index, connection);
    const coordinator = this.coordinator!;
    const receiver: FrameReceiver = {
      payloadFor: (header) => {
        const chunk = this.cluster.run.layout.chunks[header.chunk];
        if (!chunk || header.round !== coordinator.round) throw new ProtocolError('UNKNOWN_CHUNK', `chunk ${header.chunk}`);
        return new Uint8Array(header.length);
      },
      data: (header, payload) => this.collection!.collected(header.chunk, payload),
      message: (message, header) => {
        if (message.type === 'refused') return;
        this.received(header, message, () => coordinator.serverMessage(index, message));
      },
      closed: ({ description, error }) => {
        this.cluster.refused(this.server.process.name, error);
        coordinator.serverLost(index, description);
      },
    };
    connection.setReceiver(receiver);
    coordinator.serverJoined(index, connection);
    return receiver;
  }

  private joinCoordinator(connection: Connection): void {
    this.toCoordinator = connection;
    this.silence.heard(connection);
    const link = new ShardLink('coordinator', connection, false);
    connection.setReceiver({
      payloadFor: () => {
        throw new ProtocolError('BAD_FRAME', 'the coordinator sends no data');
      },
      data: () => undefined,
      message: (message, header) => {
        this.silence.heard(connection);
        if (message.type !== 'refused') this.received(header, message, () => this.coordinatorMessage(link, message));
      },
      closed: ({ error, description }) => {
        this.cluster.refused(this.server.process.name, error);
        this.silence.forget(connection);
        if (this.over) return;
        const message = `parameter server 0, the coordinator, was lost in round ${this.shard.round}: ${description}`;
        reportFailed(this.server, this.job, 'COORDINATOR_LOST', message);
        this.end();
      },
    });
    if (this.coordinator) for (const message of this.untold.splice(0)) this.tell(message);
  }

  private coordinatorMessage(link: ShardLink, message: Message): void {
    switch (message.type) {
      case 'view':
        return this.shard.onView(message.view, message.term, message.members);
      case 'commit':
        return this.shard.onCommit(message);
      case 'include':
        if (!this.over) this.cluster.watch.included(message.round, message.replicas);
        return this.synchronous(message).onInclude(message);
      case 'decision':
        return this.synchronous(message).onDecision(message);
      case 'pull':
        return this.shard.onPull(link, message.generation, message.chunk);
      case 'drop':
        if (!(this.shard instanceof TokenShard)) throw new ProtocolError('BAD_MESSAGE', 'mode sync drops no tokens');
        return this.shard.onDrop(message.round, message.replica);
      case 'tell-again':
        return this.shard instanceof Shard ? this.shard.tellAgain() : undefined;
      case 'end':
        return this.end();
      case 'refused':
      case 'heartbeat':
        return;
      default:
        throw new ProtocolError('BAD_MESSAGE', `the coordinator does not send ${message.type} to a server`);
    }
  }

  private synchronous({ type }: Message): Shard {
    if (this.shard instanceof TokenShard) throw new ProtocolError('BAD_MESSAGE', `${type} is of mode sync`);
    return this.shard;
  }

  private tell(message: Message): void {
    if (!this.toCoordinator) return void this.untold.push(message);
    const { term, view, round } = this.shard;
    this.toCoordinator.sendMessage(message, { attempt: this.attempt, term, view, round });
  }

  private beat(): void {
    this.shard.heartbeat();
    this.coordinator?.heartbeat();
    if (this.toCoordinator) this.tell({ type: 'heartbeat', progress: this.shard.round });
    this.silence.tick();
  }

  private end(): void {
    if (this.over) return;
    this.release();
    if (this.publisher) this.drain(this.publisher);
    else this.onGone(this);
  }

  private release(): void {
    this.over = true;
    for (const cancel of this.cancel) cancel();
    this.writing?.abort();
    this.shard.end();
    this.toCoordinator?.close();
    this.server.process.after(GO_AFTER_MS, () => {
      for (const connection of this.silence.connections()) connection.close(new ProtocolError('RUN_OVER'));
    });
    this.cluster.attemptPartOver(this);
  }

  /** The attempt is over: goes on publishing until the api has stored the journal. */
  private drain(publisher: JournalPublisher): void {
    const { process } = this.server;
    const startedMs = process.now();
    const cancel = process.every(TICK_MS, () => {
      if (!publisher.isDrained && process.now() - startedMs < DRAIN_DEADLINE_MS) return;
      cancel();
      publisher.stop();
      this.onGone(this);
    });
  }
}
