/**
 * What the api writes about a run, over rows in memory: the transactions of apps/api/src/runs, dispatch/executor.ts and reports, each
 * in the same order and with the same comparisons. What they decide comes from libs/jobs.
 */
import {
  afterEnd,
  answerRequest,
  causeOfComplaint,
  checkpointOf,
  complaintCounts,
  coordinatorOf,
  endOf,
  hasLiveAttempt,
  highWaterOf,
  keptStateOf,
  letGo,
  lineageOf,
  mayHaveOutcomes,
  mayMove,
  mustStop,
  newEntriesOf,
  nextRestore,
  originOf,
  OUTCOMES,
  parentOf,
  pictureOf,
  placementJobId,
  placeOf,
  placesOf,
  refusalOf,
  seatFailureOf,
  showsTraining,
  stepTaskJobId,
  waitingAt,
  type AttemptEnd,
  type ControlFields,
  type DispatchAction,
  type JournalEntry,
  type JournalOutcome,
  type JournalReport,
  type Report,
  type RestorePoint,
  type RunPicture,
  type RunStatus,
} from '@paceline/jobs';
import type { RunSpec } from '@paceline/spec';
import type { Cluster } from './cluster.js';
import { placeKey, type AttemptRow, type Rows, type RunRow } from './sim-postgres.js';

type Of<K extends Report['kind']> = Extract<Report, { kind: K }>;
type ActionOf<K extends DispatchAction['kind']> = Extract<DispatchAction, { kind: K }>;
export type FleetReport = Of<'server.claimed' | 'server.failed' | 'seat.failed' | 'seat.left'>;

/** One transaction's view of the run: made for it, and thrown away with it. */
export class StoredRun {
  constructor(
    readonly cluster: Cluster,
    readonly rows: Rows,
    /** The wall clock of the api that writes. */
    private readonly wallMs: number,
  ) {}

  private get id(): string {
    return this.cluster.runId;
  }

  get run(): RunRow {
    return this.rows.runs.get(this.id)!;
  }

  get attempt(): AttemptRow {
    return this.rows.attempts.get(this.run.attempt)!;
  }

  private get spec(): RunSpec {
    return this.run.spec as RunSpec;
  }

  private set(change: Partial<RunRow>): void {
    this.rows.runs.set(this.id, { ...this.run, ...change });
  }

  setAttempt(number: number, change: Partial<AttemptRow>): void {
    const row = this.rows.attempts.get(number);
    if (row) this.rows.attempts.set(number, { ...row, ...change });
  }

  date(afterMs = 0): Date {
    return new Date(this.wallMs + afterMs);
  }

  // ---- beginning and reading ----

  create(spec: RunSpec): void {
    this.rows.runs.set(this.id, {
      ...{ id: this.id, status: 'PENDING', statusReason: null, attempt: 1, spec, workersWanted: null, lastSeatFailure: null },
      ...{ cancelRequestedAt: null, pauseRequestedAt: null, nextAttemptAt: null, coordinator: null, coordinatorAt: null },
      ...{ restartsUsed: 0, restartsTotal: 0, bestRound: 0 },
    });
    this.addAttempt(1, null);
    this.move('QUEUED', 'accepted');
  }

  /** What is stored now, to be compared with a control hash that is read afterwards. */
  pictureWith(): (control: ControlFields) => RunPicture | undefined {
    const { rows, run, attempt } = this;
    const stored = {
      ...run,
      attempts: [attempt],
      servers: [...rows.servers.values()],
      stepTasks: [...rows.tasks.values()].filter(({ state }) => state !== 'CLOSED'),
    };
    return (control) => pictureOf(stored, control, attempt.seatFailures > 0 ? run.lastSeatFailure : null);
  }

  // ---- moves ----

  move(to: RunStatus, reason: string, set: Partial<RunRow> = {}): boolean {
    const { status: from } = this.run;
    if (!mayMove(from, to)) return false;
    this.set({ status: to, statusReason: reason, ...set });
    this.cluster.watch.moved(from, to, reason);
    if (hasLiveAttempt(from) && !hasLiveAttempt(to)) this.closeAttempt(`the run is ${to}`);
    return true;
  }

  /** Nothing of the attempt is asked of the fleet any more. */
  private closeAttempt(why: string): void {
    for (const row of this.rows.outbox.values()) if (!row.isSent) this.rows.outbox.delete(row.id);
    this.setAttempt(this.run.attempt, { endedAt: this.date() });
    for (const task of this.rows.tasks.values()) if (task.state !== 'CLOSED') this.closeTask(task.id, why);
  }

  private closeTask(id: string, _why: string): void {
    const task = this.rows.tasks.get(id);
    if (task && task.state !== 'CLOSED') this.rows.tasks.set(id, { ...task, state: 'CLOSED' });
  }

