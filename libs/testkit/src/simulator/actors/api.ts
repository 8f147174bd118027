/**
 * An api process, as far as a run needs one: the dispatcher, the outbox, the reader of reports and the judge of silence are those of
 * libs/control-plane, as apps/api runs them; only PostgreSQL and Redis are simulated. It may be killed at any moment, and several may run.
 *
 *     DispatchLoop ── Reconciler ── reconcile ──> StoredRun over SimPostgres, SimRedis        ReportReader ──> StoredRun
 */
import {
  ackFields,
  cancelField,
  DispatchLock,
  DispatchLockLostError,
  DispatchLoop,
  ReportContinuity,
  isPlacementWanted,
  jobNameOf,
  JobStates,
  leadFieldName,
  LOST_AFTER_MS,
  placementJobOf,
  priorityOf,
  Reconciler,
  REFUSED_SILENCE_MS,
  RedisUnavailableError,
  ReportReader,
  sendOutbox,
  ShardWorkerWatch,
  spareWorkersFor,
  stepTaskJobId,
  stepTaskJobOf,
  suspectOf,
  workersNeeded,
  type ControlFields,
  type DispatchAction,
  type ObservedFleet,
  type JobKind,
  type JobName,
  type PreparedJob,
  type Report,
  type ObservedRun,
  type ServerAddress,
  type StepTaskJob,
} from '@paceline/control-plane';
import type { RunSpec } from '@paceline/spec';
import type { Cluster } from '../cluster.js';
import { SimProcess } from '../world/process.js';
import { DatabaseOutage, placeKey, type FleetRow, type OutboxRow } from '../world/postgres.js';
import { MissingGroupError } from '../world/redis.js';
import { carryOut } from '../stored/stored-actions.js';
import { decideLead, readLead } from '../stored/stored-lead.js';
import { storeJournal, takeReport } from '../stored/stored-reports.js';
import type { StoredRun } from '../stored/stored-run.js';
import { dataOf } from '../run/tiny-run.js';
import { addressOf } from '../world/network.js';

const STALLED_CHECK_EVERY_MS = 5_000;
/** A server that is silent for so long is looked at: whether somebody listens at its port. */
const PROBE_AFTER_MS = REFUSED_SILENCE_MS - 200;
/** Tokens are not signed here. */
const TOKEN_KEY = 'the key of the tokens of an attempt';
/** The epoch of the wall clocks of apis. */
const EPOCH_MS = 1_700_000_000_000;

/** The point at which it dies when it next sends its outbox. */
export type DeathPoint = 'before it enqueues' | 'after it has enqueued';

export class SimApi {
  readonly process: SimProcess;
  diesAt: DeathPoint | undefined;
  private readonly continuity = new ReportContinuity();
  private readonly seen = new Map<string, FleetRow>();
  private readonly suspected = new Map<string, number>();
  private readonly shardWorkers = new ShardWorkerWatch();
  private readonly loop: DispatchLoop;
  private readonly lock: DispatchLock;
  private readonly reader: ReportReader;
  private readonly skewMs: number;
  private wakeReader: (() => void) | undefined;

  constructor(
    readonly name: string,
    private readonly cluster: Cluster,
  ) {
    const { world } = cluster;
    this.process = new SimProcess(world, name, 'api-host', (error) => cluster.crashed(this.process, error));
    this.skewMs = world.random.between(-20, 20);
    this.lock = new DispatchLock({
      ...cluster.postgres.lockPorts(this.process),
      now: () => this.process.now(),
      told: (what) => what === 'took over' && cluster.network.count('dispatch taken over from an api that stood still'),
    });
    const reconciler = this.reconciler();
    this.loop = new DispatchLoop({
      after: (ms, act) => this.process.after(ms, act),
      random: () => world.random.float(),
      sendOutbox: () => this.sendOutbox(),
      holdLock: () => this.lock.hold(),
      reconcile: () => reconciler.tick(() => this.lock.confirm()),
      actions: () => reconciler.actions,
      failed: (error) => this.expectOutage(error),
    });
    this.reader = this.reportReader();
    this.process.run(() => {
      world.microtasksWait = true;
      this.loop.start();
      this.reader.start();
    });
    this.process.every(
      STALLED_CHECK_EVERY_MS,
      () => void cluster.redis.checkStalled(this.process).catch((error: Error) => this.expectOutage(error)),
    );
  }

  /** Somebody has asked for something. */
  wake(): void {
    this.process.run(() => this.loop.wake());
  }

  private get wallMs(): number {
    return EPOCH_MS + this.cluster.world.nowMs + this.skewMs;
  }

