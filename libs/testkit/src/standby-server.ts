/** One server process of StandbyCluster: shard, place, coordinator where it is one, and what a test can do to it. */
import {
  Coordinator,
  Journal,
  Shard,
  ShardPlace,
  acquireRegion,
  memoryPair,
  processClock,
  type Connection,
  type FrameReceiver,
  type Succession,
} from '@paceline/exchange';
import { ReductionTree, judgeRound, replicaRows, shardChunks, validNode } from '@paceline/learning';
import { ProtocolError, checkAttempt, type FrameHeader, type Message, type MessageOf } from '@paceline/protocol';
import type { Address, StandbyCluster } from './standby-cluster.js';
import { RATE } from './tiny-model.js';

const finite = (value: number): number => (Number.isFinite(value) ? value : 0);

export function helloOf(role: 'worker' | 'server' | 'standby', id: string, seat: number): MessageOf<'hello'> {
  const run = '00000000-0000-4000-8000-000000000000';
  return { type: 'hello', token: '', run, role, id, host: id, seat, n: 0, fingerprint: role === 'worker' ? 'test' : '', layout: '' };
}

export class StandbyServer {
  readonly shard: Shard;
  readonly place: ShardPlace<Address>;
  coordinator: Coordinator | undefined;
  journal: Journal | undefined;
  readonly connections = new Set<Connection>();
  readonly errors: string[] = [];
  isDead = false;
  isFrozen = false;
  over: string | undefined;
  private readonly ofServer = new Map<number, Connection>();
  private readonly thawed: (() => void)[] = [];

  constructor(
    readonly id: string,
    readonly index: number,
    readonly isStandby: boolean,
    private readonly cluster: StandbyCluster,
  ) {
    const { layout, options, arena } = cluster;
    const chunks = shardChunks(layout, options.servers, index).map((i) => ({ index: i, length: layout.chunks[i]!.length, arena }));
    this.place = new ShardPlace<Address>({
      index,
      attempt: 1,
      replicas: options.replicas,
      serverId: id,
      isStandby,
      clock: processClock,
      servers: cluster.primaries,
      standbys: cluster.standbys,
      connect: (address) => this.dial(address),
      hello: (role) => helloOf(role, id, index),
      ask: (want) => cluster.ask(this, want),
      coordinatorHere: (isPromoted) => this.coordinate(isPromoted),
      onPromoted: () => undefined,
      onOver: (_, why) => this.end(why),
      guard: (act) => this.guard(act),
      ...(options.silentMs === undefined ? {} : { silentMs: options.silentMs }),
      ...(options.askAtMostMs === undefined ? {} : { askAtMostMs: options.askAtMostMs }),
    });
    this.shard = new Shard({
      index,
      attempt: 1,
      replicas: options.replicas,
      chunks,
      initial: chunks.map(({ length }) => {
        const region = acquireRegion(arena, length);
        arena.kernels.fill(region.pointer, length, 0);
        return region;
      }),
      createReduction: (ops) => new ReductionTree(options.replicas, ops),
      isValidNode: (lo, hi) => validNode(options.replicas, lo, hi),
      ...(options.twoPhase
        ? {
            twoPhase: {
              hasBackups: false,
              measure: (chunk, gradient) => ({
                isFinite: arena.kernels.allFinite(gradient.pointer, chunk.length),
                squares:
                  layout.chunks[chunk.index]!.section === 'state'
                    ? []
                    : [[0, finite(arena.kernels.sumOfSquares(gradient.pointer, chunk.length))]],
              }),
            },
          }
        : {}),
      update: (chunk, round, paramIn, paramOut, gradient, decision) => {
        this.happens(isStandby && !this.place.isPrimary ? 'standby applies' : 'applies', round);
        const scale = Math.fround(Math.fround(1 / options.examples) * Math.fround(decision?.scale ?? 1));
        if (layout.chunks[chunk.index]!.section === 'state')
          arena.kernels.scaleInto(paramOut.pointer, gradient.pointer, chunk.length, scale);
        else arena.kernels.sgd(paramIn.pointer, paramOut.pointer, gradient.pointer, chunk.length, RATE, scale);
      },
      onReduced: (round, chunk, gradient, decision) => {
        this.happens('forwards', round);
        if (!this.isDead) this.place.reduced(round, chunk, gradient, decision !== undefined);
        this.happens('forwarded', round);
      },
      tellCoordinator: (message) => {
        if (message.type === 'reduced' || message.type === 'scalars') this.happens(`tells ${message.type}`, message.round);
        if (!this.isDead) this.place.tell(message);
      },
    });
    this.place.use(this.shard);
  }