  endNow(attempt: number, end: AttemptEnd): boolean {
    return this.run.attempt === attempt && this.end(end);
  }

  end(end: AttemptEnd): boolean {
    const { cluster, run, attempt } = this;
    const after = afterEnd(
      {
        status: run.status,
        isCancelWanted: run.cancelRequestedAt !== null,
        restarts: this.spec.restarts,
        count: { used: run.restartsUsed, total: run.restartsTotal, bestRound: run.bestRound },
        committedRounds: coordinatorOf(run)?.round ?? attempt.parentRound ?? 0,
      },
      end,
      () => cluster.world.random.float(),
    );
    if (after.to === undefined) return false;
    if (end.kind === 'failed' && end.cause === 'CHECKPOINT_INVALID' && attempt.parentNumber !== null) {
      cluster.watch.notLoaded({ runId: this.id, attempt: attempt.parentNumber, round: attempt.parentRound ?? 0 }, end.message);
      const key = `${attempt.parentNumber}/${attempt.parentRound}`;
      const checkpoint = this.rows.checkpoints.get(key);
      if (checkpoint) this.rows.checkpoints.set(key, { ...checkpoint, isInvalid: true });
    }
    if (after.to === 'PAUSED' && run.status === 'RUNNING') this.move('PAUSING', end.message);
    cluster.watch.attemptEnded(after, end);
    this.move(after.to, after.reason, {
      restartsUsed: after.count.used,
      restartsTotal: after.count.total,
      bestRound: after.count.bestRound,
      nextAttemptAt: after.restartAfterMs === null ? null : this.date(after.restartAfterMs),
      pauseRequestedAt: null,
    });
    return true;
  }

  begin(reason: string): boolean {
    const { rows, run } = this;
    const attempts = rows.attempts.values().map(originOf);
    const checkpoints = rows.checkpoints.values().map(({ attempt, round, isInvalid, isRemoved }) => ({
      ...{ attempt, round },
      isGone: isInvalid || isRemoved,
    }));
    const from = nextRestore(this.id, attempts, run.attempt, checkpoints);
    if (from.kind === 'nothing') return false;
    const restore = from.kind === 'checkpoint' ? from.restore : null;
    const number = run.attempt + 1;
    this.set({
      attempt: number,
      coordinator: waitingAt(number, restore?.round ?? 0),
      ...{ coordinatorAt: null, nextAttemptAt: null, pauseRequestedAt: null },
    });
    this.addAttempt(number, restore);
    this.move('QUEUED', reason);
    return true;
  }

  private addAttempt(number: number, restore: RestorePoint | null): void {
    const { rows } = this;
    const round = restore?.round ?? null;
    rows.attempts.set(number, {
      ...{ number, startedAt: null, storedN: 0, seatFailures: 0, lastFailureAt: null, fence: 1, endedAt: null },
      ...{ parentRunId: null, parentNumber: null, parentRound: null, ...parentOf(this.id, restore) },
    });
    for (const { index, role, jobId } of placesOf(this.id, number, this.spec)) {
      rows.servers.set(placeKey({ attempt: number, index, role }), {
        ...{ attempt: number, index, role, term: 1, made: 0, madeAt: this.date(), serverId: null, host: null, port: null },
        ...{ unixPath: null, storage: null, claimedAt: null, droppedAt: null },
      });
      this.enqueue({ jobId, kind: 'placement', attempt: number, place: { index, role } });
    }
    this.cluster.watch.restored(round ?? 0, number);
  }

  private enqueue(row: Omit<Parameters<Rows['outbox']['set']>[1], 'id' | 'isSent'>): void {
    const id = this.rows.nextId();
    this.rows.outbox.set(id, { ...row, id, isSent: false });
  }

  // ---- what people ask ----

  pause(): boolean {
    const answer = answerRequest('pause', this.run.status, this.run.cancelRequestedAt !== null);
    if (answer.does !== 'move' && answer.does !== 'ask') return false;
    const to = answer.to ?? 'PAUSING';
    return this.move(to, 'asked for', to === 'PAUSED' ? { nextAttemptAt: null } : { pauseRequestedAt: this.date() });
  }

  resume(): boolean {
    const answer = answerRequest('resume', this.run.status, this.run.cancelRequestedAt !== null);
    return answer.does === 'begin' && this.begin('resumed');
  }

  cancel(): void {
    const answer = answerRequest('cancel', this.run.status, this.run.cancelRequestedAt !== null);
    if (answer.does === 'move') this.move(answer.to, 'cancelled');
    if (answer.does === 'ask') this.set({ cancelRequestedAt: this.date(), statusReason: 'is being cancelled' });
  }