  private transact<T>(what: string, act: (run: StoredRun) => T): Promise<T> {
    return this.cluster.postgres.transact(this.process, what, (rows) => act(this.cluster.stored(rows, this.wallMs)));
  }

  private isOutage(error: unknown): boolean {
    return error instanceof RedisUnavailableError || error instanceof DatabaseOutage;
  }

  private expectOutage(error: Error): void {
    if (error instanceof DispatchLockLostError) return;
    if (!this.isOutage(error)) this.cluster.crashed(this.process, error);
  }

  // ---- the outbox, as dispatch/job-sender.ts ----

  private sendOutbox(): Promise<number> {
    const { cluster } = this;
    const { postgres, redis, plant } = cluster;
    return sendOutbox<OutboxRow & { readonly run: RunHead }>({
      keepLock: () => this.lock.keep(),
      unsent: () => postgres.transact(this.process, 'unsent jobs', () => this.unsent()),
      prepare: (row) => Promise.resolve(this.prepare(row)),
      add: async (jobs) => {
        this.dieAt('before it enqueues');
        await redis.add(this.process, plant?.outbox?.(jobs, this.name) ?? jobs);
        this.dieAt('after it has enqueued');
      },
      markSent: (sent) =>
        postgres.transact(this.process, 'mark sent', (rows) => {
          for (const { id } of sent) {
            const row = rows.outbox.get(id);
            if (row) rows.outbox.set(id, { ...row, isSent: true });
          }
        }),
      unfit: (jobId, issue) => cluster.crashed(this.process, new Error(`job ${jobId} does not fit: ${JSON.stringify(issue)}`)),
    });
  }

  private dieAt(point: DeathPoint): void {
    if (this.diesAt !== point) return;
    this.cluster.network.count(`api killed ${point}`);
    this.process.kill();
  }

  private unsent(): (OutboxRow & { run: RunHead })[] {
    const { rows } = this.cluster.postgres;
    const { shape } = this.cluster.run;
    const run = rows.runs.get(this.cluster.runId)!;
    // A run without servers waits for as many workers, and is placed as a whole.
    const needed = shape.isMirrored ? workersNeeded(run.spec as RunSpec) : run.serverCount;
    const enough = Math.max(1, this.liveHolders().length) >= needed;
    return rows.outbox
      .values()
      .filter(({ isSent, kind }) => !isSent && (kind !== 'placement' || enough))
      .sort((a, b) => a.id - b.id)
      .map((row) => ({ ...row, run: { status: run.status, attempt: run.attempt } }));
  }

  private prepare({ jobId, attempt, place, taskId }: OutboxRow): PreparedJob | undefined {
    const { rows } = this.cluster.postgres;
    const { shape, model } = this.cluster.run;
    const { id, spec } = rows.runs.get(this.cluster.runId)!;
    const run = { id, spec, model, data: dataOf(shape) };
    // The worker with the shard before it takes a standby by itself.
    if (shape.isMirrored && place?.role === 'standby') return undefined;
    const member = shape.isMirrored ? { tokenKey: TOKEN_KEY, seatToken: `worker/${attempt}` } : undefined;
    if (place) {
      const name = jobNameOf(jobId);
      if (!name || !this.isWanted('placement', name)) return undefined;
      const job = placementJobOf(run, rows.attempts.get(attempt)!, place, `server/${attempt}`, undefined, member);
      return { jobId, payload: job };
    }
    const places = rows.servers.values().filter((server) => server.attempt === attempt && server.claimedAt !== null);
    const job = stepTaskJobOf(run, rows.tasks.get(taskId!) ?? null, places, `worker/${attempt}`);
    return job && { jobId, payload: job, priority: priorityOf(job.heldSeats, this.heldSeats()) };
  }

  /** The team has this one run. */
  private heldSeats(): number {
    return this.cluster.postgres.rows.tasks.values().filter(({ state }) => state === 'HELD').length;
  }

  // ---- the dispatcher, as dispatch/reconcile-tick.ts and dispatch/executor.ts ----

