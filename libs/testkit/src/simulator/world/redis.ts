/**
 * Redis in memory, as far as Paceline uses it: control hashes, the report stream with its reader group, and two queues that behave as
 * BullMQ's do. It may be away for a while, be flushed, or come back without its last second; nothing that counts may be lost with it.
 *
 *     job: waiting ── take ──> active ── complete ──> over (kept: its id cannot be added again)
 *            ^                   └─ its lock ran out: the stalled check gives it back
 */
import {
  REPORT_STREAM_MAX_ENTRIES,
  RedisUnavailableError,
  type ControlFields,
  type ControlPlane,
  type HeldJob,
  type JobKind,
  jobKindOf,
  type JobQueue,
  type JobState,
  type PreparedJob,
  type Report,
  type StreamMessage,
} from '@paceline/control-plane';
import type { SimProcess } from './process.js';
import { SimStore, type Surroundings } from './store.js';
import { Table, UndoLog } from './undo-log.js';

const DEADLINE_MS = 1_500;
const LOCK_MS = 30_000;
/** Reports that a reader took and never confirmed are given to others after this long. */
const TAKE_OVER_AFTER_MS = 30_000;
const BATCH = 200;
const BLOCK_MS = 500;
const GROUP_KEY = 'readers';

interface Job extends PreparedJob {
  readonly kind: JobKind;
  readonly state: 'waiting' | 'active' | 'over';
  /** First come, first served within a priority. */
  readonly order: number;
  readonly token: string | undefined;
  readonly lockUntilMs: number;
}
interface Entry {
  readonly order: number;
  readonly id: string;
  readonly text: string;
  /** The api that has read it and not confirmed it. */
  readonly reader: { readonly name: string; readonly atMs: number } | undefined;
}

export class MissingGroupError extends Error {}

/** It is told of each job that comes into a queue. */
export interface RedisSurroundings extends Surroundings {
  readonly invariants: { enqueued(job: PreparedJob): void };
}

export class SimRedis extends SimStore<RedisSurroundings> {
  /** A job that is taken goes to so many takers. */
  deliveriesPerJob = 1;
  private readonly log: UndoLog;
  private readonly controls: Table<string, ControlFields>;
  private readonly jobs: Table<string, Job>;
  private readonly stream: Table<number, Entry>;
  private readonly groups: Table<string, true>;
  private readonly deliveries = new Map<string, number>();
  private order = 0;
  private tokens = 0;
  private blocked: (() => void)[] = [];

  constructor(around: RedisSurroundings) {
    super(around, 'redis');
    this.log = new UndoLog(() => around.world.nowMs, 2_000);
    this.controls = new Table(this.log);
    this.jobs = new Table(this.log);
    this.stream = new Table(this.log);
    this.groups = new Table(this.log);
  }

  protected outage(what: string): Error {
    return new RedisUnavailableError(what);
  }

  // ---- what happens to it ----

  goAway(): void {
    this.isAway = true;
    this.release();
  }

  comeBack(): void {
    this.isAway = false;
  }

  /** It is away, and what it wrote within its last second was not on its disk. @returns how many changes are lost */
  crash(): number {
    this.goAway();
    return this.log.undoSince(this.around.world.nowMs - 1_000);
  }

  flushAll(): void {
    for (const table of [this.controls, this.jobs, this.stream, this.groups]) table.clear();
    this.release();
  }

  // ---- what servers and workers see ----

  controlPlane(from: SimProcess): ControlPlane {
    return {
      readControl: (runId) => this.call(from, 'control of a run', DEADLINE_MS, () => this.controls.get(runId) ?? {}),
      sendReport: (report) => this.call(from, `report ${report.kind}`, DEADLINE_MS, () => this.append(report)),
    };
  }

  queue<T>(kind: JobKind, from: SimProcess): JobQueue<T> {
    return {
      take: () => this.call(from, `next ${kind}`, DEADLINE_MS, () => this.take<T>(kind, from)),
      peek: () => this.call(from, `first ${kind}`, DEADLINE_MS, () => this.waiting(kind)[0]?.payload as T | undefined),
      close: () => Promise.resolve(),
    };
  }

  // ---- what apis see ----

  readControl(from: SimProcess, runIds: readonly string[]): Promise<Map<string, ControlFields>> {
    const read = () => new Map(runIds.map((runId) => [runId, this.controls.get(runId) ?? {}]));
    return this.call(from, 'control of runs', DEADLINE_MS, read);
  }

  writeControl(from: SimProcess, runId: string, fields: ControlFields): Promise<void> {
    return this.call(from, 'write control', DEADLINE_MS, () => this.controls.set(runId, { ...this.controls.get(runId), ...fields }));
  }

  /** An id that is there already, waiting or over, is ignored. */
  add(from: SimProcess, jobs: readonly PreparedJob[]): Promise<void> {
    return this.call(from, 'add jobs', DEADLINE_MS, () => {
      for (const job of jobs) {
        if (this.jobs.get(job.jobId)) continue;
        const kind = jobKindOf(job.payload);
        this.jobs.set(job.jobId, { ...job, kind, state: 'waiting', order: this.order++, token: undefined, lockUntilMs: 0 });
        this.around.invariants.enqueued(job);
      }
    });
  }

  stateOf(from: SimProcess, jobId: string): Promise<Exclude<JobState, 'unsent'>> {
    return this.call(from, 'state of a job', DEADLINE_MS, () => this.jobs.get(jobId)?.state ?? 'missing');
  }

  change(from: SimProcess, jobId: string, change: (job: PreparedJob) => PreparedJob): Promise<void> {
    return this.call(from, 'priority of a job', DEADLINE_MS, () => {
      const job = this.jobs.get(jobId);
      if (job) this.jobs.set(jobId, { ...job, ...change(job) });
    });
  }

