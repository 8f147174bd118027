/**
 * The real TokenCoordinator, TokenShard and TokenMember machines in one process over in-process connections, with a tiny replica step in
 * place of an engine: modes async and ssp with kills at chosen moments, slow workers, and links that lose, repeat and delay.
 */
import {
  Journal,
  ShardLink,
  TokenCoordinator,
  TokenMember,
  TokenShard,
  acquireRegion,
  memoryPair,
  type Connection,
  type CoordinatorOptions,
  type NumberedEntry,
  type Token,
  type TokenCoordinatorOptions,
} from '@paceline/exchange';
import { Arena } from '@paceline/kernels';
import {
  applyTokenUpdate,
  createLayout,
  createOptimizer,
  replicaRows,
  shardChunks,
  stateChange,
  type Layout,
  type TokenUpdateOptions,
} from '@paceline/learning';
import { ProtocolError, type FrameHeader, type Message } from '@paceline/protocol';
import { RATE, STATE, TRAINABLE, tinyModel, tinyStep } from './tiny-model.js';
import { patient } from './patience.js';
import { TurnClock } from './turn-clock.js';

export interface TokenClusterOptions extends Partial<TokenUpdateOptions> {
  readonly mode: 'async' | 'ssp';
  readonly replicas: number;
  readonly servers: number;
  readonly rounds: number;
  /** Examples of a round. */
  readonly examples: number;
  /** Of the last round, where it is ragged. */
  readonly lastExamples?: number;
  readonly stalenessBound?: number;
  readonly nonFinite?: TokenCoordinatorOptions['nonFinite'];
  readonly cuts?: CoordinatorOptions['cuts'];
  /** Begin with what another cluster has cut: the flat vector. */
  readonly restore?: { readonly generation: number; readonly flat: Float32Array };
}

/** An update as a shard has applied it. */
export interface AppliedUpdate extends Token {
  readonly server: number;
  readonly staleness: number;
  readonly step: number;
}

const keyOf = ({ round, replica }: Token): string => `${round}/${replica}`;

export class TestTokenMember {
  readonly machine: TokenMember;
  readonly connections: Connection[] = [];
  /** Tokens that this member has begun to compute. */
  readonly computed: string[] = [];
  /** Called before a gradient is handed over; return false to keep it (a member that hangs or dies here). */
  onGradient: (token: Token) => boolean = () => true;
  /** Time that a token takes. */
  computeMs = 0;
  frozen = false;
  isNotFinite: (token: Token) => boolean = () => false;
  /** What happens to a gradient chunk on its way to a server. */
  onPush: (server: number, header: { round: number; nodeLo: number }) => 'send' | 'lose' | 'repeat' = () => 'send';
  /** Lateness of everything that this member sends to a server, in milliseconds; order is kept. */
  sendDelayMs: number[] = [];
  readonly waits: string[] = [];
  readonly store = new Float32Array(TRAINABLE + STATE);
  ended: string | undefined;

  constructor(
    readonly id: string,
    readonly seat: number,
    private readonly cluster: TokenCluster,
  ) {
    const { layout, options } = cluster;
    this.machine = new TokenMember({
      id,
      attempt: 1,
      servers: options.servers,
      chunks: layout.chunks.map(({ index, offset, length }) => ({ index, offset, length, server: cluster.ownerOf(index) })),
      store: new Uint8Array(this.store.buffer),
      compute: {
        token: (token) => {
          if (this.computeMs > 0) this.cluster.clock.later(this.computeMs, () => this.compute(token));
          else setImmediate(() => this.compute(token));
        },
        evaluate: (generation, blocks) => {
          setImmediate(() => {
            for (const { from, to } of blocks)
              if (!this.frozen) this.machine.evaluated(generation, from, to, to - from, [(to - from) * 0.5, to - from]);
          });
        },
      },
      onEnd: (outcome) => void (this.ended = outcome),
    });
  }

  connect(server: number): Connection {
    const [near, far] = memoryPair();
    this.connections[server] = near;
    const faulty = this.faulty(server, near);
    near.setReceiver({
      payloadFor: (header) => this.machine.payloadFor(header),
      data: (header) => !this.frozen && this.machine.data(header),
      message: (message) => this.hear(server, faulty, message),
      closed: () => this.machine.detach(server, faulty),
    });
    this.cluster.admit(this, server, far);
    return near;
  }

  connectAll(): void {
    for (let server = 0; server < this.cluster.options.servers; server++) this.connect(server);
  }

