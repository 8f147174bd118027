/**
 * Coordinators, shards with standbys, members and an arbiter in one process: the machines and links of the product over in-process
 * connections, with processes that can be killed, frozen and thawed at a chosen frame. The tiny model of round-cluster.ts.
 */
import { REPLICATION_ROWS, STANDBY_ROWS, memoryPair, type Connection, type Coordinator } from '@paceline/exchange';
import { arbitrate, type Lead } from '@paceline/control-plane';
import { Arena } from '@paceline/kernels';
import { createLayout, type ClipRules, type Layout } from '@paceline/learning';
import { StandbyServer } from './standby-server.js';
import { StandbyWorker } from './standby-worker.js';
import { tinyModel } from './tiny-model.js';
import { patient } from './patience.js';

export interface StandbyClusterOptions {
  readonly replicas: number;
  readonly servers: number;
  readonly rounds: number;
  readonly examples: number;
  readonly workers: number;
  /** Indices with a standby; all without it. */
  readonly standbys?: readonly number[];
  readonly silentMs?: number;
  readonly askAtMostMs?: number;
  /** Plan two-phase; the gradient of `spoiledRound` has NaN, and the round is left out. */
  readonly twoPhase?: { readonly clip?: ClipRules; readonly spoiledRound?: number };
}

export interface Address {
  readonly index: number;
  readonly serverId: string;
}

/** Everything that a server process says or applies, before it happens: return false to swallow it. Used to kill at a chosen point. */
export type Watch = (server: StandbyServer, what: string, round: number) => void;

export class StandbyCluster {
  /** All clusters of a test file, so that a last test can name the rows that none has taken. */
  static readonly all: StandbyCluster[] = [];
  readonly layout: Layout = createLayout(tinyModel);
  readonly arena = Arena.create({ initialBytes: 1 << 20, maximumBytes: 1 << 28 });
  readonly servers: StandbyServer[] = [];
  readonly workers: StandbyWorker[] = [];
  readonly primaries: Address[];
  readonly standbys: Address[];
  leads: Lead[];
  outcome: { outcome: string; message: string; by: string } | undefined;
  watch: Watch = () => undefined;
  /** Milliseconds until the arbiter answers; undefined while it is away. */
  answerMs: number | undefined = 1;
  /** What was asked, in the order in which it was decided. */
  readonly asked: string[] = [];
  /** Commits by round: who said them. */
  readonly committed: { by: string; round: number; atMs: number }[] = [];
  /** What the control plane has stored of the journal: everything that was committed when a coordinator was killed, less `unstored`. */
  unstoredRounds = 0;
  private readonly timers: NodeJS.Timeout[];

  constructor(readonly options: StandbyClusterOptions) {
    StandbyCluster.all.push(this);
    const paired = options.standbys ?? Array.from({ length: options.servers }, (_, index) => index);
    this.primaries = Array.from({ length: options.servers }, (_, index) => ({ index, serverId: `p${index}` }));
    this.standbys = paired.map((index) => ({ index, serverId: `s${index}` }));
    this.leads = this.primaries.map(({ index, serverId }) => ({
      index,
      term: 1,
      primary: serverId,
      standby: this.standbys.find((standby) => standby.index === index)?.serverId ?? null,
    }));
    for (const { index, serverId } of this.primaries) this.servers.push(new StandbyServer(serverId, index, false, this));
    for (const { index, serverId } of this.standbys) this.servers.push(new StandbyServer(serverId, index, true, this));
    for (const server of this.servers) server.place.start();
    for (let i = 0; i < options.workers; i++) this.workers.push(new StandbyWorker(`w${i}`, i, this));
    this.timers = [
      setInterval(() => this.servers.forEach((server) => server.tick()), 5),
      setInterval(() => {
        this.servers.forEach((server) => server.heartbeat());
        this.workers.forEach((worker) => {
          worker.machine.heartbeat(worker.computed);
          worker.machine.tick();
          worker.links.tick();
        });
      }, 50),
    ];
  }

  server(id: string): StandbyServer {
    return this.servers.find((server) => server.id === id)!;
  }

