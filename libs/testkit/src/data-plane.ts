/**
 * A data plane without a control plane: real Redis, real parameter servers and workers, and a dispatcher of a hundred lines
 * that places one run after the other, keeps one seat open, and collects the journal. Tests of the round protocol use it
 * where PostgreSQL and the api would only be in the way; tests of the whole use the api.
 */
import { randomUUID } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { describeModel } from '@paceline/engine';
import { runDataOf } from '@paceline/data';
import {
  PLACEMENT_QUEUE,
  REPORT_STREAM,
  STEP_TASK_QUEUE,
  arbitrate,
  highWaterOf,
  leadFieldName,
  TOKEN_AUDIENCE,
  TOKEN_ISSUER,
  ackFieldName,
  ackValue,
  controlKey,
  placementJobId,
  placementJobOf,
  placesOf,
  reportSchema,
  runResultSchema,
  stepTaskJobId,
  type CoordinatorState,
  type Lead,
  type LeadAnswer,
  type JournalEntry,
  type Report,
  type RunResult,
  type ServerAddress,
  type StepTaskJob,
  type TracedProcess,
  type TraceRequest,
} from '@paceline/control-plane';
import { startRedis, type RunningRedis } from '@paceline/runtime';
import { parseRunSpec, shardCount, type ModelDescription, type RunSpec, type RunSpecInput } from '@paceline/spec';
import { Queue } from 'bullmq';
import { Redis } from 'ioredis';
import { SignJWT } from 'jose';
import { startProcess, type TestProcess } from './processes.js';
import { patient } from './patience.js';

const PERIOD_MS = 50;
/** A worker that loads an engine on a busy machine takes its time; who is offered the seat meanwhile only makes it later. One that has died is not waited for. */
const RESEAT_AFTER_MS = 20_000;

export interface RunView {
  readonly id: string;
  spec: RunSpec;
  readonly model: ModelDescription;
  attempt: number;
  /** Journal entries of the present attempt. */
  entries: JournalEntry[];
  readonly reports: Report[];
  state: CoordinatorState | undefined;
  servers: ServerAddress[];
  /** Standbys of the shards that have one. */
  standbys: ServerAddress[];
  leads: Lead[];
  /** Seats that are offered at most. */
  workers: number;
}

export class DataPlane {
  readonly servers: TestProcess[] = [];
  readonly workers: TestProcess[] = [];
  /** Every worker process that was started, by its id. */
  private readonly started = new Map<string, TestProcess>();
  readonly secret = 'a secret of a test that is long enough to be one';
  private readonly runs = new Map<string, RunView>();
  private readonly seats = new Map<
    string,
    { incarnations: Map<number, number>; open: { seat: number; incarnation: number } | undefined; sinceMs: number }
  >();
  private readonly placements: Queue;
  private readonly steps: Queue;
  private readonly redisClient: Redis;
  private lastId = '0';
  private timer: NodeJS.Timeout | undefined;
  private stopped = false;

  private constructor(
    readonly redis: RunningRedis,
    readonly folder: string,
    readonly transport: 'auto' | 'unix' | 'tcp',
    private readonly serverEnv: Readonly<Record<string, string>>,
    private readonly workerEnv: Readonly<Record<string, string>>,
  ) {
    const connect = (): Redis => {
      const client = new Redis(redis.url, { maxRetriesPerRequest: null });
      client.on('error', () => undefined); // tests stop Redis on purpose
      return client;
    };
    this.redisClient = connect();
    this.placements = new Queue(PLACEMENT_QUEUE, { connection: connect() });
    this.steps = new Queue(STEP_TASK_QUEUE, { connection: connect() });
  }

  /** @param options.serverEnv beside the environment that every server of it gets; `workerEnv` the same of workers */
  static async start(options: {
    servers: number;
    workers: number;
    transport?: 'auto' | 'unix' | 'tcp';
    serverEnv?: Readonly<Record<string, string>>;
    workerEnv?: Readonly<Record<string, string>>;
  }): Promise<DataPlane> {
    const folder = await mkdtemp(path.join(tmpdir(), 'paceline-test-'));
    const redis = await startRedis({ dataDir: path.join(folder, 'redis'), temporary: true });
    const plane = new DataPlane(redis, folder, options.transport ?? 'auto', options.serverEnv ?? {}, options.workerEnv ?? {});
    try {
      await Promise.all([
        ...Array.from({ length: options.servers }, () => plane.addServer()),
        ...Array.from({ length: options.workers }, () => plane.addWorker()),
      ]);
    } catch (error) {
      await plane.stop();
      throw error;
    }
    void plane.period();
    return plane;
  }