  /** As SIGKILL: all sockets close at once. */
  kill(): void {
    this.frozen = true;
    for (const connection of this.connections) connection.close();
  }

  private hear(server: number, connection: Connection, message: Message): void {
    if (this.frozen) return;
    if (message.type === 'refused') return void this.cluster.refusals.push(message.code);
    if (message.type === 'welcome') this.machine.attach(server, connection);
    if (message.type === 'tokens' && message.waitsFor !== null) this.waits.push(message.waitsFor);
    this.machine.message(server, message);
  }

  private compute(token: Token): void {
    const { cluster } = this;
    if (this.frozen) return;
    this.computed.push(keyOf(token));
    cluster.begun(this.id, token);
    const count = cluster.examplesOf(token.round, token.replica);
    const out = new Float32Array(this.store.length);
    tinyStep(this.store, token.round, token.replica, count, out);
    stateChange(out.subarray(TRAINABLE), this.store.subarray(TRAINABLE), count);
    if (!this.onGradient(token)) return;
    if (this.isNotFinite(token)) return this.machine.nonFinite(token.round, token.replica);
    this.machine.contribution(token.round, token.replica, count, [count, 0]);
    cluster.gradientsMade++;
    const { round, replica } = token;
    const bytes = new Uint8Array(out.buffer);
    this.machine.node({ round, lo: replica, hi: replica + 1, bytes, release: () => void cluster.gradientsReleased++ });
  }

  /** The connection as the machine sees it: what it sends may be lost, repeated, delayed. */
  private faulty(server: number, near: Connection): Connection {
    const act = (send: () => void): void => {
      const delayMs = this.sendDelayMs[server] ?? 0;
      if (delayMs > 0) this.cluster.clock.later(delayMs, send);
      else send();
    };
    return {
      kind: near.kind,
      remote: near.remote,
      challenge: near.challenge,
      get queuedBytes() {
        return near.queuedBytes;
      },
      get receivedBytes() {
        return near.receivedBytes;
      },
      get isOpen() {
        return near.isOpen;
      },
      setReceiver: (receiver) => near.setReceiver(receiver),
      sendMessage: (message, numbers) => act(() => near.sendMessage(message, numbers)),
      sendData: (header, payload, onFlushed) => {
        const fate = this.onPush(server, header);
        if (fate === 'lose') return void setImmediate(() => onFlushed?.());
        if (fate === 'repeat') act(() => near.sendData(header, payload));
        act(() => near.sendData(header, payload, onFlushed));
      },
      close: (error) => near.close(error),
    };
  }
}

export class TokenCluster {
  /** All clusters of this test file, so that a last test can name the table rows that no test has taken. */
  static readonly all: TokenCluster[] = [];
  readonly layout: Layout = createLayout(tinyModel);
  readonly arena = Arena.create({ initialBytes: 1 << 20, maximumBytes: 1 << 28 });
  readonly coordinator: TokenCoordinator;
  readonly shards: TokenShard[];
  readonly journal: Journal;
  readonly members: TestTokenMember[] = [];
  readonly refusals: string[] = [];
  readonly drops: string[] = [];
  readonly applied: AppliedUpdate[] = [];
  /** Rounds by which each begun token was ahead of the slowest replica's clock. */
  readonly aheads: number[] = [];
  /** Flat vectors of checkpoints that were cut. */
  readonly cuts: { generation: number; flat: Float32Array }[] = [];
  /** Lateness of what the coordinator says to each shard, in milliseconds; order is kept. */
  shardDelayMs: number[] = [];
  /** Checkpoints of which the last part is never written. */
  holdsCuts = false;
  gradientsMade = 0;
  gradientsReleased = 0;
  outcome: { outcome: string; message: string } | undefined;
  private readonly optimizer = createOptimizer({ name: 'sgd', learningRate: RATE });
  readonly clock = new TurnClock();

