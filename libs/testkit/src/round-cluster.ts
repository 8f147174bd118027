/**
 * The real Coordinator, Shard and Member machines in one process over in-process connections, with a tiny replica step in
 * place of an engine. For tests of the protocol that want hundreds of rounds and kills at chosen moments in a second.
 */
import {
  COORDINATOR_ROWS,
  Coordinator,
  MEMBER_ROWS,
  SHARD_ROWS,
  Journal,
  Member,
  Shard,
  ShardLink,
  acquireRegion,
  memoryPair,
  type CoordinatorOptions,
  type Connection,
  type GradientNode,
  type TwoPhaseOptions,
} from '@paceline/exchange';
import { Arena } from '@paceline/kernels';
import {
  LeafReduction,
  ReductionTree,
  createLayout,
  judgeRound,
  maximalNodes,
  replicaRows,
  shardChunks,
  split,
  validNode,
  type ClipRules,
  type Layout,
} from '@paceline/learning';
import { ProtocolError, type Message } from '@paceline/protocol';
import { RATE, STATE, TRAINABLE, tinyModel, tinyStep } from './tiny-model.js';
import { patient } from './patience.js';
import { TurnClock } from './turn-clock.js';

export interface RoundClusterOptions {
  readonly replicas: number;
  readonly servers: number;
  readonly rounds: number;
  /** Examples of a round. */
  readonly examples: number;
  /** Servers that never come: the last ones. */
  readonly absentServers?: number;
  readonly cuts?: CoordinatorOptions['cuts'];
  /** Workers of any engine take part; by their speed they get replicas. */
  readonly mixedEngines?: boolean;
  /** The engine that the run is pinned to from the start. */
  readonly fingerprint?: string;
  /** Begin with what another cluster has cut. */
  readonly restore?: TakenCut;
  readonly twoPhase?: { readonly backupReplicas: number; readonly clip?: ClipRules; readonly skipsNonFinite?: boolean };
  readonly startWorkers?: number;
  /** The cut is never written. */
  readonly holdsCuts?: boolean;
}

/** A checkpoint of the tests: the parameters by chunk. */
export interface TakenCut {
  readonly generation: number;
  readonly chunks: Map<number, Float32Array>;
}

export class TestMember {
  readonly machine: Member;
  readonly connections: Connection[] = [];
  /** Steps that this member was asked for: `round/replica`. */
  readonly computed: string[] = [];
  /** Called before a node is handed over; return false to keep it (a member that hangs or dies here). */
  onNode: (round: number, lo: number, hi: number) => boolean = () => true;
  frozen = false;
  /** A value that spoils the gradient of (round, replica). */
  spoil: (round: number, replica: number) => number | undefined = () => undefined;
  /** Lateness of what the coordinator says to this member, in milliseconds; order is kept. */
  messageDelayMs = 0;
  /** Parameter chunks that never arrive. */
  dropsData: (generation: number, chunk: number) => boolean = () => false;
  /** Everything that a server said, for tests that say it again. */
  readonly heard: Message[] = [];
  private readonly flat = [new Float32Array(TRAINABLE + STATE), new Float32Array(TRAINABLE + STATE)];

  constructor(
    readonly id: string,
    readonly seat: number,
    private readonly cluster: RoundCluster,
    readonly engine: { readonly fingerprint: string; readonly speed?: number } = { fingerprint: 'test' },
  ) {
    const { layout, options } = cluster;
    const owners = new Map<number, number>();
    for (let s = 0; s < options.servers; s++) for (const chunk of shardChunks(layout, options.servers, s)) owners.set(chunk, s);
    this.machine = new Member({
      id,
      attempt: 1,
      servers: options.servers,
      totalRounds: options.rounds,
      now: () => cluster.now(),
      chunks: layout.chunks.map(({ index, offset, length }) => ({ index, offset, length, server: owners.get(index)! })),
      store: { bytes: (generation) => new Uint8Array(this.flat[generation & 1]!.buffer) },
      compute: {
        step: (round, replicas) => void setImmediate(() => this.step(round, replicas)),
        committed: () => undefined,
        evaluate: (generation, blocks) => {
          for (const { from, to } of blocks) this.machine.evaluated(generation, from, to, to - from, [(to - from) * 0.5, to - from]);
        },
      },
      onEnd: () => undefined,
    });
  }