  async addServer(): Promise<TestProcess> {
    const server = await startProcess(
      'ps',
      {
        REDIS_URL: this.redis.urlOf('ps'),
        PACELINE_TOKEN_SECRET: this.secret,
        PACELINE_DATA_DIR: path.join(this.folder, 'data'),
        PACELINE_SOCKET_DIR: path.join(this.folder, 's'),
        PACELINE_TRANSPORT: this.transport,
        ...this.serverEnv,
      },
      this.folder,
    );
    this.servers.push(server);
    return server;
  }

  async addWorker(): Promise<TestProcess> {
    const worker = await startProcess(
      'worker',
      { REDIS_URL: this.redis.urlOf('worker'), PACELINE_TRANSPORT: this.transport, ...this.workerEnv },
      this.folder,
    );
    this.workers.push(worker);
    this.started.set(worker.ready.id, worker);
    return worker;
  }

  /** Places a run; it begins when its servers have claimed it. */
  async train(input: RunSpecInput): Promise<RunView> {
    const parsed = parseRunSpec(input);
    if (!parsed.ok) throw new Error(JSON.stringify(parsed.issues));
    const { spec } = parsed;
    const run: RunView = {
      id: randomUUID(),
      spec,
      model: await describeModel(spec, runDataOf(spec).format),
      attempt: 1,
      entries: [],
      reports: [],
      state: undefined,
      servers: [],
      standbys: [],
      leads: [],
      workers: spec.replicas,
    };
    this.runs.set(run.id, run);
    await this.place(run, null);
    return run;
  }

  /** Another attempt of the run, from a checkpoint of an earlier one (null: from the beginning), perhaps on another number of servers. */
  async trainAgain(run: RunView, restore: { attempt: number; round: number } | null, servers?: number): Promise<void> {
    const { strategy } = run.spec;
    if (servers !== undefined && strategy.kind === 'parameter-server') run.spec = { ...run.spec, strategy: { ...strategy, servers } };
    run.attempt++;
    run.entries = [];
    run.servers = [];
    run.standbys = [];
    run.leads = [];
    run.state = undefined;
    await this.place(run, restore);
  }

  /** Writes what the api would write into the control hash of the run: `action` and `workers` hold for the present attempt. */
  async control(run: RunView, field: 'action' | 'workers', value: string): Promise<void> {
    if (field === 'workers') run.workers = Number(value);
    await this.redisClient.hset(controlKey(run.id), field, `${run.attempt}:${value}`);
  }

  /** What the processes of a run record of some rounds, as soon as `processes` of them have reported. */
  async traced(run: RunView, rounds: number, processes: number): Promise<TracedProcess[]> {
    const request: TraceRequest = { attempt: run.attempt, id: randomUUID(), rounds, startAtMs: Date.now() + 1_500 };
    await this.redisClient.hset(controlKey(run.id), 'trace', JSON.stringify(request));
    return this.until(run, `${processes} processes to report a trace`, 30_000, () => {
      const found = run.reports.filter((report): report is TracedProcess => report.kind === 'traced' && report.traceId === request.id);
      return found.length >= processes && found;
    });
  }

  private async place(run: RunView, restore: { attempt: number; round: number } | null): Promise<void> {
    const { id, spec, model, attempt } = run;
    this.seats.set(id, { incarnations: new Map(), open: undefined, sinceMs: 0 });
    const origin = { number: attempt, parentRunId: null, parentNumber: restore?.attempt ?? null, parentRound: restore?.round ?? null };
    for (const { index, role } of placesOf(id, attempt, spec)) {
      const token = await this.token(id, 'server', attempt);
      const job = placementJobOf({ id, spec, model, data: runDataOf(spec) }, origin, { index, role }, token);
      const isTaken = (): boolean =>
        (role === 'standby' ? run.standbys : run.servers).some((address) => address.index === index) ||
        run.reports.some((report) => report.kind === 'server.failed' && report.attempt === attempt);
      // A process that holds one place of the run, or its last attempt, may not take it: made again until somebody does who can.
      const isDeclined = spec.strategy.standby > 0 || attempt > 1;
      for (let incarnation = 0; incarnation === 0 || (isDeclined && !isTaken() && incarnation < 40); incarnation++) {
        const jobId = placementJobId(run.id, attempt, index, incarnation, role);
        await this.placements.add('placement', job, { jobId });
        // One that was claimed is reported, however long that takes here: a second claim of it would leave another place without a server.
        for (let i = 0; isDeclined && !isTaken() && (i < 15 || (await this.isClaimed(jobId))); i++)
          await new Promise((resolve) => setTimeout(resolve, 50));
      }
    }
  }

