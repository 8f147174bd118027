/**
 * A parameter server process: listens, admits by HELLO, holds the shard of an attempt and, on server 0, its coordinator. Its wiring
 * follows apps/ps/src/hosted-run.ts and coordinator-host.ts line by line; what it adds is that everything is watched.
 */
import {
  Coordinator,
  Journal,
  PacedTick,
  Shard,
  ShardLink,
  SilenceWatch,
  acquireRegion,
  type Connection,
  type Outcome,
  type FrameReceiver,
  type OwnedChunk,
  type Region,
} from '@paceline/exchange';
import type { Arena } from '@paceline/kernels';
import { ReductionTree, shardChunks, validNode } from '@paceline/learning';
import { ProtocolError, checkAttempt, type FrameHeader, type Message, type MessageOf } from '@paceline/protocol';
import type { Cluster } from './cluster.js';
import { SimProcess } from './process.js';
import { giveArena, takeArena } from './tiny-run.js';

const HEARTBEAT_MS = 1_000;
const SILENT_AFTER_MS = 10_000;
const TICK_MS = 100;
const GO_AFTER_MS = 3_000;

export class SimServer {
  readonly process: SimProcess;
  readonly address: string;
  hosted: HostedAttempt | undefined;

  constructor(
    readonly index: number,
    host: string,
    generation: number,
    private readonly cluster: Cluster,
  ) {
    this.address = `${host}/ps${index}.${generation}`;
    this.process = new SimProcess(cluster.world, `ps${index}.${generation}`, host, (error) => cluster.crashed(this.process, error));
    cluster.network.listen(this.address, this.process, (framed) => framed((connection) => this.accept(connection)));
  }

  place(attempt: number): HostedAttempt {
    this.hosted = new HostedAttempt(attempt, this, this.cluster);
    return this.hosted;
  }

  /** As apps/ps/src/gate.ts: the token takes a turn to verify, then run and attempt are compared. */
  private accept(connection: Connection): void {
    let started = false;
    const early: { message: Message; header: FrameHeader }[] = [];
    connection.setReceiver({
      payloadFor: () => {
        throw new ProtocolError('HELLO_EXPECTED');
      },
      data: () => undefined,
      message: (message, header) => {
        if (started) {
          if (early.push({ message, header }) > 16) throw new ProtocolError('HELLO_EXPECTED', 'too many messages before WELCOME');
          return;
        }
        started = true;
        if (message.type !== 'hello') throw new ProtocolError('HELLO_EXPECTED');
        this.process.after(0.05, () => this.admit(message, header.attempt, connection, early));
      },
      closed: ({ error }) => this.cluster.refused(this.process.name, error),
    });
  }

  private admit(
    hello: MessageOf<'hello'>,
    attempt: number,
    connection: Connection,
    early: readonly { message: Message; header: FrameHeader }[],
  ): void {
    try {
      const { hosted } = this;
      if (!hosted) throw new ProtocolError('RUN_UNKNOWN');
      if (attempt < hosted.attempt) throw new ProtocolError('STALE_FENCE', `attempt ${attempt}, present is ${hosted.attempt}`);
      if (attempt !== hosted.attempt) throw new ProtocolError('RUN_UNKNOWN', `attempt ${attempt} is not known here`);
      if (!connection.isOpen) return;
      const receiver = hello.role === 'worker' ? hosted.admitWorker(hello, connection) : hosted.admitServer(hello, connection);
      for (const { message, header } of early) receiver.message(message, header);
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error;
      connection.close(error);
    }
  }
}

export class HostedAttempt {
  readonly shard: Shard;
  readonly coordinator: Coordinator | undefined;
  readonly journal: Journal | undefined;
  readonly arena: Arena;
  outcome: { outcome: Outcome; message: string } | undefined;
  private readonly slots = new Map<number, number[]>();
  private toCoordinator: Connection | undefined;
  private untold: Message[] = [];
  private readonly silence: SilenceWatch;
  private readonly serverLinks = new Map<number, Connection>();
  private readonly cancel: (() => void)[] = [];
  private readonly collected = new Map<number, Uint8Array>();
  over = false;
  hasStarted = false;