  /** Unless somebody holds it. */
  remove(from: SimProcess, jobId: string): Promise<void> {
    return this.call(from, 'remove a job', DEADLINE_MS, () => {
      if (this.jobs.get(jobId)?.state !== 'active') this.jobs.delete(jobId);
    });
  }

  waitingIds(from: SimProcess, kind: JobKind): Promise<string[]> {
    return this.call(from, 'waiting jobs', DEADLINE_MS, () => this.waiting(kind).map(({ jobId }) => jobId));
  }

  /** Jobs whose holder lets their lock run out wait again. */
  checkStalled(from: SimProcess): Promise<void> {
    return this.call(from, 'stalled check', DEADLINE_MS, () => {
      for (const job of this.jobs.values()) {
        if (job.state !== 'active' || job.lockUntilMs > this.around.world.nowMs) continue;
        this.jobs.set(job.jobId, { ...job, state: 'waiting', token: undefined });
        this.around.network.count('a job lost its holder and waits again');
      }
    });
  }

  makeGroup(from: SimProcess): Promise<void> {
    return this.call(from, 'make the reader group', DEADLINE_MS, () => this.groups.set(GROUP_KEY, true));
  }

  /** Waits for reports for a while. */
  async readReports(from: SimProcess, name: string): Promise<StreamMessage[]> {
    const found = await this.call(from, 'read reports', DEADLINE_MS, () => this.readNow(name));
    if (found.length > 0) return found;
    await this.untilReport(from);
    return this.call(from, 'read reports', DEADLINE_MS, () => this.readNow(name));
  }

  confirmReports(from: SimProcess, ids: readonly string[]): Promise<void> {
    return this.call(from, 'confirm reports', DEADLINE_MS, () => {
      for (const entry of this.stream.values()) if (ids.includes(entry.id)) this.stream.delete(entry.order);
    });
  }

  // ---- what the simulator looks at ----

  control(runId: string): ControlFields {
    return this.controls.get(runId) ?? {};
  }

  get jobCount(): number {
    return this.jobs.size;
  }

  get reportCount(): number {
    return this.stream.size;
  }

  private append(report: Report): void {
    const order = this.order++;
    this.stream.set(order, {
      order,
      id: `${Math.floor(this.around.world.nowMs)}-${order}`,
      text: JSON.stringify(report),
      reader: undefined,
    });
    if (this.stream.size > REPORT_STREAM_MAX_ENTRIES) this.stream.delete(this.stream.values()[0]!.order);
    this.release();
  }

  private release(): void {
    for (const wake of this.blocked.splice(0)) wake();
  }

  private untilReport(from: SimProcess): Promise<void> {
    const { world } = this.around;
    return new Promise((resolve) => {
      let isDone = false;
      const wake = (): void => {
        if (isDone) return;
        isDone = true;
        cancel();
        world.microtasksWait = true;
        from.run(resolve);
      };
      const cancel = from.after(BLOCK_MS, wake);
      this.blocked.push(wake);
    });
  }

  private readNow(name: string): StreamMessage[] {
    if (!this.groups.get(GROUP_KEY)) throw new MissingGroupError('NOGROUP no such consumer group');
    const { nowMs } = this.around.world;
    const free = this.stream
      .values()
      .filter(({ reader }) => reader === undefined || nowMs - reader.atMs > TAKE_OVER_AFTER_MS)
      .sort((a, b) => a.order - b.order)
      .slice(0, BATCH);
    for (const entry of free) this.stream.set(entry.order, { ...entry, reader: { name, atMs: nowMs } });
    return free.map(({ id, text }) => ({ id, text }));
  }

  private waiting(kind: JobKind): Job[] {
    return this.jobs
      .values()
      .filter((job) => job.kind === kind && job.state === 'waiting')
      .sort((a, b) => (a.priority ?? 0) - (b.priority ?? 0) || a.order - b.order);
  }

  private take<T>(kind: JobKind, from: SimProcess): HeldJob<T> | undefined {
    const [job] = this.waiting(kind);
    if (!job) return undefined;
    const { around } = this;
    const { jobId } = job;
    const token = `${from.name}-${++this.tokens}`;
    const delivery = (this.deliveries.get(jobId) ?? 0) + 1;
    this.deliveries.set(jobId, delivery);
    if (delivery === 2) around.network.count(kind === 'placement' ? 'placement delivered twice' : 'step task delivered twice');
    // Its lock is lost at once: the next one who asks has it too.
    if (delivery < this.deliveriesPerJob) this.jobs.set(jobId, { ...job, state: 'waiting', token });
    else this.jobs.set(jobId, { ...job, state: 'active', token, lockUntilMs: around.world.nowMs + LOCK_MS });
    around.world.note(`${jobId} to ${from.name}`);
    const held = <R>(what: string, act: (job: Job) => R): Promise<R | false> =>
      this.call(from, what, DEADLINE_MS, () => {
        const present = this.jobs.get(jobId);
        return present?.token === token && present.state === 'active' ? act(present) : (false as const);
      }).catch(() => false as const);
    return {
      id: jobId,
      payload: job.payload as T,
      keep: () =>
        held('extend lock', (present) => {
          this.jobs.set(jobId, { ...present, lockUntilMs: around.world.nowMs + LOCK_MS });
          return true;
        }),
      complete: () =>
        held('complete job', (present) => {
          this.jobs.set(jobId, { ...present, state: 'over', token: undefined });
          return true;
        }),
      giveBack: () =>
        held('give a job back', (present) => {
          this.jobs.set(jobId, { ...present, state: 'waiting', token: undefined });
          return true;
        }),
    };
  }
}