  connect(server: number): Connection {
    const [near, far] = memoryPair();
    this.connections[server] = near;
    near.setReceiver({
      payloadFor: (header) => this.machine.payloadFor(header),
      data: (header) => !this.frozen && !this.dropsData(header.round, header.chunk) && this.machine.data(header),
      message: (message) => {
        if (this.messageDelayMs > 0) this.cluster.clock.later(this.messageDelayMs, () => this.hear(server, near, message));
        else this.hear(server, near, message);
      },
      closed: () => this.machine.detach(server, near),
    });
    this.cluster.admit(this, server, far);
    return near;
  }

  private hear(server: number, near: Connection, message: Message): void {
    if (this.frozen) return;
    this.heard.push(message);
    if (message.type === 'welcome') this.machine.attach(server, near);
    if (message.type !== 'refused') this.machine.message(server, message);
    else this.cluster.refusals.push(message.code);
  }

  /** As SIGKILL: all sockets close at once. */
  kill(): void {
    this.frozen = true;
    for (const connection of this.connections) connection.close();
  }

  private step(round: number, replicas: readonly number[]): void {
    const { options } = this.cluster;
    const weights = this.flat[round & 1]!.slice();
    const compute = (lo: number, hi: number): Float32Array => {
      if (hi - lo === 1) {
        const out = new Float32Array(weights.length);
        const { from, to } = replicaRows(options.examples, options.replicas, lo);
        tinyStep(weights, round, lo, to - from, out);
        out[7] = this.spoil(round, lo) ?? out[7]!;
        this.computed.push(`${round}/${lo}`);
        this.machine.contribution(round, lo, to - from, [to - from, 0]);
        return out;
      }
      const middle = split(lo, hi);
      const left = compute(lo, middle);
      const right = compute(middle, hi);
      return left.map((value, i) => value + right[i]!);
    };
    const nodes = options.twoPhase?.backupReplicas
      ? replicas.map((replica) => ({ lo: replica, hi: replica + 1 }))
      : maximalNodes(options.replicas, new Set(replicas));
    for (const { lo, hi } of nodes) {
      if (this.frozen) return;
      const sum = compute(lo, hi);
      if (!this.onNode(round, lo, hi)) return;
      const node: GradientNode = { round, lo, hi, bytes: new Uint8Array(sum.buffer), release: () => void this.cluster.nodesReleased++ };
      this.cluster.nodesMade++;
      this.machine.node(node);
    }
  }
}

export class RoundCluster {
  /** All clusters of this test file, so that a last test can name the table rows that no test has taken. */
  static readonly all: RoundCluster[] = [];
  readonly layout: Layout = createLayout(tinyModel);
  readonly arena = Arena.create({ initialBytes: 1 << 20, maximumBytes: 1 << 28 });
  readonly coordinator: Coordinator;
  readonly shards: Shard[];
  readonly journal: Journal;
  readonly members: TestMember[] = [];
  readonly refusals: string[] = [];
  readonly drops: string[] = [];
  nodesMade = 0;
  nodesReleased = 0;
  /** Lateness of what the coordinator says to each shard, in milliseconds; order is kept. */
  shardDelayMs: number[] = [];
  /** Servers that send no heartbeats. */
  readonly silentServers = new Set<number>();
  outcome: { outcome: string; message: string } | undefined;
  readonly cuts = new Map<number, TakenCut>();
  /** `round/chunk` of every application of the optimizer. */
  readonly applications: string[] = [];
  readonly clock = new TurnClock();

  constructor(readonly options: RoundClusterOptions) {
    RoundCluster.all.push(this);
    this.journal = new Journal({ now: () => this.now() });
    this.coordinator = new Coordinator({
      attempt: 1,
      replicas: options.replicas,
      servers: options.servers,
      evalExamples: 1200,
      journal: this.journal,
      now: () => this.now(),
      schedule: {
        totalRounds: options.rounds,
        examplesIn: () => options.examples,
        epochOf: () => 0,
        replicaExamples: (_, replica) => {
          const { from, to } = replicaRows(options.examples, options.replicas, replica);
          return to - from;
        },
      },
      ...(options.cuts ? { cuts: options.cuts } : {}),
      fingerprint: options.fingerprint,
      mixedEngines: options.mixedEngines ?? false,
      startWorkers: options.startWorkers,
      firstRound: options.restore?.generation ?? 0,
      firstLedger: { examples: (options.restore?.generation ?? 0) * options.examples, exceptions: [] },
      ...(options.twoPhase ? { twoPhase: this.decider(options.twoPhase) } : {}),
      publishCut: (cut) => {
        if (!options.holdsCuts) this.coordinator.cutPublished(cut.generation, { bytes: 1, sha256: 'ab', loss: cut.loss });
      },
      collectWeights: () => this.coordinator.weightsCollected({}),
      onOver: (outcome, message) => void (this.outcome = { outcome, message }),
    });
    this.shards = Array.from({ length: options.servers - (options.absentServers ?? 0) }, (_, index) => this.makeShard(index));
  }

