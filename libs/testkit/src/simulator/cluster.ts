/**
 * A whole run in one process: apis with PostgreSQL and Redis, servers and workers, on a simulated network under virtual time. Every
 * machine in it is one that the apps import.
 *
 *   SimApi × A ── SimPostgres, SimRedis ── placements, seats, journal ──> SimServer × S (PlacementLoop, Gate, HostedRun) ═══ SimWorker × N
 *                                                       Invariants: looked at after every event
 */
import {
  type Coordinator,
  Rounds,
  WorkItems,
  Shard,
  type Member,
  type Standby,
  type AsyncMember,
  type AsyncShard,
} from '@paceline/exchange';
import type { GradientEncoder } from '@paceline/codecs';
import type { HostedRun, Windows } from '@paceline/hosting';
import type { LocalUpdates } from '@paceline/learning';
import type { ProtocolError } from '@paceline/protocol';
import { Checks, type TakenRows } from './checks/checks.js';
import type { ControlFields, PreparedJob } from '@paceline/control-plane';
import { Control } from './actors/control.js';
import { Network, type NetworkWeather } from './world/network.js';
import type { SimProcess } from './world/process.js';
import type { Part } from './actors/part.js';
import { Reference } from './checks/reference.js';
import { SimApi } from './actors/api.js';
import { SimPostgres, type Rows } from './world/postgres.js';
import { SimRedis } from './world/redis.js';
import { SimServer, type ShardHolder } from './actors/server.js';
import { SharedDisk, type DiskPlant } from './world/disk.js';
import { SimWorker } from './actors/worker.js';
import { StoredRun } from './stored/stored-run.js';
import { AsyncInvariants } from './checks/async-invariants.js';
import { TinyRun, type RunShape } from './run/tiny-run.js';
import { Invariants } from './checks/invariants.js';
import { KeptOfReplicas } from './checks/kept-of-replicas.js';
import { keepsOfReplicas } from './run/replica-shape.js';
import { RunInvariants } from './checks/run-invariants.js';
import { World } from './world/world.js';

/** A deliberate mistake, put into the machines as they are made: the simulator's own test. */
export interface Plant {
  member?(member: Member, cluster: Cluster): void;
  rounds?(rounds: Rounds, cluster: Cluster): void;
  shard?(shard: Shard, cluster: Cluster): void;
  standby?(standby: Standby, cluster: Cluster): void;
  asyncMember?(member: AsyncMember, cluster: Cluster): void;
  workItems?(items: WorkItems, cluster: Cluster): void;
  asyncShard?(shard: AsyncShard, cluster: Cluster): void;
  encoder?(encoder: GradientEncoder, cluster: Cluster): void;
  local?(updates: LocalUpdates, cluster: Cluster): void;
  readonly disk?: DiskPlant;
  /** Gate and receivers take what is of an older attempt. */
  readonly believesOldAttempts?: boolean;
  /** Replaces the jobs that an api enqueues. */
  outbox?(jobs: readonly PreparedJob[], api: string): readonly PreparedJob[];
  /** Replaces the fields that an api writes into the control hash. */
  control?(fields: ControlFields, attempt: number): ControlFields;
}

export interface ClusterOptions {
  readonly seed: number;
  readonly shape: RunShape;
  readonly workers: number;
  /** Api processes that run at the same time. */
  readonly apis: number;
  readonly weather: NetworkWeather;
  readonly stepMs: readonly [number, number];
  readonly stepDeadlineMs: number;
  readonly windows?: Windows | undefined;
  readonly plant?: Plant | undefined;
}

/** Refusals that honest peers may meet under faults. */
const EXPECTED_REFUSALS = new Set([
  'SEAT_TAKEN', // a seat that was offered twice, or came back late
  'SILENT_PEER',
  'RUN_OVER',
  'STALE_FENCE',
  'RUN_UNKNOWN', // a placement that has not begun, or has gone
  'NOT_A_MEMBER', // lost by the step deadline, or reported failed
  'HELLO_EXPECTED', // a HELLO that did not come in time
  'SLOW_CONSUMER',
  'NOT_PRIMARY', // the other server of a shard leads it
  'STALE_TERM',
]);
const AFTER_A_BIT_FLIP = new Set(['BAD_FRAME', 'BAD_CHECKSUM']);