  /** Where a test strikes. */
  happens(what: string, round: number): void {
    if (!this.isDead) this.cluster.watch(this, what, round);
  }

  /** As SIGKILL: nothing that is not yet out leaves it. */
  kill(): void {
    if (this.isDead) return;
    this.isDead = true;
    this.place.end();
    for (const connection of this.connections) connection.close();
  }

  freeze(): void {
    this.isFrozen = true;
  }

  thaw(): void {
    this.isFrozen = false;
    for (const act of this.thawed.splice(0)) act();
  }

  /** Nothing reaches a frozen process before it is thawed. */
  whenAwake(act: () => void): void {
    if (this.isDead) return;
    if (this.isFrozen) this.thawed.push(act);
    else act();
  }

  tick(): void {
    if (this.isDead || this.isFrozen) return;
    this.guard(() => {
      this.place.tick();
      this.coordinator?.tick();
    });
  }

  heartbeat(): void {
    if (this.isDead || this.isFrozen) return;
    this.shard.heartbeat();
    this.place.heartbeat();
    this.coordinator?.heartbeat();
  }

  /** A connection that somebody has opened to this process; its first message is HELLO. */
  accept(connection: Connection): void {
    this.connections.add(connection);
    const early: [Message, FrameHeader][] = [];
    let isAdmitted = false;
    connection.setReceiver({
      payloadFor: () => {
        throw new ProtocolError('HELLO_EXPECTED');
      },
      data: () => undefined,
      message: (message, header) => {
        if (isAdmitted) return void early.push([message, header]);
        isAdmitted = true;
        this.whenAwake(() => {
          try {
            const receiver = this.awake(this.admit(message as MessageOf<'hello'>, header, connection));
            connection.setReceiver(receiver);
            for (const [later, laterHeader] of early) receiver.message(later, laterHeader);
          } catch (error) {
            connection.close(error instanceof ProtocolError ? error : new ProtocolError('SERVER_FULL', String(error)));
          }
        });
      },
      closed: () => undefined,
    });
  }

  /** What comes on a connection waits while this process is frozen. */
  private awake(receiver: FrameReceiver): FrameReceiver {
    return {
      payloadFor: (header) => (this.isFrozen ? new Uint8Array(header.length) : receiver.payloadFor(header)),
      data: (header, payload) => {
        if (!this.isFrozen && !this.isDead) return receiver.data(header, payload);
        this.whenAwake(() => {
          receiver.payloadFor(header).set(payload);
          receiver.data(header, payload);
        });
      },
      message: (message, header) => this.whenAwake(() => receiver.message(message, header)),
      closed: (reason) => this.whenAwake(() => receiver.closed(reason)),
    };
  }

  private admit(hello: MessageOf<'hello'>, header: FrameHeader, connection: Connection): FrameReceiver {
    if (hello.role === 'standby') return this.place.admitStandby(hello.id, connection);
    if (!this.place.isPrimary) throw new ProtocolError('NOT_PRIMARY');
    if (hello.role === 'server') return this.admitServer(hello, header, connection);
    if (this.index === 0 && !this.coordinator) throw new ProtocolError('NOT_PRIMARY');
    this.coordinator?.memberJoined(hello, connection, header);
    const link = this.shard.attach(hello.id, connection, true);
    return {
      payloadFor: (frame) => this.shard.payloadFor(link, frame),
      data: (frame) => this.guard(() => this.shard.data(link, frame)),
      message: (message) =>
        this.guard(() => {
          if (message.type === 'pull') this.shard.onPull(link, message.generation, message.chunk);
          else this.coordinator?.memberMessage(hello.id, message);
        }),
      closed: ({ description }) =>
        this.guard(() => {
          this.shard.detach(link);
          this.coordinator?.memberClosed(hello.id, connection, description);
        }),
    };
  }