  now(): number {
    return this.clock.nowMs;
  }

  /** Lets time pass and deadlines fire. */
  advance(ms: number): void {
    this.clock.advance(ms);
    this.shards.forEach(
      (_, index) => this.silentServers.has(index) || this.coordinator.serverMessage(index, { type: 'heartbeat', progress: 0 }),
    );
    this.coordinator.tick();
    for (const member of this.members) member.machine.tick();
  }

  join(id = `w${this.members.length}`, seat = this.members.length, engine?: TestMember['engine']): TestMember {
    const member = new TestMember(id, seat, this, engine);
    this.members.push(member);
    for (let server = 0; server < this.shards.length; server++) member.connect(server);
    return member;
  }

  admit(member: TestMember, server: number, connection: Connection): void {
    const shard = this.shards[server]!;
    try {
      if (server === 0) {
        this.coordinator.memberJoined(
          {
            type: 'hello',
            token: '',
            run: '',
            role: 'worker',
            id: member.id,
            host: member.id,
            seat: member.seat,
            n: 0,
            ...member.engine,
            layout: '',
          },
          connection,
        );
      }
    } catch (error) {
      connection.close(error as ProtocolError);
      return;
    }
    const link = shard.attach(member.id, connection, true);
    connection.setReceiver({
      payloadFor: (header) => shard.payloadFor(link, header),
      data: (header) => shard.data(link, header),
      message: (message) => {
        if (message.type === 'pull') shard.onPull(link, message.generation, message.chunk);
        else if (server === 0) this.coordinator.memberMessage(member.id, message);
      },
      closed: ({ description }) => {
        shard.detach(link);
        if (server === 0) this.coordinator.memberClosed(member.id, connection, description);
      },
    });
  }

  /** `machine.row` of every row taken so far. */
  takenRows(): string[] {
    const tables = [
      this.coordinator.table,
      ...this.shards.map((shard) => shard.table),
      ...this.members.map((member) => member.machine.table),
    ];
    return tables.flatMap((table) => [...table.taken.keys()].map((row) => `${table.name}.${row}`));
  }

  /** Waits for the end of the attempt, whatever it is. @throws Error past the deadline, saying what was waited for */
  async finished(deadlineMs = 10_000): Promise<void> {
    const deadline = Date.now() + patient(deadlineMs);
    while (!this.outcome) {
      if (Date.now() > deadline)
        throw new Error(
          `not over after ${deadlineMs} ms: round ${this.coordinator.round}, waiting for ${this.coordinator.waitingFor() ?? this.members.map((m) => m.machine.waitingFor()).join('; ')}`,
        );
      await this.clock.turn();
    }
  }

  async round(k: number): Promise<void> {
    const deadline = Date.now() + patient(10_000);
    while (this.coordinator.round < k && !this.outcome) {
      if (Date.now() > deadline) throw new Error(`round ${k} did not come: round ${this.coordinator.round}`);
      await this.clock.turn();
    }
  }

  /** The weights of the last generation as a member has them. */
  weightsOf(member: TestMember): Float32Array {
    return new Float32Array(new Uint8Array(member.machine['options'].store.bytes(this.options.rounds)).slice().buffer);
  }

  private decider({ backupReplicas, clip = {}, skipsNonFinite = false }: NonNullable<RoundClusterOptions['twoPhase']>): TwoPhaseOptions {
    return {
      backupReplicas,
      decide: (_round, replicas, chunks) => {
        const examples = replicas.reduce((sum, replica) => {
          const { from, to } = replicaRows(this.options.examples, this.options.replicas, replica);
          return sum + to - from;
        }, 0);
        const { isFinite, scale } = judgeRound(chunks, examples, clip);
        if (!isFinite && !skipsNonFinite) return 'non-finite';
        return { skip: !isFinite, examples, scale, variables: [] };
      },
    };
  }