  private async isClaimed(jobId: string): Promise<boolean> {
    const job = await this.placements.getJob(jobId);
    return (await job?.getState()) === 'completed' && job?.returnvalue === 'claimed';
  }

  token(run: string, role: 'worker' | 'server', attempt = 1, secret = this.secret, expiresIn = '1h'): Promise<string> {
    return new SignJWT({ run, role, attempt })
      .setProtectedHeader({ alg: 'HS256' })
      .setIssuer(TOKEN_ISSUER)
      .setAudience(TOKEN_AUDIENCE)
      .setExpirationTime(expiresIn)
      .sign(new TextEncoder().encode(secret));
  }

  /** Waits until the run has finished. @throws Error when it fails or takes longer */
  async finished(run: RunView, deadlineMs = 60_000): Promise<RunResult> {
    const entry = await this.ended(run, deadlineMs);
    if (entry.kind !== 'event' || entry.type !== 'run.finished') throw new Error(`the run did not finish: ${JSON.stringify(entry)}`);
    return runResultSchema.parse(entry.data);
  }

  /** Waits for the last event of the attempt, whatever it is. */
  ended(run: RunView, deadlineMs = 60_000): Promise<JournalEntry> {
    return this.until(run, `attempt ${run.attempt} of run ${run.id} to end`, deadlineMs, () =>
      run.entries.find((e) => e.kind === 'event' && ['run.finished', 'run.failed', 'run.cancelled', 'run.paused'].includes(e.type)),
    );
  }

  /** Waits for an event of the present attempt. */
  event(run: RunView, type: string, deadlineMs = 20_000): Promise<JournalEntry & { kind: 'event' }> {
    return this.until(run, `event ${type}`, deadlineMs, () =>
      run.entries.find((e): e is JournalEntry & { kind: 'event' } => e.kind === 'event' && e.type === type),
    );
  }