export class Cluster {
  readonly world: World;
  readonly network: Network;
  readonly checks: Checks;
  readonly run: TinyRun;
  readonly reference: Reference;
  readonly disk: SharedDisk;
  readonly redis: SimRedis;
  readonly postgres: SimPostgres;
  readonly control: Control;
  readonly invariants: Invariants;
  readonly runInvariants: RunInvariants;
  /** In modes async and ssp. */
  readonly items: AsyncInvariants | undefined;
  /** Where replicas keep something between rounds. */
  readonly kept: KeptOfReplicas | undefined;
  /** Processes that hold shards: parameter servers, or the workers of a run without. */
  readonly servers: ShardHolder[] = [];
  readonly workers: SimWorker[] = [];
  readonly apis: SimApi[] = [];
  /** Attempts' parts, dead ones too, until the seed is over. */
  readonly hosted: Part[] = [];
  readonly tables: TakenRows[] = [];
  /** Why connections of servers were closed, by code. */
  readonly refusals = new Map<string, number>();
  readonly runId = '00000000-0000-4000-8000-000000000001';
  readonly plant: Plant | undefined;
  readonly stepMs: readonly [number, number];
  readonly stepDeadlineMs: number;
  readonly windows: Windows | undefined;
  /** Why this seed's run may fail: a fault that the protocol does not survive was injected. */
  mayFail: string | undefined;
  /** Why a published checkpoint may be unreadable: its bits were flipped. */
  mayLoseCheckpoints: string | undefined;
  /** The weights that were collected are the last ones, and not the best that the run was to end with. */
  endsWithLast = false;
  /** How attempts ended, by the row of the table of libs/control-plane. */
  readonly ends = new Map<string, number>();
  /** Moves of the run's status, `FROM>TO`. */
  readonly moves = new Map<string, number>();
  private workersMade = 0;
  private apisMade = 0;

  constructor(readonly options: ClusterOptions) {
    this.world = new World(options.seed);
    this.checks = new Checks(this.world);
    this.network = new Network(this.world, options.weather);
    this.run = new TinyRun(options.shape, options.stepDeadlineMs);
    this.reference = new Reference(this.run);
    this.plant = options.plant;
    this.stepMs = options.stepMs;
    this.stepDeadlineMs = options.stepDeadlineMs;
    this.windows = options.windows;
    this.disk = new SharedDisk(this);
    this.invariants = new Invariants(this);
    this.runInvariants = new RunInvariants(this);
    this.kept = keepsOfReplicas(options.shape) ? new KeptOfReplicas(this) : undefined;
    this.items = options.shape.items && new AsyncInvariants(this, options.shape.items);
    if (options.shape.items?.nonFinite === 'fail' && options.shape.items.nanShare > 0) this.mayFail = 'gradients with NaN';
    this.world.afterEvent = () => this.invariants.afterEvent();
    this.redis = new SimRedis(this);
    this.postgres = new SimPostgres(this);
    this.control = new Control(this);
    this.control.begin();
    for (let i = 0; i < options.apis; i++) this.startApi();
    const { servers, standby, isMirrored } = options.shape;
    for (let slot = 0; slot < servers * (1 + standby) && !isMirrored; slot++) this.startServer(slot);
    for (let i = 0; i < options.workers; i++) this.startWorker();
  }

  /** A supervisor starts it again, as another process. */
  restartServer(slot: number): void {
    const { world } = this;
    world.schedule(world.random.between(100, 3_000), `server process ${slot} restarts`, () => {
      if (!this.servers[slot]!.process.isAlive) this.startHolder(slot);
    });
  }

  startApi(): SimApi {
    const api = new SimApi(`api${this.apisMade++}`, this);
    this.apis.push(api);
    return api;
  }