  private admitServer(hello: MessageOf<'hello'>, header: FrameHeader, connection: Connection): FrameReceiver {
    const { coordinator } = this;
    if (!coordinator) throw new ProtocolError('NOT_PRIMARY');
    coordinator.serverComes(hello.seat, header.term);
    const former = this.ofServer.get(hello.seat);
    this.ofServer.set(hello.seat, connection);
    if (former?.isOpen) {
      coordinator.serverLost(hello.seat, 'it has come again');
      former.close();
    }
    coordinator.serverJoined(hello.seat, connection);
    return {
      payloadFor: () => {
        throw new ProtocolError('BAD_FRAME');
      },
      data: () => undefined,
      message: (message, frame) => {
        if (message.type === 'refused') return;
        checkAttempt(frame, 1);
        if (this.ofServer.get(hello.seat) === connection) this.guard(() => coordinator.serverMessage(hello.seat, message));
      },
      closed: ({ description }) => {
        if (this.ofServer.get(hello.seat) !== connection) return;
        this.ofServer.delete(hello.seat);
        this.guard(() => coordinator.serverLost(hello.seat, description));
      },
    };
  }

  private coordinate(isPromoted: boolean): Connection {
    const { cluster } = this;
    const { options } = cluster;
    const [near, far] = memoryPair();
    this.connections.add(near).add(far);
    const stored = cluster.stored();
    this.journal = new Journal({ now: () => performance.now(), ...(isPromoted ? { storedN: stored.n } : {}) });
    const succession: Succession | undefined = isPromoted
      ? { term: this.shard.term, ...this.shard.known(), ledgerFrom: stored.ledgerFrom, newest: 0 }
      : undefined;
    this.coordinator = new Coordinator({
      attempt: 1,
      replicas: options.replicas,
      servers: options.servers,
      evalExamples: 1200,
      journal: this.journal,
      now: () => performance.now(),
      schedule: {
        totalRounds: options.rounds,
        examplesIn: () => options.examples,
        epochOf: () => 0,
        replicaExamples: (_, replica) => {
          const { from, to } = replicaRows(options.examples, options.replicas, replica);
          return to - from;
        },
      },
      ...(succession ? { succession } : {}),
      ...(options.twoPhase
        ? {
            twoPhase: {
              backupReplicas: 0,
              decide: (_round, _replicas, scalars) => {
                const { isFinite, scale } = judgeRound(scalars, options.examples, options.twoPhase?.clip ?? {});
                return { skip: !isFinite, examples: options.examples, scale, variables: [] };
              },
            },
          }
        : {}),
      ...(options.silentMs === undefined ? {} : { serverDeadlineMs: options.silentMs }),
      collectWeights: () => {
        this.happens('collects', options.rounds);
        if (!this.isDead) this.coordinator!.weightsCollected({});
      },
      whenFinal: (act) => this.place.conclude(act),
      onOver: (outcome, message) => {
        if (!this.isDead) cluster.outcome = { outcome, message, by: this.id };
      },
    });
    const { coordinator } = this;
    const receiver: FrameReceiver = {
      payloadFor: () => {
        throw new ProtocolError('BAD_FRAME');
      },
      data: () => undefined,
      message: (message) => this.guard(() => coordinator.serverMessage(0, message)),
      closed: () => undefined,
    };
    far.setReceiver(this.awake(receiver));
    this.ofServer.set(0, far);
    coordinator.serverJoined(0, far);
    cluster.commits(this, coordinator);
    return near;
  }

  private guard(act: () => void): void {
    if (this.isDead) return;
    try {
      act();
    } catch (error) {
      if (error instanceof ProtocolError) throw error;
      this.errors.push(String((error as Error).stack));
    }
  }

  private end(why: string): void {
    this.over = why;
    this.shard.end();
    for (const connection of this.connections) connection.close(new ProtocolError('NOT_PRIMARY', why));
  }

  private async dial(address: Address): Promise<Connection> {
    const connection = await this.cluster.dial(address.serverId);
    this.connections.add(connection);
    const setReceiver = connection.setReceiver.bind(connection);
    connection.setReceiver = (receiver) => setReceiver(this.awake(receiver));
    return connection;
  }
}