  async dial(serverId: string): Promise<Connection> {
    await new Promise((resolve) => setImmediate(resolve));
    const server = this.server(serverId);
    if (server.isDead) throw new Error('connection refused');
    const [near, far] = memoryPair();
    server.accept(far);
    return near;
  }

  ask(server: StandbyServer, want: 'drop' | 'promote'): void {
    const answerMs = this.answerMs;
    if (answerMs === undefined) return;
    setTimeout(() => {
      const lead = arbitrate(this.leads, { index: server.index, serverId: server.id, want })!;
      this.asked.push(`${server.id} ${want}`);
      this.leads = this.leads.map((other) => (other.index === server.index ? lead : other));
      // As the field of the control hash: whoever polls sees it.
      for (const reader of this.servers) if (reader.index === server.index) reader.whenAwake(() => reader.place.answered(lead));
    }, answerMs);
  }

  stored(): { n: number; ledgerFrom: number } {
    const journals = this.servers.flatMap(({ journal }) => (journal ? [journal] : []));
    const last = Math.max(-1, ...this.committed.map(({ round }) => round));
    return { n: Math.max(0, ...journals.map(({ lastNumber }) => lastNumber)), ledgerFrom: Math.max(0, last + 1 - this.unstoredRounds) };
  }

  /** Watches the commits of a coordinator. */
  commits(server: StandbyServer, coordinator: Coordinator): void {
    const machine = coordinator as unknown as { moveOn(): void };
    const moveOn = machine.moveOn.bind(coordinator);
    machine.moveOn = () => {
      const { round } = coordinator;
      server.happens('commits', round);
      if (server.isDead) return;
      this.committed.push({ by: server.id, round, atMs: performance.now() });
      moveOn();
      server.happens('committed', round);
    };
  }

  async until(what: string, condition: () => boolean, deadlineMs = 10_000): Promise<void> {
    for (const deadline = Date.now() + patient(deadlineMs); !condition(); await new Promise((resolve) => setImmediate(resolve)))
      if (Date.now() > deadline) throw new Error(`waited ${deadlineMs} ms for ${what}: ${this.describe()}`);
  }

  finished(deadlineMs = 10_000): Promise<void> {
    return this.until('the end', () => this.outcome !== undefined, deadlineMs);
  }

  stop(): void {
    for (const timer of this.timers) clearInterval(timer);
    for (const worker of this.workers) worker.links.close();
    for (const server of this.servers) server.kill();
  }

  describe(): string {
    const servers = this.servers.map(
      ({ id, isDead, shard, place, coordinator, over, errors }) =>
        `${id}${isDead ? ' dead' : ''} ${(place.replication ?? place.standby)?.table.state ?? ''} round ${shard.round} ${shard.table.state} ${coordinator ? `coordinates ${coordinator.round} (${coordinator.waitingFor() ?? 'training'})` : ''} ${over ?? ''} ${errors.join(' ')}`,
    );
    const workers = this.workers.map(
      ({ id, machine, givenUp }) => `${id} round ${machine.round} waits for ${machine.waitingFor()} ${givenUp ?? ''}`,
    );
    return [...servers, ...workers, JSON.stringify(this.outcome), this.asked.join(', ')].join('\n');
  }

  takenRows(): string[] {
    const tables = this.servers.flatMap(({ shard, place, coordinator }) => [
      ...[shard.table, place.replication?.table, place.standby?.table, coordinator?.table],
    ]);
    return [...tables, ...this.workers.map(({ machine }) => machine.table)].flatMap((table) =>
      table ? [...table.taken.keys()].map((row) => `${table.name}.${String(row)}`) : [],
    );
  }
}

/** Rows of standbys and takeovers: standby.test.ts takes them, everything else is taken by the tests of RoundCluster. */
export const STANDBY_CLUSTER_ROWS: readonly string[] = [
  ...['replica', 'promoted', 'toldAgain'].map((row) => `shard.${row}`),
  ...['takenOver', 'staleTerm'].map((row) => `member.${row}`),
  ...['serverAway', 'serverTakenOver', 'standbyLink', 'succeeded', 'regathered', 'committedElsewhere'].map((row) => `coordinator.${row}`),
  ...Object.keys(REPLICATION_ROWS).map((row) => `replication.${row}`),
  ...Object.keys(STANDBY_ROWS).map((row) => `standby.${row}`),
];