  /** A supervisor starts another in place of one that has died. */
  restartApi(): void {
    const { world } = this;
    world.schedule(world.random.between(100, 3_000), 'an api restarts', () => {
      if (this.liveApis().length < this.options.apis) this.startApi();
    });
  }

  liveApis(): SimApi[] {
    return this.apis.filter(({ process }) => process.isAlive);
  }

  private startHolder(slot: number): void {
    if (this.run.shape.isMirrored) this.startWorker(undefined, slot);
    else this.startServer(slot);
  }

  startServer(slot: number): SimServer {
    const before = this.servers[slot] as SimServer | undefined;
    const server = new SimServer(slot, `server-host-${slot}`, (before?.generation ?? -1) + 1, this);
    this.servers[slot] = server;
    return server;
  }

  /** For one transaction. */
  stored(rows: Rows, wallMs: number): StoredRun {
    const { runId, runInvariants, world } = this;
    return new StoredRun({ runId, rows, wallMs, random: () => world.random.float(), watch: runInvariants });
  }

  /** The server process that holds this shard of the newest attempt, as long as it lives. */
  serverOf(index: number, isStandby = false): ShardHolder | undefined {
    return this.partOf(index, isStandby)?.server;
  }

  /** The newest part of this shard. */
  partOf(index: number, isStandby = false): Part | undefined {
    return this.hosted.findLast((part) => part.index === index && part.isStandby === isStandby);
  }

  /** The part of the newest attempt whose coordinator leads, once there is one. */
  get coordinatorPart(): Part | undefined {
    const parts = this.hosted.filter((part) => part.coordinator && part.attempt === this.control.attempt);
    const started = parts.filter(({ run }) => run.hasStarted).sort((a, b) => b.coordinator!.numbers().term - a.coordinator!.numbers().term);
    return started[0] ?? parts.at(-1);
  }

  /** @param slot where workers hold the shards: whose successor it is; that of one that has died without it */
  startWorker(host?: string, slot = this.freeSlot()): SimWorker {
    const number = this.workersMade++;
    const worker = new SimWorker(`w${number}`, host ?? `worker-host-${number}`, this, slot);
    this.workers.push(worker);
    if (this.run.shape.isMirrored) this.servers[slot] = worker;
    return worker;
  }

  private freeSlot(): number {
    const dead = this.servers.findIndex(({ process }) => !process.isAlive);
    return dead === -1 ? this.servers.length : dead;
  }

  liveWorkers(): SimWorker[] {
    return this.workers.filter((worker) => worker.process.isAlive);
  }

  /** True when these are the bits of the chunk after `round` rounds of the attempt: those of the undisturbed run, or those that were taken. */
  holdsRound(attempt: number, round: number, chunk: number, values: Float32Array): boolean {
    if (this.items) return this.items.heldAtCheckpoint(attempt, round, chunk, values);
    return this.reference.holds(round, this.run.layout.chunks[chunk]!, values);
  }

  /** Where timing chooses what counts, the reference follows the choices of the present attempt: of one that is over, and moves still, it knows none. */
  isFollowed({ attempt }: Pick<Part, 'attempt'>): boolean {
    return (this.run.shape.gradient.backupReplicas === 0 && !this.kept) || attempt === this.control.attempt;
  }

  // ---- what the processes tell ----

  /** An error that is no ProtocolError left a machine. */
  crashed(process: SimProcess, error: Error): void {
    this.checks.fail('crash', `${process.name}: ${error.stack ?? error.message}`);
  }

  refused(by: string, error: ProtocolError | undefined): void {
    if (!error) return;
    this.refusals.set(error.code, (this.refusals.get(error.code) ?? 0) + 1);
    // Where fences are not looked at, peers are refused for what they said to another attempt.
    if (EXPECTED_REFUSALS.has(error.code) || this.plant?.believesOldAttempts) return;
    if (error.code === 'HELLO_REPLAYED' && this.network.fired.has('replay a connection')) return;
    if (error.code === 'FINGERPRINT_MISMATCH' && this.workers.some(({ engine }) => engine !== this.workers[0]!.engine)) return;
    if (AFTER_A_BIT_FLIP.has(error.code) && this.network.fired.has('bit flip in a frame')) return;
    // A standby that lacks a COMMIT, and whose primary has nothing to send again, breaks off.
    if (error.code === 'BAD_ROUND' && this.network.fired.has('eaten frame')) return;
    this.checks.fail('refusal', `${by}: ${error.message}`);
  }

