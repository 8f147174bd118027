/**
 * A worker process: takes step tasks with the loop that apps/worker runs, joins with the real Member over the real ServerLinks, and
 * computes tiny steps. The wiring of a session follows apps/worker/src/run-session.ts line by line.
 *
 *   idle ── step task ──> session: Member + ServerLinks + compute ── ended or given up ──> idle
 */
import { Member, ServerLinks, type ComputePort, type MemberOptions, type Outcome, type TokenMember } from '@paceline/exchange';
import { SeatLoop, SHUTDOWN_LEAVE_MS, type Seat, type SeatEnd, type ServerAddress, type StepTaskJob } from '@paceline/jobs';
import { maximalNodes, shardChunks, split } from '@paceline/learning';
import type { Cluster } from './cluster.js';
import { TermFence, WorkerConnection } from './fences.js';
import { addressOf } from './network.js';
import { SimProcess } from './process.js';
import { createTokenMember, type TokenCompute } from './token-compute.js';

const HEARTBEAT_MS = 500;
const TICK_MS = 100;
const CONNECT_DEADLINE_MS = 2_000;

export class SimWorker {
  readonly process: SimProcess;
  private readonly seats: SeatLoop<Session>;
  /** Milliseconds of a replica step. */
  stepMs: readonly [number, number];
  /** The compute thread stands still. */
  hangs = false;

  constructor(
    readonly id: string,
    host: string,
    private readonly cluster: Cluster,
  ) {
    this.process = new SimProcess(cluster.world, id, host, (error) => cluster.crashed(this.process, error));
    this.stepMs = cluster.stepMs;
    const { redis } = cluster;
    this.seats = new SeatLoop<Session>({
      ...{ queue: redis.queue<StepTaskJob>('step-task', this.process), controlPlane: redis.controlPlane(this.process) },
      ...{ workerId: id, clock: this.process },
      start: (job) => this.sit(job),
      told: (what, { seat, n }) => cluster.world.note(`${id}: seat ${seat}/${n} ${what}`),
    });
    this.process.after(0, () => this.seats.start());
  }

  /** Where it sits now. */
  get session(): Session | undefined {
    return this.seats.present;
  }

  /** SIGTERM to its seat alone: the process stays. */
  leave(): void {
    this.session?.leave('the worker is shutting down', SHUTDOWN_LEAVE_MS);
  }

  private async sit(job: StepTaskJob): Promise<Session> {
    const { world } = this.cluster;
    // Loading the engine takes a while.
    await new Promise<void>((resolve) => this.process.after(world.random.between(1, 200), resolve));
    // The compute thread goes with its session; the next one is another.
    this.hangs = false;
    return new Session(job, this, this.cluster);
  }
}

export class Session implements Seat {
  readonly ended: Promise<SeatEnd>;
  private finish!: (end: SeatEnd) => void;
  readonly member: Member | TokenMember;
  private readonly links: ServerLinks<ServerAddress>;
  private readonly cancel: (() => void)[] = [];
  private readonly compute: TinyCompute | TokenCompute;
  private isOver = false;

  constructor(
    readonly task: StepTaskJob,
    worker: SimWorker,
    private readonly cluster: Cluster,
  ) {
    this.ended = new Promise((resolve) => (this.finish = resolve));
    const { run } = cluster;
    const { process } = worker;
    const owners = new Map<number, number>();
    const servers = run.shape.servers;
    for (let server = 0; server < servers; server++)
      for (const chunk of shardChunks(run.layout, servers, server)) owners.set(chunk, server);
    const options = {
      ...{ id: worker.id, attempt: task.attempt, servers },
      chunks: run.layout.chunks.map(({ index, offset, length }) => ({
        index,
        byteOffset: offset * 4,
        byteLength: length * 4,
        server: owners.get(index)!,
      })),
      onEnd: (outcome: Outcome, message: string) => this.end({ kind: 'ended', message: `${outcome}: ${message}` }),
    };
    const part = cluster.tokens ? createTokenMember(options, worker, cluster) : createMember(options, worker, cluster);
    const { member, compute } = part;
    this.member = member;
    const terms = Array.from({ length: servers }, () => new TermFence());
    this.compute = compute;
    this.links = new ServerLinks({
      ...{ servers: task.servers, ...(task.standbys ? { standbys: task.standbys } : {}) },
      attempt: task.attempt,
      member,
      clock: process,
      connect: async (server) => {
        const connection = await cluster.network.connect(process, addressOf(server), CONNECT_DEADLINE_MS);
        return new WorkerConnection(connection, terms[server.index]!, { name: worker.id, tables: () => [member.table] }, cluster);
      },
      hello: () => ({
        token: `worker/${task.attempt}`,
        run: task.runId,
        role: 'worker',
        id: worker.id,
        host: process.host,
        seat: task.seat,
        n: task.n,
        fingerprint: 'tiny',
        layout: run.layoutHash,
      }),
      onGivenUp: (code, message, serverIndex) => this.end({ kind: 'given-up', code, message, serverIndex }),
    });
    cluster.tables.push(member.table);
    this.cancel.push(
      process.every(HEARTBEAT_MS, () => member.heartbeat(this.compute.progress)),
      process.every(TICK_MS, () => {
        member.tick();
        this.links.tick();
      }),
    );
    this.links.open();
  }