  constructor(readonly options: TokenClusterOptions) {
    TokenCluster.all.push(this);
    this.journal = new Journal({ now: () => this.now() });
    const owners = new Set(this.layout.chunks.map(({ index }) => this.ownerOf(index)));
    this.coordinator = new TokenCoordinator({
      attempt: 1,
      replicas: options.replicas,
      servers: options.servers,
      shards: [...owners],
      evalExamples: 1200,
      mode: options.mode,
      stalenessBound: options.stalenessBound ?? 4,
      nonFinite: options.nonFinite ?? 'fail',
      journal: this.journal,
      now: () => this.now(),
      ...(options.cuts ? { cuts: options.cuts } : {}),
      ...(options.restore ? { firstRound: options.restore.generation } : {}),
      schedule: {
        totalRounds: options.rounds,
        examplesIn: (round) => this.examplesIn(round),
        epochOf: () => 0,
        replicaExamples: (round, replica) => this.examplesOf(round, replica),
      },
      publishCut: ({ generation }) => this.coordinator.cutPublished(generation, { bytes: 1, sha256: 'ab'.repeat(32), loss: null }),
      collectWeights: () => this.coordinator.weightsCollected({}),
      onOver: (outcome, message) => void (this.outcome = { outcome, message }),
    });
    this.shards = Array.from({ length: options.servers }, (_, index) => this.makeShard(index));
  }

  now(): number {
    return this.clock.nowMs;
  }

  /** Lets time pass and deadlines fire; everybody who is not frozen says that it lives. */
  advance(ms: number): void {
    this.clock.advance(ms);
    for (let index = 0; index < this.shards.length; index++) this.coordinator.serverMessage(index, { type: 'heartbeat', progress: 0 });
    for (const { id, frozen } of this.members)
      if (!frozen) this.coordinator.memberMessage(id, { type: 'heartbeat', progress: Math.round(this.now()) });
    this.coordinator.tick();
  }

  ownerOf(chunk: number): number {
    for (let server = 0; server < this.options.servers; server++)
      if (shardChunks(this.layout, this.options.servers, server).includes(chunk)) return server;
    throw new Error(`chunk ${chunk} has no owner`);
  }

  examplesIn(round: number): number {
    const { rounds, examples, lastExamples } = this.options;
    return round === rounds - 1 ? (lastExamples ?? examples) : examples;
  }

  examplesOf(round: number, replica: number): number {
    const { from, to } = replicaRows(this.examplesIn(round), this.options.replicas, replica);
    return to - from;
  }

  join(id = `w${this.members.length}`, seat = this.members.length): TestTokenMember {
    const member = new TestTokenMember(id, seat, this);
    this.members.push(member);
    member.connectAll();
    return member;
  }

  admit(member: TestTokenMember, server: number, connection: Connection): void {
    const shard = this.shards[server]!;
    const { id, seat } = member;
    try {
      const hello = {
        type: 'hello',
        token: '',
        run: '',
        role: 'worker',
        id,
        host: id,
        seat,
        n: 0,
        fingerprint: 'test',
        layout: '',
      } as const;
      if (server === 0) this.coordinator.memberJoined(hello, connection);
    } catch (error) {
      return connection.close(error as ProtocolError);
    }
    const link = shard.attach(id, connection, true);
    connection.setReceiver({
      payloadFor: (header) => shard.payloadFor(link, header),
      data: (header) => shard.data(link, header),
      message: (message) => {
        if (message.type === 'fetch') shard.onFetch(link, message.round, message.replica);
        else if (server === 0) this.coordinator.memberMessage(id, message);
      },
      closed: ({ description }) => {
        shard.detach(link);
        if (server === 0) this.coordinator.memberClosed(id, connection, description);
      },
    });
  }

  /** A worker begins to compute a token. */
  begun(_id: string, token: Token): void {
    let slowest = Infinity;
    for (let replica = 0; replica < this.options.replicas; replica++) {
      let clock = 0;
      while (clock < this.options.rounds && this.coordinator.marks.has({ round: clock, replica })) clock++;
      slowest = Math.min(slowest, clock);
    }
    this.aheads.push(token.round - slowest);
  }

  /** The parameters as the shards have them. */
  weights(): Float32Array {
    const flat = new Float32Array(TRAINABLE + STATE);
    this.shards.forEach((shard, server) => {
      shardChunks(this.layout, this.options.servers, server).forEach((chunk, place) =>
        flat.set(shard['parameters']['regions'][place]!.floats, this.layout.chunks[chunk]!.offset),
      );
    });
    return flat;
  }

  /** Everything that the journal holds. */
  entries(): NumberedEntry[] {
    return this.journal.batch(100_000);
  }

  events(type: string): Record<string, unknown>[] {
    return this.entries().flatMap((entry) => (entry.kind === 'event' && entry.type === type ? [entry.data] : []));
  }

