/**
 * A worker process: takes step tasks with the loop that apps/worker runs, sits in runs with the session that apps/worker runs, and
 * computes tiny steps.
 *
 *   idle ── step task ──> SeatSession (Member or AsyncMember, ServerLinks) over SimCompute ── ended or given up ──> idle
 *
 * In a run whose workers hold the shards it hosts one of them, and perhaps a standby, beside its seat (WorkerShards).
 */
import { Member, type CancelTimer, type Connection } from '@paceline/exchange';
import { SeatSession, StandbyQueue, WorkerQueues, parameterBytes, type HostedRun } from '@paceline/hosting';
import { SeatLoop, SHUTDOWN_LEAVE_MS } from '@paceline/hosting';
import type { PlacementJob, ServerAddress, StepTaskJob } from '@paceline/control-plane';
import type { Cluster } from '../cluster.js';
import { TermFence, WorkerConnection } from '../checks/fences.js';
import { addressOf } from '../world/network.js';
import { SimProcess } from '../world/process.js';
import type { Part } from './part.js';
import { endProcess, HEARTBEAT_MS, heartbeatOf, PORT, HolderPlace, type ShardHolder } from './server.js';
import { TinyCompute, type SimCompute } from './compute.js';
import { AsyncCompute } from './async-compute.js';

const CONNECT_DEADLINE_MS = 2_000;

interface SimEngine {
  readonly fingerprint: string;
  /** Examples that it does in a second, where the run wants to know. */
  readonly speed?: number;
}

const TINY: SimEngine = { fingerprint: 'tiny' };
/** For the last word of a coordinator that lives, as apps/worker/src/worker-seats.ts waits for it. */
const LEAVE_GONE_MS = 1_000;

export class SimWorker implements ShardHolder {
  readonly process: SimProcess;
  private readonly seats: SeatLoop<SeatSession<SimCompute>>;
  /** Milliseconds of a replica step. */
  stepMs: readonly [number, number];
  /** The compute thread stands still. */
  hangs = false;
  engine = TINY;
  /** Gradients whose memory was not given back. */
  nodesInUse = 0;
  isEnding = false;
  /** In a run without parameter servers. */
  private readonly shards: WorkerShards | undefined;

  constructor(
    readonly id: string,
    host: string,
    readonly cluster: Cluster,
    /** Its place in `cluster.servers`, where workers hold the shards. */
    readonly slot: number,
  ) {
    this.process = new SimProcess(cluster.world, id, host, (error) => cluster.crashed(this.process, error));
    this.stepMs = cluster.stepMs;
    const { redis, run } = cluster;
    if (run.shape.isMirrored) this.shards = new WorkerShards(this, (job) => this.leaveRun(job));
    this.seats = new SeatLoop<SeatSession<SimCompute>>({
      queue: this.shards?.queues.seats ?? redis.queue<StepTaskJob>('step-task', this.process),
      controlPlane: redis.controlPlane(this.process),
      workerId: id,
      clock: this.process,
      start: (job) => this.sit(job),
      told: (what, { seat, incarnation }) => cluster.world.note(`${id}: seat ${seat}/${incarnation} ${what}`),
    });
    this.process.after(0, () => {
      this.seats.start();
      this.shards?.start();
    });
  }

  get hosted(): Part | undefined {
    return this.shards?.hosted;
  }

  /** SIGTERM, as apps/worker/src/worker-process.ts ends: while its shards write a last checkpoint, its seat still computes the round. */
  shutdown(): void {
    this.isEnding = true;
    endProcess(this, async () => {
      await this.shards?.stop(`worker ${this.id} was stopped`);
      await this.seats.stop();
      await this.shards?.close();
    });
  }

  /** The seat that it has now. */
  get session(): SeatSession<SimCompute> | undefined {
    return this.seats.present;
  }

  /** SIGTERM to its seat alone: the process stays. */
  leave(): void {
    this.session?.leave('the worker is shutting down', SHUTDOWN_LEAVE_MS);
  }

  private leaveRun({ attempt }: Pick<StepTaskJob, 'attempt'>): void {
    if (this.session?.job.attempt === attempt) this.session.leave('its shard is gone', LEAVE_GONE_MS);
  }