  /** A server has begun to hold a part of an attempt. */
  partMade(part: Part): void {
    const { shard } = part;
    this.hosted.push(part);
    this.tables.push(shard.table);
    this.kept?.watch(part);
    if (shard instanceof Shard) this.plant?.shard?.(shard, this);
    else this.plant?.asyncShard?.(shard, this);
  }

  coordinatorMade(part: Part, { table, plan }: Coordinator): void {
    this.tables.push(table);
    this.world.note(`${part.name} coordinates`);
    if (plan instanceof Rounds) this.plant?.rounds?.(plan, this);
    if (plan instanceof WorkItems) this.plant?.workItems?.(plan, this);
  }

  placeMade({ place }: HostedRun): void {
    if (place.standby) this.plant?.standby?.(place.standby, this);
    for (const machine of [place.replication, place.standby]) if (machine) this.tables.push(machine.table);
  }

  /** Says what every machine waits for, for the report of a run that does not end. */
  waitingFor(): string[] {
    const lines: string[] = [];
    for (const part of this.hosted) {
      if (part.attempt < this.control.attempt) continue;
      const { shard, coordinator, server } = part;
      const life = server.process.isAlive ? (server.process.isFrozen ? ' (stopped)' : '') : ' (dead)';
      lines.push(
        `${server.process.name}${life}: ${part.name}${part.over ? ', over' : ''}, shard ${shard.table.state} round ${shard.round} view ${shard.view}, lacks replicas [${shard instanceof Shard && shard.table.state === 'GATHERING' ? shard.missingReplicas().join(' ') : ''}], waits for ${part.run.place.waitingFor() ?? 'nothing else'}`,
      );
      if (coordinator) {
        const seats = coordinator.seats().map((seat) => `${seat.workerId}=[${seat.replicas.join(' ')}]`);
        lines.push(
          `${server.process.name}: coordinator ${coordinator.table.state} round ${coordinator.round} view ${coordinator.view}, waits for ${coordinator.waitingFor() ?? 'the round'}; ${seats.join(' ')}`,
        );
      }
    }
    for (const worker of this.liveWorkers()) {
      const member = worker.session?.member;
      const life = worker.process.isFrozen ? ' (stopped)' : '';
      lines.push(
        member
          ? `${worker.id}${life}: member ${member.table.state} round ${member.round} view ${member.view} [${member.replicas.join(' ')}], waits for ${member.waitingFor()}`
          : `${worker.id}${life}: waits for a step task`,
      );
    }
    lines.push(...this.controlPlaneWaits());
    return lines;
  }

  private controlPlaneWaits(): string[] {
    const { rows, isAway } = this.postgres;
    const control = this.redis.control(this.runId);
    const open = rows.tasks.values().filter(({ state }) => state !== 'CLOSED');
    const places = rows.servers.values().filter(({ attempt }) => attempt === this.control.attempt);
    return [
      `run ${this.control.status} in attempt ${this.control.attempt}: ${this.control.reason}`,
      `places ${places.map(({ index, incarnation, serverId }) => `${index}/m${incarnation}=${serverId ?? '–'}`).join(' ')}; seats ${open.map(({ seat, incarnation, state }) => `${seat}/${incarnation} ${state}`).join(' ')}`,
      `apis ${this.apis.map(({ name, process }) => `${name}${process.isAlive ? (process.isFrozen ? ' (stopped)' : '') : ' (dead)'}`).join(' ')}; PostgreSQL ${isAway ? 'away' : 'here'}, Redis ${this.redis.isAway ? 'away' : 'here'} with ${this.redis.jobCount} jobs and ${this.redis.reportCount} reports; control ${JSON.stringify(control).slice(0, 300)}`,
    ];
  }
}