  /** Waits for a condition on what the journal has told. */
  async until<T>(run: RunView, what: string, deadlineMs: number, condition: () => T | undefined | false): Promise<T> {
    const deadline = Date.now() + patient(deadlineMs);
    for (;;) {
      const value = condition();
      if (value) return value;
      if (Date.now() > deadline) {
        throw new Error(
          `waited ${deadlineMs} ms for ${what}; state ${JSON.stringify(run.state)}, last ${JSON.stringify(run.entries.filter((e) => e.kind === 'event').slice(-3))}, reports ${JSON.stringify(run.reports.slice(-3))}`,
        );
      }
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }

  async stop(): Promise<void> {
    this.stopped = true;
    clearTimeout(this.timer);
    await Promise.all([...this.workers, ...this.servers].map((p) => p.kill('SIGKILL')));
    await Promise.allSettled([this.placements.disconnect(), this.steps.disconnect()]);
    this.redisClient.disconnect();
    await this.redis.stop();
    await rm(this.folder, { recursive: true, force: true });
  }

  private async period(): Promise<void> {
    try {
      await this.readReports();
      for (const run of this.runs.values()) await this.keepSeat(run);
    } catch (error) {
      if (!this.stopped && !/Connection|closed|ECONN|LOADING/i.test(String(error))) throw error;
    }
    if (!this.stopped) this.timer = setTimeout(() => void this.period(), PERIOD_MS);
  }

  private async readReports(): Promise<void> {
    const streams = await this.redisClient.xread('COUNT', 500, 'STREAMS', REPORT_STREAM, this.lastId);
    for (const [, rows] of streams ?? []) {
      for (const [id, fields] of rows) {
        this.lastId = id;
        await this.take(reportSchema.parse(JSON.parse(fields[1]!)));
      }
    }
  }

  private async take(report: Report): Promise<void> {
    if (report.kind === 'heartbeat' || report.kind === 'goodbye' || report.kind === 'worker.died') return;
    const run = this.runs.get(report.runId);
    if (!run || report.attempt !== run.attempt) return;
    if (report.kind !== 'journal') run.reports.push(report);
    if (report.kind === 'server.claimed' && !report.loading) await this.claim(run, report);
    if (report.kind === 'lead.asked') await this.arbitrate(run, report);
    if (report.kind !== 'journal') return;
    if ((report.term ?? 1) < (run.leads.find(({ index }) => index === 0)?.term ?? 1)) return; // a coordinator that was replaced
    run.state = report.state;
    const known = run.entries.at(-1)?.sequence ?? 0;
    const last = highWaterOf(report, known);
    run.entries.push(...report.entries.filter(({ sequence }) => sequence > known && sequence <= last));
    await this.redisClient.hset(controlKey(run.id), ackFieldName(run.attempt), ackValue({ sequence: last }, report.term ?? 1));
  }

  private async claim(run: RunView, { address, role }: Report & { kind: 'server.claimed' }): Promise<void> {
    // The first claim counts; a second server finds itself missing in `start`.
    const place = role === 'standby' ? 'standbys' : 'servers';
    if (!run[place].some((s) => s.index === address.index)) run[place] = [...run[place], address].sort((a, b) => a.index - b.index);
    const { standby } = run.spec.strategy;
    const servers = shardCount(run.spec.strategy);
    if (run.servers.length < servers || run.standbys.length < standby * servers) return;
    if (run.leads.length === 0)
      run.leads = run.servers.map(({ index, serverId }) => ({
        index,
        term: 1,
        primary: serverId,
        standby: run.standbys.find((other) => other.index === index)?.serverId ?? null,
      }));
    const start = { attempt: run.attempt, servers: run.servers, ...(standby > 0 ? { standbys: run.standbys } : {}) };
    await this.redisClient.hset(controlKey(run.id), 'start', JSON.stringify(start));
  }

  /** The arbiter of the tests. */
  private async arbitrate(run: RunView, { index, serverId, want }: Report & { kind: 'lead.asked' }): Promise<void> {
    const lead = arbitrate(run.leads, { index, serverId, want });
    if (!lead) return;
    run.leads = run.leads.map((other) => (other.index === index ? lead : other));
    const ledger = run.entries.filter((entry) => entry.kind === 'ledger').at(-1);
    const answer: LeadAnswer = {
      attempt: run.attempt,
      ...lead,
      storedSequence: run.entries.at(-1)?.sequence ?? 0,
      newest: 0,
      terms: run.leads.map(({ term }) => term),
      ledgerFrom: ledger?.kind === 'ledger' ? ledger.toRound + 1 : 0,
    };
    await this.redisClient.hset(controlKey(run.id), leadFieldName(index), JSON.stringify(answer));
  }

  /** Keeps exactly one seat open while the run has fewer than it has replicas. */
  private async keepSeat(run: RunView): Promise<void> {
    const seats = this.seats.get(run.id)!;
    if (
      !run.state ||
      !['waiting', 'training', 'evaluating'].includes(run.state.phase) ||
      run.servers.length < shardCount(run.spec.strategy)
    )
      return;
    const held = run.state.seats;
    if (seats.open && held.some((s) => s.seat === seats.open!.seat && s.incarnation === seats.open!.incarnation)) seats.open = undefined;
    // Taken by somebody who died with it: made again; a late second holder is told SEAT_TAKEN.
    if (seats.open && (Date.now() - seats.sinceMs > RESEAT_AFTER_MS || (await this.takerDied(run, seats.open)))) seats.open = undefined;
    if (seats.open || held.length >= Math.min(run.spec.replicas, run.workers)) return;
    const seat = Array.from({ length: run.spec.replicas }, (_, i) => i).find((i) => !held.some((s) => s.seat === i))!;
    const incarnation = (seats.incarnations.get(seat) ?? -1) + 1;
    seats.incarnations.set(seat, incarnation);
    seats.open = { seat, incarnation };
    seats.sinceMs = Date.now();
    const job: StepTaskJob = {
      kind: 'step-task',
      stepTaskId: randomUUID(),
      runId: run.id,
      attempt: run.attempt,
      seat,
      incarnation,
      spec: run.spec,
      model: run.model,
      data: runDataOf(run.spec),
      servers: run.servers,
      ...(run.standbys.length > 0 ? { standbys: run.standbys } : {}),
      sliceMs: 2_000,
      heldSeats: held.length,
      token: await this.token(run.id, 'worker', run.attempt),
    };
    await this.steps.add('step-task', job, {
      jobId: stepTaskJobId(run.id, run.attempt, seat, incarnation),
      priority: held.length + 1,
      attempts: 1,
    });
  }

  /** Whoever holds the lock of the step task is a process of this plane that is gone. */
  private async takerDied(run: RunView, { seat, incarnation }: { readonly seat: number; readonly incarnation: number }): Promise<boolean> {
    const token = await this.redisClient.get(this.steps.toKey(`${stepTaskJobId(run.id, run.attempt, seat, incarnation)}:lock`));
    const taker = token === null ? undefined : this.started.get(token.slice(0, token.lastIndexOf('-')));
    return taker !== undefined && (taker.child.exitCode !== null || taker.child.signalCode !== null);
  }
}