  constructor(
    readonly attempt: number,
    readonly server: SimServer,
    private readonly cluster: Cluster,
  ) {
    const { run } = cluster;
    const { shape, layout } = run;
    const { process, index } = server;
    this.arena = takeArena();
    const chunks = shardChunks(layout, shape.servers, index).map((i) => ({
      index: i,
      length: layout.chunks[i]!.length,
      arena: this.arena,
    }));
    this.shard = new Shard({
      ...{ index, attempt, replicas: shape.replicas, chunks },
      initial: chunks.map((chunk) => this.initialRegion(chunk)),
      createReduction: (ops) => new ReductionTree(shape.replicas, ops),
      isValidNode: (lo, hi) => validNode(shape.replicas, lo, hi),
      update: (chunk, round, paramIn, paramOut, gradient) => this.update(chunk, round, paramIn, paramOut, gradient),
      tellCoordinator: (message) => this.tell(message),
      onDropped: (reason) => cluster.world.note(`dropped: ${reason}`),
    });
    this.silence = new SilenceWatch(process, { silentAfterMs: SILENT_AFTER_MS, tickMs: HEARTBEAT_MS });
    this.cancel.push(process.every(HEARTBEAT_MS, () => this.beat()));
    cluster.tables.push(this.shard.table);
    if (index === 0) {
      this.journal = new Journal({ now: () => process.now() });
      this.coordinator = new Coordinator({
        ...{ attempt, replicas: shape.replicas, servers: shape.servers, evalExamples: shape.evalExamples, journal: this.journal },
        schedule: {
          totalRounds: run.schedule.totalRounds,
          examplesIn: (round) => run.schedule.round(round).count,
          epochOf: (round) => run.schedule.round(round).epoch,
          replicaExamples: (round, replica) => run.replicaExamples(round, replica),
        },
        now: () => process.now(),
        stepDeadlineMs: cluster.stepDeadlineMs,
        collectWeights: () => this.collect(),
        onOver: (outcome, message) => {
          this.outcome = { outcome, message };
          this.end();
        },
      });
      cluster.plant?.coordinator?.(this.coordinator, cluster);
      cluster.tables.push(this.coordinator.table);
    }
    cluster.plant?.shard?.(this.shard, cluster);
  }