  /** `machine.row` of every row taken so far. */
  takenRows(): string[] {
    const tables = [this.coordinator.table, ...this.shards.map(({ table }) => table), ...this.members.map(({ machine }) => machine.table)];
    return tables.flatMap((table) => [...table.taken.keys()].map((row) => `${table.name}.${row}`));
  }

  /** Waits for a condition, turn by turn: the clock moves. @throws Error past the deadline, saying what everybody waits for */
  async until(what: string, condition: () => boolean, deadlineMs = 20_000): Promise<void> {
    for (const deadline = Date.now() + patient(deadlineMs); !condition(); await this.clock.turn()) {
      if (Date.now() > deadline) {
        const waits = this.members.map(({ id, machine }) => `${id} for ${machine.waitingFor()}`).join('; ');
        throw new Error(
          `${what} did not come: ${this.coordinator.marks.count} tokens counted, ${this.coordinator.waitingFor() ?? waits}, ${JSON.stringify(this.outcome)}`,
        );
      }
    }
  }

  /** Waits for the end of the attempt, whatever it is. */
  finished(deadlineMs = 20_000): Promise<void> {
    return this.until('the end', () => this.outcome !== undefined, deadlineMs);
  }

  private makeShard(index: number): TokenShard {
    const { layout, options, arena } = this;
    const chunks = shardChunks(layout, options.servers, index).map((i) => ({ index: i, length: layout.chunks[i]!.length, arena }));
    const [near, far] = memoryPair();
    const shard = new TokenShard({
      index,
      attempt: 1,
      chunks,
      keepsFetched: (options.delayCompensation ?? 0) > 0,
      ...(options.restore ? { firstRound: options.restore.generation } : {}),
      plan: {
        replicas: options.replicas,
        totalRounds: options.rounds,
        replicaExamples: (round, replica) => this.examplesOf(round, replica),
      },
      initial: chunks.map(({ index: chunk, length }) => {
        const region = acquireRegion(arena, length);
        const { offset } = layout.chunks[chunk]!;
        region.floats.set(options.restore?.flat.subarray(offset, offset + length) ?? new Float32Array(length));
        return region;
      }),
      update: (chunk, { token, step, staleness, fetched }, paramIn, paramOut, gradient) => {
        const { section } = layout.chunks[chunk.index]!;
        if (chunk === chunks[0]) this.applied.push({ ...token, server: index, staleness, step });
        const { pointer: grad } = gradient;
        const memory = { section, paramIn: paramIn.pointer, paramOut: paramOut.pointer, grad, slots: [], count: chunk.length };
        applyTokenUpdate(
          arena.kernels,
          this.optimizer,
          { stalenessScaledRate: options.stalenessScaledRate ?? false, delayCompensation: options.delayCompensation ?? 0 },
          {
            ...memory,
            examples: this.examplesOf(token.round, token.replica),
            step,
            staleness,
            fetched: fetched?.pointer,
          },
        );
      },
      onCut: (generation, regions) => {
        let cut = this.cuts.find((known) => known.generation === generation);
        if (!cut) this.cuts.push((cut = { generation, flat: new Float32Array(TRAINABLE + STATE) }));
        regions.forEach((region, place) => {
          cut.flat.set(region.floats, layout.chunks[chunks[place]!.index]!.offset);
          region.release();
        });
        const file = { server: index, key: `${index}`, bytes: 1, sha256: 'ab'.repeat(32), tensors: [] };
        if (!this.holdsCuts) tell({ type: 'cut-written', generation, file });
      },
      tellCoordinator: (message) => tell(message),
      onDropped: (reason) => void this.drops.push(reason),
    });
    const tell = (message: Message): void => near.sendMessage(message, { attempt: 1, term: 0, view: 0, round: 0 });
    const link = new ShardLink('coordinator', near, false);
    near.setReceiver({
      payloadFor: () => new Uint8Array(0),
      data: () => undefined,
      message: (message) => {
        const delay = this.shardDelayMs[index] ?? 0;
        if (delay > 0) this.clock.later(delay, () => void shard.fromCoordinator(link, message));
        else shard.fromCoordinator(link, message);
      },
      closed: () => undefined,
    });
    far.setReceiver({
      payloadFor: (header: FrameHeader) => new Uint8Array(header.length),
      data: () => undefined,
      message: (message) => this.coordinator.serverMessage(index, message),
      closed: ({ description }) => this.coordinator.serverLost(index, description),
    });
    this.coordinator.serverJoined(index, far);
    return shard;
  }
}