  private makeShard(shardIndex: number): Shard {
    const { layout, options, arena } = this;
    const chunks = shardChunks(layout, options.servers, shardIndex).map((i) => ({ index: i, length: layout.chunks[i]!.length, arena }));
    const [near, far] = memoryPair();
    const shard = new Shard({
      index: shardIndex,
      attempt: 1,
      replicas: options.replicas,
      chunks,
      initial: chunks.map(({ index, length }) => {
        const region = acquireRegion(arena, length);
        const restored = options.restore?.chunks.get(index);
        if (restored) region.floats.set(restored);
        else arena.kernels.fill(region.pointer, length, 0);
        return region;
      }),
      firstRound: options.restore?.generation ?? 0,
      onCut: (generation, regions) => {
        const cut = this.cuts.get(generation) ?? { generation, chunks: new Map<number, Float32Array>() };
        this.cuts.set(generation, cut);
        regions.forEach((region, i) => {
          cut.chunks.set(chunks[i]!.index, region.floats.slice());
          region.release();
        });
        const file = { server: shardIndex, key: `shard-${shardIndex}`, bytes: 1, sha256: '00'.repeat(32), tensors: [] };
        near.sendMessage({ type: 'cut-written', generation, file }, { attempt: 1, term: 0, view: 0, round: 0 });
      },
      createReduction: (ops) =>
        options.twoPhase?.backupReplicas ? new LeafReduction(options.replicas, ops) : new ReductionTree(options.replicas, ops),
      ...(options.twoPhase
        ? {
            twoPhase: {
              hasBackups: options.twoPhase.backupReplicas > 0,
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
      isValidNode: (lo, hi) => validNode(options.replicas, lo, hi),
      update: (chunk, round, paramIn, paramOut, gradient, decision) => {
        this.applications.push(`${round}/${chunk.index}`);
        const scale = Math.fround(Math.fround(1 / (decision?.examples ?? options.examples)) * Math.fround(decision?.scale ?? 1));
        if (layout.chunks[chunk.index]!.section === 'state')
          arena.kernels.scaleInto(paramOut.pointer, gradient.pointer, chunk.length, scale);
        else arena.kernels.sgd(paramIn.pointer, paramOut.pointer, gradient.pointer, chunk.length, RATE, scale);
      },
      tellCoordinator: (message) => near.sendMessage(message, { attempt: 1, term: 0, view: 0, round: 0 }),
      onDropped: (reason) => void this.drops.push(reason),
    });
    const link = new ShardLink('coordinator', near, false);
    near.setReceiver({
      payloadFor: () => new Uint8Array(0),
      data: () => undefined,
      message: (message) => {
        const delay = this.shardDelayMs[shardIndex] ?? 0;
        if (delay > 0) this.clock.later(delay, () => void shard.fromCoordinator(link, message));
        else shard.fromCoordinator(link, message);
      },
      closed: () => undefined,
    });
    far.setReceiver({
      payloadFor: () => new Uint8Array(0),
      data: () => undefined,
      message: (message) => this.coordinator.serverMessage(shardIndex, message),
      closed: ({ description }) => this.coordinator.serverLost(shardIndex, description),
    });
    this.coordinator.serverJoined(shardIndex, far);
    return shard;
  }
}

const finite = (value: number): number => (Number.isFinite(value) ? value : 0);

/** Rows of plan two-phase: round-decisions.test.ts takes them. */
export const DECISION_ROWS: readonly string[] = [
  ...['chunkGathered', 'replicaComplete', 'include', 'decision', 'decisionRepeated'].map((row) => `shard.${row}`),
  ...['replicaComplete', 'scalars'].map((row) => `coordinator.${row}`),
];

/** Rows of checkpoints and stops: round-cuts.test.ts takes them, everything else is taken by round-cluster.test.ts. */
export const CUT_ROWS: readonly string[] = [
  'shard.nonFinite',
  ...['cutWritten', 'cutSettled', 'stop', 'stopped', 'nonFinite'].map((row) => `coordinator.${row}`),
];

/** Work that stands still: stall.test.ts of the simulator takes these rows. */
export const STALL_ROWS: readonly string[] = [
  ...['', 'token-'].flatMap((mode) => ['askedAgain', 'undelivered', 'stalled'].map((row) => `${mode}coordinator.${row}`)),
  ...['member.toldAgain', 'token-member.toldAgain'],
];

/** Validation while training: the simulator takes these rows. */
export const VALIDATION_ROWS: readonly string[] = ['coordinator.validation', 'coordinator.validated'];

/** `machine.row` of every row that no cluster of this test file has taken. */
export function rowsNeverTaken(): string[] {
  const taken = new Set(RoundCluster.all.flatMap((cluster) => cluster.takenRows()));
  const rows = Object.entries({ shard: SHARD_ROWS, coordinator: COORDINATOR_ROWS, member: MEMBER_ROWS });
  return rows.flatMap(([machine, table]) => Object.keys(table).map((row) => `${machine}.${row}`)).filter((row) => !taken.has(row));
}