  private reconciler(): Reconciler {
    const { cluster } = this;
    const { postgres, redis } = cluster;
    const jobs = new JobStates({
      stateOf: (_kind, jobId) => redis.stateOf(this.process, jobId),
      isUnsent: (jobId) =>
        postgres.transact(this.process, 'is it unsent', (rows) => rows.outbox.values().some((row) => row.jobId === jobId && !row.isSent)),
    });
    return new Reconciler({
      now: () => this.wallMs,
      // One run: there is never a next page.
      readRuns: async () => ({ runs: await this.readRuns(), nextAfterId: undefined }),
      fleet: (placed, runs) => Promise.resolve(this.fleet(placed, runs)),
      jobs: (run, now, confirmLock) => jobs.of(run, now, confirmLock),
      carryOut: (run, action) => this.carryOut(run, action),
      waitingIds: (kind) => redis.waitingIds(this.process, kind),
      isWanted: (kind, name) => postgres.transact(this.process, 'is it wanted', () => this.isWanted(kind, name)),
      remove: (_kind, jobId) => redis.remove(this.process, jobId),
      isOutage: (error) => this.isOutage(error),
    });
  }

  private async readRuns(): Promise<ObservedRun[]> {
    const { cluster } = this;
    const observedWith = await this.transact('read runs', (run) => run.observedWith());
    // The rows are read before the control hash, and another api may write between the two.
    const controls = await cluster.redis.readControl(this.process, [cluster.runId]);
    const observed = observedWith(controls.get(cluster.runId) ?? {});
    return observed ? [observed] : [];
  }

  private async carryOut(run: ObservedRun, action: DispatchAction): Promise<void> {
    const { redis, runId } = this.cluster;
    if (action.kind === 'write-control') return redis.writeControl(this.process, runId, this.planted(action.fields, run.attempt));
    if (action.kind === 'tell-lead') return this.tellLead(run.attempt, action.index);
    const jobId = 'task' in action ? stepTaskJobId(runId, run.attempt, action.task.seat, action.task.incarnation) : '';
    if (action.kind === 'reprioritise-seat') {
      const { heldSeats } = action;
      const ofTeam = this.heldSeats();
      await redis.change(this.process, jobId, ({ payload, ...job }) => ({
        ...job,
        payload: { ...(payload as StepTaskJob), heldSeats },
        priority: priorityOf(heldSeats, ofTeam),
      }));
    }
    await this.transact(action.kind, (stored) => carryOut(stored, run, action));
    if (action.kind === 'close-seat') await redis.remove(this.process, jobId);
  }

  /** As dispatch/shard-leads.ts. */
  private async tellLead(attempt: number, index: number): Promise<void> {
    const { redis, runId } = this.cluster;
    const answer = await this.transact('read the lead', (run) => readLead(run, attempt, index));
    if (answer) await redis.writeControl(this.process, runId, { [leadFieldName(index)]: JSON.stringify(answer) });
  }

  private planted(fields: ControlFields, attempt: number): ControlFields {
    return this.cluster.plant?.control?.(fields, attempt) ?? fields;
  }

  private isWanted(kind: JobKind, name: JobName): boolean {
    const { rows } = this.cluster.postgres;
    const { attempt, part, role, incarnation } = name;
    if (kind === 'step-task')
      return rows.tasks
        .values()
        .some((task) => task.attempt === attempt && task.seat === part && task.incarnation === incarnation && task.state === 'OPEN');
    const server = rows.servers.get(placeKey({ attempt, index: part, role }));
    return isPlacementWanted(server ?? null, rows.runs.get(name.runId), name);
  }

  // ---- the fleet, as fleet/fleet.ts and fleet/server-health.ts ----

  private heartbeat(id: string, hasLeft: boolean): void {
    const row: FleetRow = { id, hasLeft, lastSeenMs: hasLeft ? (this.seen.get(id)?.lastSeenMs ?? this.wallMs) : this.wallMs };
    this.seen.set(id, row);
    const { postgres } = this.cluster;
    // Other apis, and the next start, know it too.
    if (!postgres.isAway) postgres.now((rows) => rows.fleet.set(id, row));
  }

  private members(): FleetRow[] {
    for (const row of this.cluster.postgres.rows.fleet.values())
      if ((this.seen.get(row.id)?.lastSeenMs ?? 0) < row.lastSeenMs) this.seen.set(row.id, row);
    return [...this.seen.values()];
  }

  /** Servers; in a run without them, workers: of both, those that hold shards say that they live. */
  private liveHolders(): FleetRow[] {
    return this.members().filter(({ hasLeft, lastSeenMs }) => !hasLeft && this.wallMs - lastSeenMs <= LOST_AFTER_MS);
  }

