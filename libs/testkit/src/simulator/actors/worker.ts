/**
 * A worker process: takes step tasks with the loop that apps/worker runs, sits in runs with the session that apps/worker runs, and
 * computes tiny steps.
 *
 *   idle ── step task ──> SeatSession (Member or AsyncMember, ServerLinks) over SimCompute ── ended or given up ──> idle
 */
import { Member } from '@paceline/exchange';
import { SeatSession, parameterBytes } from '@paceline/hosting';
import { SeatLoop, SHUTDOWN_LEAVE_MS } from '@paceline/hosting';
import type { StepTaskJob } from '@paceline/control-plane';
import type { Cluster } from '../cluster.js';
import { TermFence, WorkerConnection } from '../checks/fences.js';
import { addressOf } from '../world/network.js';
import { SimProcess } from '../world/process.js';
import { TinyCompute, type SimCompute } from './compute.js';
import { AsyncCompute } from './async-compute.js';

const CONNECT_DEADLINE_MS = 2_000;

interface SimEngine {
  readonly fingerprint: string;
  /** Examples that it does in a second, where the run wants to know. */
  readonly speed?: number;
}

const TINY: SimEngine = { fingerprint: 'tiny' };

export class SimWorker {
  readonly process: SimProcess;
  private readonly seats: SeatLoop<SeatSession<SimCompute>>;
  /** Milliseconds of a replica step. */
  stepMs: readonly [number, number];
  /** The compute thread stands still. */
  hangs = false;
  engine = TINY;
  /** Gradients whose memory was not given back. */
  nodesInUse = 0;

  constructor(
    readonly id: string,
    host: string,
    private readonly cluster: Cluster,
  ) {
    this.process = new SimProcess(cluster.world, id, host, (error) => cluster.crashed(this.process, error));
    this.stepMs = cluster.stepMs;
    const { redis } = cluster;
    this.seats = new SeatLoop<SeatSession<SimCompute>>({
      queue: redis.queue<StepTaskJob>('step-task', this.process),
      controlPlane: redis.controlPlane(this.process),
      workerId: id,
      clock: this.process,
      start: (job) => this.sit(job),
      told: (what, { seat, incarnation }) => cluster.world.note(`${id}: seat ${seat}/${incarnation} ${what}`),
    });
    this.process.after(0, () => this.seats.start());
  }

  /** The seat that it has now. */
  get session(): SeatSession<SimCompute> | undefined {
    return this.seats.present;
  }

  /** SIGTERM to its seat alone: the process stays. */
  leave(): void {
    this.session?.leave('the worker is shutting down', SHUTDOWN_LEAVE_MS);
  }

  private async sit(job: StepTaskJob): Promise<SeatSession<SimCompute>> {
    const { process, cluster } = this;
    const { world, run, plant } = cluster;
    // Loading the engine takes a while.
    await new Promise<void>((resolve) => process.after(world.random.between(1, 200), resolve));
    // The compute thread goes with its session; the next one is another.
    this.hangs = false;
    const parameters = new ArrayBuffer(parameterBytes(job.spec, run.layout));
    const compute = cluster.items ? new AsyncCompute(job.attempt, this, cluster, parameters) : new TinyCompute(this, cluster, parameters);
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
        const connection = await cluster.network.connect(process, addressOf(server), CONNECT_DEADLINE_MS);
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