  /** All servers of the attempt are placed. */
  start(coordinatorAddress: string): void {
    const { process } = this.server;
    if (this.over) return;
    this.hasStarted = true;
    if (this.coordinator) {
      const [here, there] = this.cluster.network.pair(process);
      const { coordinator } = this;
      const paced = new PacedTick(process);
      this.cancel.push(process.every(TICK_MS, () => paced.isDue() && coordinator.tick()));
      this.admitCoordinated(0, there);
      this.joinCoordinator(here);
      return;
    }
    void this.cluster.network.connect(process, coordinatorAddress, 5_000).then(
      (connection) => {
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
            seat: this.server.index,
            n: 0,
            fingerprint: '',
            layout: '',
          },
          { attempt: this.attempt, term: 0, view: 0, round: 0 },
        );
        for (const message of this.untold.splice(0)) this.tell(message);
      },
      () => this.end(),
    );
  }

  admitWorker(hello: MessageOf<'hello'>, connection: Connection): FrameReceiver {
    if (this.over) throw new ProtocolError('RUN_OVER');
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
        this.shard.data(link, header);
      },
      message: (message, header) => {
        heard();
        checkAttempt(header, this.attempt);
        this.workerMessage(link, message);
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
    if (!this.coordinator || hello.seat < 1) throw new ProtocolError('TOKEN_WRONG_RUN', 'the coordinator is server 0');
    return this.admitCoordinated(hello.seat, connection);
  }

  /** A newer attempt, or the process ends. */
  stop(why: string): void {
    if (this.over) return;
    this.coordinator?.fail(why);
    this.end();
  }

  private workerMessage(link: ShardLink, message: Message): void {
    if (message.type === 'pull') return this.shard.onPull(link, message.generation, message.chunk);
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
      data: (header, payload) => this.onCollected(header.chunk, payload),
      message: (message, header) => {
        if (message.type === 'refused') return;
        checkAttempt(header, this.attempt);
        coordinator.serverMessage(index, message);
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
        if (message.type !== 'refused') checkAttempt(header, this.attempt);
        this.coordinatorMessage(link, message);
      },
      closed: ({ error }) => {
        this.cluster.refused(this.server.process.name, error);
        this.silence.forget(connection);
        if (!this.over) this.end();
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
      case 'pull':
        return this.shard.onPull(link, message.generation, message.chunk);
      case 'end':
        return this.end();
      case 'refused':
      case 'heartbeat':
        return;
      default:
        throw new ProtocolError('BAD_MESSAGE', `the coordinator does not send ${message.type} to a server`);
    }
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
    this.over = true;
    for (const cancel of this.cancel) cancel();
    this.shard.end();
    this.toCoordinator?.close();
    this.server.process.after(GO_AFTER_MS, () => {
      for (const connection of this.silence.connections()) connection.close(new ProtocolError('RUN_OVER'));
    });
    this.cluster.attemptPartOver(this);
  }

  // ---- the weights at the end ----

  private collect(): void {
    for (const { index } of this.cluster.run.layout.chunks) {
      const owner = this.cluster.ownerOf(index);
      this.serverLinks
        .get(owner)!
        .sendMessage({ type: 'pull', generation: this.coordinator!.round, chunk: index }, this.coordinator!.numbers());
    }
  }

  private onCollected(chunk: number, payload: Uint8Array): void {
    this.collected.set(chunk, payload);
    const { layout } = this.cluster.run;
    if (this.collected.size < layout.chunks.length) return;
    for (const { index, offset, length } of layout.chunks) {
      const values = new Float32Array(this.collected.get(index)!.buffer as ArrayBuffer);
      this.cluster.checks.expect(
        this.cluster.reference.holds(this.coordinator!.round, { offset, length }, values),
        'I8',
        () => `the collected chunk ${index} is not that of the undisturbed run`,
      );
    }
    this.coordinator!.weightsCollected({});
  }

  // ---- memory ----

  private initialRegion(chunk: OwnedChunk): Region {
    const { layout, optimizer } = this.cluster.run;
    const { offset, section } = layout.chunks[chunk.index]!;
    const region = acquireRegion(chunk.arena, chunk.length);
    region.floats.forEach((_, i, all) => (all[i] = this.cluster.run.initialValue(offset + i)));
    if (section === 'trainable')
      this.slots.set(
        chunk.index,
        optimizer.slots.map(({ initialValue }) => {
          const pointer = chunk.arena.alloc(chunk.length * 4);
          chunk.arena.kernels.fill(pointer, chunk.length, initialValue);
          return pointer;
        }),
      );
    return region;
  }

  private update(chunk: OwnedChunk, round: number, paramIn: Region, paramOut: Region, gradient: Region): void {
    const { run, reference, checks } = this.cluster;
    const { kernels } = chunk.arena;
    const gradScale = Math.fround(1 / run.schedule.round(round).count);
    const place = run.layout.chunks[chunk.index]!;
    this.cluster.applied(this, chunk.index, round);
    if (place.section === 'state') kernels.scaleInto(paramOut.pointer, gradient.pointer, chunk.length, gradScale);
    else
      run.optimizer.apply(kernels, {
        ...{ paramIn: paramIn.pointer, paramOut: paramOut.pointer, grad: gradient.pointer, slots: this.slots.get(chunk.index)! },
        ...{ count: chunk.length, step: round + 1, gradScale },
      });
    checks.expect(
      reference.holds(round + 1, place, paramOut.floats),
      'I8',
      () => `chunk ${chunk.index} of generation ${round + 1} on server ${this.server.index} is not that of the undisturbed run`,
    );
  }

  /** After the run: slots are the store's own; everything else must have been given back. */
  releaseMemory(): number {
    for (const pointers of this.slots.values()) for (const pointer of pointers) this.arena.free(pointer);
    this.slots.clear();
    const leaked = this.arena.bytesInUse;
    giveArena(this.arena);
    return leaked;
  }
}