  private fleet(placed: readonly ServerAddress[], runs: readonly ObservedRun[]): ObservedFleet {
    const { network, workers } = this.cluster;
    const now = this.wallMs;
    const refused = new Set(placed.filter((address) => !network.isListening(addressOf(address))).map(({ serverId }) => serverId));
    const servers = this.members().map(({ id, lastSeenMs, hasLeft }) => {
      const silentMs = now - lastSeenMs;
      const isSuspected = now - (this.suspected.get(id) ?? -Infinity) < 2 * LOST_AFTER_MS;
      return [id, { silentMs, hasLeft, isSuspected, isRefused: !hasLeft && silentMs > PROBE_AFTER_MS && refused.has(id) }] as const;
    });
    const live = workers.filter(({ process }) => process.isAlive);
    const seen = live.map(({ id, session }) => ({ id, isIdle: !session }));
    const counts = this.shardWorkers.look(seen, now);
    return {
      servers: new Map(servers),
      isReliable: this.continuity.isReliable(now),
      reliableForMs: this.continuity.forMs(now),
      spareWorkersFor: spareWorkersFor(runs, { idle: counts.shardWorkersIdle, connected: live.length, now }),
      counts: {
        liveServers: this.cluster.run.shape.isMirrored ? 0 : this.liveHolders().length,
        liveWorkers: live.length,
        idleWorkers: seen.filter(({ isIdle }) => isIdle).length,
        ...counts,
        incompatible: [],
      },
    };
  }

  // ---- reports, as reports/consumer.ts and reports/fleet-reports.ts ----

  private reportReader(): ReportReader {
    const { cluster } = this;
    const { redis } = cluster;
    return new ReportReader({
      read: () => redis.readReports(this.process, this.name),
      makeGroup: () => redis.makeGroup(this.process),
      isMissingGroup: (error) => error instanceof MissingGroupError,
      store: (report, id) => this.store(report, id),
      confirm: (ids) => redis.confirmReports(this.process, ids),
      isDatabaseOutage: (error) => error instanceof DatabaseOutage,
      pause: (ms) =>
        new Promise((resolve) => {
          const cancel = this.process.after(ms, resolve);
          this.wakeReader = () => {
            cancel();
            resolve();
          };
        }),
      wakeUp: () => this.wakeReader?.(),
      heard: () => this.continuity.heard(this.wallMs),
      deaf: () => this.continuity.lost(),
      told: (what, { error, issue, kind }) => {
        if (what === 'refused' || what === 'dropped')
          cluster.crashed(this.process, error ?? new Error(`a report does not fit: ${kind ?? ''} ${JSON.stringify(issue)}`));
      },
    });
  }

  private async store(report: Report, id: string): Promise<void> {
    switch (report.kind) {
      case 'heartbeat':
        return this.heartbeat(report.member.id, false);
      case 'goodbye':
        this.heartbeat(report.id, true);
        return this.loop.wake();
      case 'lead.asked':
        return this.leadAsked(report);
      case 'worker.died':
      case 'worker.recycled':
      case 'traced':
        return;
      case 'journal':
        return this.storeJournal(report, id);
      default: {
        if (report.kind === 'seat.failed' && report.serverIndex !== null) this.suspect(report.attempt, report.serverIndex);
        await this.transact(report.kind, (run) => takeReport(run, report));
        if (report.kind !== 'seat.failed') this.loop.wake();
      }
    }
  }

  private async leadAsked(report: Extract<Report, { kind: 'lead.asked' }>): Promise<void> {
    const { lead, changed } = await this.transact(report.kind, (run) => decideLead(run, report));
    if (changed) this.cluster.network.count(changed.isPromoted ? 'standby promoted' : 'standby dropped');
    if (!lead) return;
    await this.tellLead(report.attempt, report.index);
    this.loop.wake();
  }

  private suspect(attempt: number, index: number): void {
    const places = this.cluster.postgres.rows.servers.values().filter((place) => place.attempt === attempt);
    const suspect = suspectOf(places, index);
    if (suspect) this.suspected.set(suspect, this.wallMs);
  }

  private async storeJournal(report: Extract<Report, { kind: 'journal' }>, id: string): Promise<void> {
    const { redis, runId } = this.cluster;
    const { ack, mustStop, changed } = await this.transact('store a journal', (run) => storeJournal(run, report, id));
    if (changed) this.loop.wake();
    if (ack && (report.entries.length > 0 || mustStop)) {
      const fields = {
        ...(report.entries.length > 0 ? ackFields(ack.attempt, report.term ?? 1, ack) : {}),
        ...(mustStop ? { action: cancelField(report.attempt) } : {}),
      };
      await redis.writeControl(this.process, runId, this.planted(fields, report.attempt));
    }
  }
}

interface RunHead {
  readonly status: ObservedRun['status'];
  readonly attempt: number;
}