  // ---- what reconcile says ----

  /** In PostgreSQL; what is left for Redis is the executor's. */
  carryOut({ attempt, status }: RunPicture, action: DispatchAction): boolean {
    if (this.run.attempt !== attempt) return false;
    switch (action.kind) {
      case 'mark-started':
        if (this.attempt.startedAt === null) this.setAttempt(attempt, { startedAt: this.date() });
        return true;
      case 'make-placement-again':
        return this.makePlacementAgain(attempt, action);
      case 'open-seat':
        return this.openSeat(attempt, action);
      case 'close-seat':
        this.closeTask(action.task.id, action.why);
        return true;
      case 'hold-seat':
        return this.holdSeat(attempt, action);
      case 'forget-seat-failures':
        this.setAttempt(attempt, { seatFailures: 0 });
        return true;
      case 'reprioritise-seat': {
        const task = this.rows.tasks.get(action.task.id);
        if (task) this.rows.tasks.set(task.id, { ...task, heldSeats: action.heldSeats });
        return true;
      }
      case 'move':
        return this.move(action.to, action.reason);
      case 'explain':
        if (this.run.status === status) this.set({ statusReason: action.reason });
        return true;
      case 'end-attempt':
        return this.end(action.end);
      case 'begin-attempt':
        return this.run.status === 'RECOVERING' && this.begin(action.reason);
      default:
        throw new Error(`${action.kind} is nothing for PostgreSQL`);
    }
  }

  private makePlacementAgain(attempt: number, { index, role, made, serverId }: ActionOf<'make-placement-again'>): boolean {
    const key = placeKey({ attempt, index, role });
    const server = this.rows.servers.get(key);
    if (server?.made !== made || server.serverId !== serverId) return false;
    this.rows.servers.set(key, {
      ...server,
      ...{
        made: made + 1,
        madeAt: this.date(),
        serverId: null,
        host: null,
        port: null,
        unixPath: null,
        storage: null,
        claimedAt: null,
        isLoading: false,
      },
    });
    this.enqueue({ jobId: placementJobId(this.id, attempt, index, made + 1, role), kind: 'placement', attempt, place: { index, role } });
    return true;
  }

  private openSeat(attempt: number, { seat, heldSeats }: ActionOf<'open-seat'>): boolean {
    const tasks = this.rows.tasks.values().filter((task) => task.attempt === attempt);
    if (tasks.some(({ state }) => state === 'OPEN')) return false;
    const n = Math.max(-1, ...tasks.filter((task) => task.seat === seat).map((task) => task.n)) + 1;
    const id = `00000000-0000-4000-8000-${String(this.rows.nextId()).padStart(12, '0')}`;
    this.rows.tasks.set(id, {
      ...{ id, attempt, seat, n, state: 'OPEN', heldSeats, workerId: null, replicas: [], createdAt: this.date(), heldAt: null },
    });
    this.enqueue({ jobId: stepTaskJobId(this.id, attempt, seat, n), kind: 'step-task', attempt, taskId: id });
    return true;
  }

  private holdSeat(attempt: number, { seat, n, workerId, replicas, isNew }: ActionOf<'hold-seat'>): boolean {
    for (const task of this.rows.tasks.values())
      if (task.attempt === attempt && task.seat === seat && task.n === n)
        this.rows.tasks.set(task.id, { ...task, state: 'HELD', workerId, replicas, ...(isNew ? { heldAt: this.date() } : {}) });
    return true;
  }

  // ---- reports ----

  /** The first claim of a part counts. */
  take(report: FleetReport): void {
    const { attempt } = report;
    if (report.kind === 'seat.left') {
      for (const task of this.rows.tasks.values())
        if (task.attempt === attempt && task.seat === report.seat && task.n === report.n) this.closeTask(task.id, report.reason);
      return;
    }
    if (this.run.attempt !== attempt) return;
    if (report.kind === 'server.claimed') {
      const { role = 'primary', made, address, storage = null, loading: isLoading = false } = report;
      const key = placeKey({ attempt, index: address.index, role });
      const server = this.rows.servers.get(key);
      if (server?.claimedAt === null && (made ?? server.made) === server.made)
        this.rows.servers.set(key, { ...server, ...address, storage, claimedAt: this.date(), isLoading });
      else if (server?.serverId === address.serverId && server.isLoading && !isLoading)
        this.rows.servers.set(key, { ...server, isLoading });
    } else if (report.kind === 'server.failed') {
      const { code, index, serverId, message } = report;
      const places = this.rows.servers.values().filter((place) => place.attempt === attempt);
      const heard = places.map((place) => ({ ...placeOf(place), serverId: place.serverId }));
      if (!complaintCounts(heard, this.attempt.startedAt !== null, { index, serverId })) return;
      const words = code === 'COORDINATOR_LOST' ? message : `parameter server ${index} failed (${code}): ${message}`;
      this.endNow(attempt, { kind: 'failed', cause: causeOfComplaint(code), message: words });
    } else this.seatFailed(report);
  }