  get heldSeats(): number {
    return this.member.heldSeats;
  }

  leave(reason: string, deadlineMs: number): void {
    this.member.leave(reason);
    this.cancel.push(
      this.compute.worker.process.after(deadlineMs, () => this.end({ kind: 'ended', message: `left without a word: ${reason}` })),
    );
  }

  /** As an error of the compute thread. */
  failCompute(code: string): void {
    const message = 'planned by the simulator';
    this.member.failed(code, message, this.member.round, -1);
    this.end({ kind: 'given-up', code, message, serverIndex: null });
  }

  private end(end: SeatEnd): void {
    if (this.isOver) return;
    this.isOver = true;
    for (const cancel of this.cancel) cancel();
    this.links.close();
    this.member.end('finished', 'the session is over');
    this.compute.stop();
    this.cluster.world.microtasksWait = true;
    this.finish(end);
  }
}

type SessionOptions = Pick<MemberOptions, 'id' | 'attempt' | 'servers' | 'chunks' | 'onEnd'>;

function createMember(options: SessionOptions, worker: SimWorker, cluster: Cluster): { member: Member; compute: TinyCompute } {
  const { layout, schedule } = cluster.run;
  const halves = [new Uint8Array(layout.totalLength * 4), new Uint8Array(layout.totalLength * 4)];
  const compute = new TinyCompute(worker, cluster, (generation) => new Float32Array(halves[generation & 1]!.buffer));
  const member = new Member({
    ...options,
    totalRounds: schedule.totalRounds,
    store: { bytes: (generation) => halves[generation & 1]! },
    compute,
    now: () => worker.process.now(),
  });
  cluster.plant?.member?.(member, cluster);
  compute.member = member;
  return { member, compute };
}

/** The compute thread: one request after the other, each replica takes its time; nodes are added up as apps/worker/src/replica-steps.ts does. */
class TinyCompute implements ComputePort {
  member!: Member;
  progress = 0;
  private readonly queue: (() => void)[] = [];
  private busy = false;
  private stopped = false;
  private committedRound = -1;

  constructor(
    readonly worker: SimWorker,
    private readonly cluster: Cluster,
    private readonly weights: (generation: number) => Float32Array,
  ) {}

  step(round: number, replicas: readonly number[]): void {
    this.enqueue(() => this.begin(round, replicas));
  }

  evaluate(generation: number, blocks: readonly { from: number; to: number }[]): void {
    for (const { from, to } of blocks)
      this.enqueue(() =>
        this.takeTime(1, () => {
          this.member.evaluated(generation, from, to, to - from, [(to - from) * 0.5, to - from]);
          this.next();
        }),
      );
  }

  committed(round: number): void {
    this.committedRound = Math.max(this.committedRound, round);
  }

  stop(): void {
    this.stopped = true;
  }

  private enqueue(work: () => void): void {
    this.queue.push(work);
    if (!this.busy) this.next();
  }

  private next(): void {
    const work = this.queue.shift();
    this.busy = work !== undefined;
    work?.();
  }

  /** Progress is counted by replica, as apps/worker/src/replica-steps.ts does: a slow worker is not a stuck one. */
  private takeTime(replicas: number, act: () => void): void {
    const [from, to] = this.worker.stepMs;
    const wait = (left: number): void =>
      void this.worker.process.after(this.cluster.world.random.between(from, to), () => {
        if (this.stopped) return;
        if (this.worker.hangs) return wait(left);
        this.progress++;
        if (left > 1) return wait(left - 1);
        act();
      });
    wait(replicas);
  }

  private begin(round: number, replicas: readonly number[]): void {
    // Loaded at once, as the thread copies the parameters into the engine before it starts.
    const weights = this.weights(round).slice();
    const { shape } = this.cluster.run;
    const nodes =
      shape.gradient.backupReplicas > 0
        ? replicas.map((replica) => ({ lo: replica, hi: replica + 1 }))
        : maximalNodes(shape.replicas, new Set(replicas));
    const nextNode = (): void => {
      const node = nodes.shift();
      if (!node) return this.next();
      this.takeTime(node.hi - node.lo, () => {
        if (this.committedRound >= round) return this.next();
        const sum = this.add(weights, round, node.lo, node.hi);
        const bytes = new Uint8Array(sum.buffer);
        this.cluster.nodesInUse++;
        this.member.node({
          ...{ round, lo: node.lo, hi: node.hi, bytes },
          release: () => {
            this.cluster.nodesInUse--;
            // Whoever reads it from here on reads what is no number.
            sum.fill(Number.NaN);
          },
        });
        nextNode();
      });
    };
    nextNode();
  }

  private add(weights: Float32Array, round: number, lo: number, hi: number): Float32Array {
    const { run } = this.cluster;
    if (hi - lo === 1) {
      const out = new Float32Array(weights.length);
      run.workerStep(weights, round, lo, out);
      const examples = run.replicaExamples(round, lo);
      this.member.contribution(round, lo, examples, [examples, 0]);
      return out;
    }
    const middle = split(lo, hi);
    const left = this.add(weights, round, lo, middle);
    const right = this.add(weights, round, middle, hi);
    for (let i = 0; i < left.length; i++) left[i]! += right[i]!;
    return left;
  }
}