  private async sit(job: StepTaskJob): Promise<SeatSession<SimCompute>> {
    const { process, cluster } = this;
    const { world, run, plant } = cluster;
    // Loading the engine takes a while.
    await new Promise<void>((resolve) => process.after(world.random.between(1, 200), resolve));
    // The compute thread goes with its session; the next one is another.
    this.hangs = false;
    const parameters = new ArrayBuffer(parameterBytes(job.spec, run.layout));
    const compute = cluster.items
      ? new AsyncCompute(job.attempt, this, cluster, parameters)
      : new TinyCompute(job.attempt, this, cluster, parameters);
    const terms = job.servers.map(() => new TermFence());
    const session: SeatSession<SimCompute> = new SeatSession<SimCompute>({
      job,
      workerId: this.id,
      host: process.host,
      clock: process,
      compute,
      parameters,
      layout: run.layout,
      speed: this.engine.speed,
      connect: async (server) => {
        const connection =
          this.shards?.connectHere(server) ?? (await cluster.network.connect(process, addressOf(server), CONNECT_DEADLINE_MS));
        return new WorkerConnection(connection, terms[server.index]!, { name: this.id, tables: () => [session.member.table] }, cluster);
      },
      log: { error: (_, message) => world.note(`${this.id}: ${message}`) },
    });
    const { member } = session;
    if (member instanceof Member) plant?.member?.(member, cluster);
    else plant?.asyncMember?.(member, cluster);
    cluster.tables.push(member.table);
    session.begin();
    return session;
  }
}

/**
 * The shards that a worker holds in a run without parameter servers, wired as apps/worker/src/shard-host.ts wires them: a place for a shard of its own,
 * and one for the standby of the next shard. Which placement and which seat it takes is decided by WorkerQueues and StandbyQueue of libs/hosting.
 */
class WorkerShards {
  readonly queues: WorkerQueues;
  private readonly places: readonly [own: HolderPlace, standby: HolderPlace];
  private readonly stopBeating: CancelTimer;

  constructor(
    private readonly holder: ShardHolder,
    /** The shard of its own is gone: the seat that goes with it is of no use. */
    onGone: (job: PlacementJob) => void,
  ) {
    const { process, cluster } = holder;
    const { redis } = cluster;
    this.queues = new WorkerQueues({
      stepTasks: redis.queue<StepTaskJob>('step-task', process),
      placements: redis.queue<PlacementJob>('worker-placement', process),
      controlPlane: redis.controlPlane(process),
      hosted: () => this.job,
      holdsShards: true,
    });
    const standbys = new StandbyQueue({
      hosted: () => this.job,
      hasStandby: (job) => this.standbysOf(job).length > 0,
      nowMs: () => process.now(),
    });
    const left = (job: PlacementJob): void => {
      for (const run of this.standbysOf(job)) if (!run.hasStarted) run.drop();
      onGone(job);
    };
    const connectHere = (address: ServerAddress) => this.connectHere(address);
    this.places = [
      new HolderPlace(holder, { port: PORT, queue: this.queues.placements, connectHere, onGone: left }),
      new HolderPlace(holder, { port: PORT + 1, queue: standbys, connectHere }),
    ];
    this.stopBeating = process.every(HEARTBEAT_MS, () => this.heartbeat());
  }

  start(): void {
    this.heartbeat();
    for (const { loop } of this.places) loop.start();
  }

  /** The shard of its own, or what is left of the standby of another. */
  get hosted(): Part | undefined {
    const [own, standby] = this.places;
    return own.hosted ?? standby.hosted;
  }

  /** A connection to a place of this worker, inside the process; undefined for those of others. */
  connectHere(address: ServerAddress): Connection | undefined {
    if (address.serverId !== this.holder.process.name) return undefined;
    return this.places.find((place) => place.address.port === address.port)?.connectHere();
  }

  /** Its attempts take a last checkpoint, or hand over to a standby, as long as there is time. */
  async stop(why: string): Promise<void> {
    this.queues.stop();
    await Promise.all(this.places.map(({ loop }) => loop.stop(why)));
  }

  async close(): Promise<void> {
    const { controlPlane } = this.places[0];
    this.stopBeating();
    await controlPlane.sendReport({ kind: 'goodbye', role: 'worker', id: this.holder.process.name }).catch(() => undefined); // Redis is away: the api misses its heartbeats
    await Promise.all(this.places.map((place) => place.close()));
  }

  /** The placement of the shard of its own: the newest, while that of an attempt that is over still lets go. */
  private get job(): PlacementJob | undefined {
    return [...this.places[0].loop.runs.values()].at(-1)?.job;
  }

  private standbysOf({ runId, attempt }: PlacementJob): HostedRun[] {
    return [...this.places[1].loop.runs.values()].filter(({ job, isOver }) => job.runId === runId && job.attempt === attempt && !isOver);
  }

  private heartbeat(): void {
    void this.places[0].controlPlane.sendReport(heartbeatOf(this.holder, 'worker')).catch(() => undefined); // the next one is newer
  }
}