  private seatFailed(report: Of<'seat.failed'>): void {
    const { attempt, seat, code } = report;
    if (!hasLiveAttempt(this.run.status)) return;
    this.setAttempt(attempt, { seatFailures: this.attempt.seatFailures + 1, lastFailureAt: this.date() });
    for (const task of this.rows.tasks.values())
      if (task.attempt === attempt && task.seat === seat && task.state === 'OPEN') this.closeTask(task.id, code);
    this.set({ lastSeatFailure: seatFailureOf(report) });
  }

  /** As apps/api/src/reports/journal-store.ts. */
  storeJournal(
    report: JournalReport,
    streamId: string,
  ): { ack: { attempt: number; n: number } | undefined; mustStop: boolean; changed: boolean } {
    const { rows, run } = this;
    const { storedN, fence } = this.attempt;
    const refusal = refusalOf(report, { attempt: run.attempt, fence });
    if (refusal) return { ...refusal, changed: false };
    const known = new Set(
      rows.entries
        .values()
        .filter(({ attempt, n }) => attempt === run.attempt && n > storedN)
        .map(({ n }) => n),
    );
    const entries = newEntriesOf(report.entries, storedN, known);
    for (const entry of entries) this.insert(report.attempt, entry);
    const n = highWaterOf(report, storedN);
    if (n > storedN) this.setAttempt(run.attempt, { storedN: n });
    const newest = entries.filter((entry) => entry.kind === 'metric').at(-1);
    const { next, changed } = keptStateOf(coordinatorOf(run), run.attempt, report.state, streamId, newest);
    this.set({ coordinator: next, coordinatorAt: this.date() });
    if (n > storedN) this.cluster.watch.storedUpTo(run.attempt, storedN, n);
    const outcomes = n > storedN && mayHaveOutcomes(entries, known.size > 0) ? this.outcomes(storedN, n) : [];
    this.followStatus(report, entries, outcomes);
    const isLive = hasLiveAttempt(this.run.status);
    return {
      ack: { attempt: run.attempt, n },
      mustStop: mustStop(report, isLive, entries),
      changed: changed || this.run.status !== run.status,
    };
  }

  private insert(attempt: number, entry: JournalEntry): void {
    this.cluster.watch.entryWritten(attempt, this.run.attempt);
    this.rows.entries.set(`${attempt}/${entry.n}`, { ...entry, attempt });
  }

  private outcomes(after: number, upTo: number): JournalOutcome[] {
    const outcomes: JournalOutcome[] = [];
    for (let n = after + 1; n <= upTo; n++) {
      const entry = this.rows.entries.get(`${this.run.attempt}/${n}`);
      if (entry?.kind === 'event' && OUTCOMES.includes(entry.type)) outcomes.push(entry);
    }
    return outcomes;
  }

  private followStatus({ state }: JournalReport, entries: readonly JournalEntry[], outcomes: readonly JournalOutcome[]): void {
    if (showsTraining(state, entries, outcomes)) {
      if (this.run.status === 'QUEUED') this.move('PROVISIONING', 'its servers are set up');
      if (this.run.status === 'PROVISIONING') this.move('RUNNING', `attempt ${this.run.attempt}`);
    }
    for (const outcome of outcomes) {
      if (outcome.type === 'checkpoint.written') this.keepCheckpoint(outcome);
      else this.end(endOf(outcome).end);
    }
  }

  private keepCheckpoint(outcome: JournalOutcome): void {
    const { rows, run } = this;
    const known = checkpointOf(outcome, run.attempt);
    if (!known) return;
    const key = `${known.attempt}/${known.round}`;
    if (!rows.checkpoints.get(key)) rows.checkpoints.set(key, { ...known, isInvalid: false, isRemoved: false });
    this.cluster.watch.checkpointWritten({ runId: this.id, attempt: known.attempt, round: known.round });
    const present = rows.checkpoints.values().map((row) => ({ ...row, isGone: row.isInvalid || row.isRemoved }));
    const lineage = lineageOf(rows.attempts.values().map(originOf), run.attempt);
    for (const gone of letGo(lineage, present, this.spec.checkpoint)) {
      const { isGone: _isGone, ...row } = gone;
      rows.checkpoints.set(`${row.attempt}/${row.round}`, { ...row, isRemoved: true });
    }
  }
}
