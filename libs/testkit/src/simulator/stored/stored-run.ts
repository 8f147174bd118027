/**
 * What the api writes about a run, over rows in memory: the transactions of apps/api/src/runs and dispatch/executor.ts. What they decide
 * comes from libs/control-plane; here rows are read and written. The contract of stored-contract.fixture.ts holds this and the api to the same.
 */
import {
  begunAttempt,
  closedSeat,
  coordinatorOf,
  endedAttempt,
  foreignOrigin,
  movedTo,
  nextRestore,
  originOf,
  parentOf,
  observedRunOf,
  placesOf,
  requested,
  resultKeptBy,
  neededOf,
  serverProcesses,
  waitingAt,
  waitsForServers,
  type AfterEnd,
  type AskedOfRun,
  type AttemptEnd,
  type ControlFields,
  type Moved,
  type RequestStep,
  type RestoreDecision,
  type RestorePoint,
  type RunChange,
  type ObservedRun,
  type RunResult,
  type RunStatus,
  type StatusMove,
  type StoredEvent,
} from '@paceline/control-plane';
import type { RunSpec } from '@paceline/spec';
import type { CheckpointId } from '@paceline/storage';
import { placeKey, type AttemptRow, type PlaceRow, type Rows, type RunRow, type TaskRow } from '../world/postgres.js';

const MAX_EVENT_CHARACTERS = 2000;

/** Is told what transactions do while they are carried out. */
export interface RunWitness {
  moved(from: RunStatus, to: RunStatus, reason: string, cause: string | undefined): void;
  attemptEnded(after: AfterEnd, end: AttemptEnd): void;
  restored(round: number, attempt: number): void;
  endedAfter(began: CheckpointId, end: AttemptEnd): void;
  entryWritten(attempt: number, present: number): void;
  storedUpTo(attempt: number, after: number, sequence: number): void;
  checkpointWritten(id: CheckpointId): void;
}

export interface StoredRunOptions {
  readonly runId: string;
  readonly rows: Rows;
  /** The wall clock of the api that writes. */
  readonly wallMs: number;
  /** Uniform in [0, 1). */
  random(): number;
  /** Rows of the run with whose checkpoint this one began. */
  readonly otherRows?: (runId: string) => Rows | undefined;
  readonly watch: RunWitness;
}

/** One transaction's view of the run: made for it, and thrown away with it. */
export class StoredRun {
  constructor(private readonly options: StoredRunOptions) {}

  get id(): string {
    return this.options.runId;
  }

  get rows(): Rows {
    return this.options.rows;
  }

  get watch(): RunWitness {
    return this.options.watch;
  }

  get run(): RunRow {
    return this.rows.runs.get(this.id)!;
  }

  get attempt(): AttemptRow {
    return this.rows.attempts.get(this.run.attempt)!;
  }

  get spec(): RunSpec {
    return this.run.spec as RunSpec;
  }

  get now(): Date {
    return new Date(this.options.wallMs);
  }

  set(change: RunChange | Partial<RunRow>): void {
    this.rows.runs.set(this.id, { ...this.run, ...change });
  }

  setAttempt(number: number, change: Partial<AttemptRow>): void {
    const row = this.rows.attempts.get(number);
    if (row) this.rows.attempts.set(number, { ...row, ...change });
  }

  places(attempt: number): PlaceRow[] {
    return this.rows.servers.values().filter((place) => place.attempt === attempt);
  }

  setPlace(place: { attempt: number; index: number; role: string }, change: Partial<PlaceRow>): void {
    const key = placeKey(place);
    const row = this.rows.servers.get(key);
    if (row) this.rows.servers.set(key, { ...row, ...change });
  }

  tasks(is: (task: TaskRow) => boolean): TaskRow[] {
    return this.rows.tasks.values().filter(is);
  }

  setTask(task: TaskRow, change: Partial<TaskRow>): void {
    this.rows.tasks.set(task.id, { ...task, ...change });
  }

  addEvents(events: readonly (StoredEvent & { readonly sequence?: number })[]): void {
    for (const { sequence, message, ...event } of events) {
      const seq = this.rows.nextId();
      this.rows.events.set(seq, { ...event, seq, sequence: sequence ?? null, message: message.slice(0, MAX_EVENT_CHARACTERS) });
    }
  }

  // ---- beginning and reading ----

  /** Run, attempt, places and jobs appear in one transaction, as apps/api/src/runs/create-run.ts writes them. */
  create(
    spec: RunSpec,
    { totalRounds, roundsPerEpoch }: { readonly totalRounds: number; readonly roundsPerEpoch: number },
    from: RestorePoint | null = null,
  ): void {
    const coordinator = from && waitingAt(1, from.round);
    this.rows.runs.set(this.id, {
      id: this.id,
      status: 'PENDING',
      statusReason: null,
      isWaiting: false,
      attempt: 1,
      spec,
      workersWanted: null,
      lastSeatFailure: null,
      cancelRequestedAt: null,
      pauseRequestedAt: null,
      nextAttemptAt: null,
      finishedAt: null,
      coordinator,
      coordinatorAt: null,
      restartsUsed: 0,
      restartsTotal: 0,
      bestRound: 0,
      result: null,
      serverCount: serverProcesses(spec),
      totalRounds,
      roundsPerEpoch,
    });
    this.addAttempt(1, from);
    this.addEvents([
      { attempt: 1, type: 'run.created', message: `run ${JSON.stringify(spec.name)} was created`, data: from ? { from: { ...from } } : {} },
    ]);
    this.move({ to: 'QUEUED', reason: waitsForServers({ liveServers: 0 }, neededOf(spec), 0) });
  }

  /** Reads the rows now; the control hash that they are compared with is read afterwards. */
  observedWith(): (control: ControlFields) => ObservedRun | undefined {
    const { rows, run, attempt } = this;
    const stored = {
      ...run,
      attempts: [attempt],
      servers: rows.servers.values(),
      stepTasks: this.tasks(({ state }) => state !== 'CLOSED'),
    };
    return (control) => observedRunOf(stored, control, attempt.seatFailures > 0 ? run.lastSeatFailure : null);
  }

  // ---- moves, as runs/status-moves.ts ----

  move(move: StatusMove): boolean {
    const from = this.run.status;
    const kept = resultKeptBy(this.run, move) ?? move;
    const moved = movedTo(this.run, kept, this.now);
    if (!moved) return false;
    this.set({ ...moved.run, ...kept.set });
    this.addEvents([moved.event]);
    this.watch.moved(from, kept.to, moved.run.statusReason, kept.cause);
    if (moved.ends) this.closeAttempt(moved.ends);
    return true;
  }

  /** Nothing of the attempt is asked of the fleet any more. */
  private closeAttempt({ why, ...end }: NonNullable<Moved['ends']>): void {
    const { rows, run } = this;
    for (const row of rows.outbox.values()) if (!row.isSent) rows.outbox.delete(row.id);
    if (this.attempt.endedAt === null) this.setAttempt(run.attempt, { ...end, endRound: coordinatorOf(run)?.round ?? null });
    for (const task of this.tasks(({ state }) => state !== 'CLOSED')) this.setTask(task, closedSeat(why, this.now));
  }

  // ---- attempts, as runs/attempts.ts ----

  /** @returns whether it has ended just now */
  end(end: AttemptEnd, result?: RunResult): boolean {
    const { after, moves, invalid } = endedAttempt(this.run, this.attempt, end, this.now, () => this.options.random());
    if (moves.length === 0) {
      this.watch.attemptEnded(after, end);
      return false;
    }
    const { parentNumber, parentRound } = this.attempt;
    if (parentNumber !== null) this.watch.endedAfter({ runId: this.id, attempt: parentNumber, round: parentRound ?? 0 }, end);
    if (invalid) {
      const key = `${invalid.attempt}/${invalid.round}`;
      const checkpoints = this.checkpointsOf(invalid.runId);
      const checkpoint = checkpoints?.get(key);
      if (checkpoint) checkpoints!.set(key, { ...checkpoint, isInvalid: true });
    }
    const [first] = moves.length > 1 ? moves : [];
    if (first) this.move(first);
    this.watch.attemptEnded(after, end);
    const last = moves.at(-1)!;
    this.move(last);
    if (result) this.set({ result });
    return true;
  }

  begin(reason: string, set: RunChange = {}, keepsWorkers = false): boolean {
    const { attempt, run, move } = begunAttempt({ ...this.run, ...set }, this.nextRestore(set.totalRounds), reason, keepsWorkers);
    if (!attempt) return this.move(move) && false;
    this.set({ ...set, ...run });
    const { number, parentNumber, parentRound, parentRunId } = attempt;
    const isRestored = parentNumber !== undefined && parentRound !== undefined;
    this.addAttempt(number, isRestored ? { runId: parentRunId ?? this.id, attempt: parentNumber, round: parentRound } : null);
    return this.move(move);
  }

  private checkpointsOf(runId: string): Rows['checkpoints'] | undefined {
    return (runId === this.id ? this.rows : this.options.otherRows?.(runId))?.checkpoints;
  }

  private nextRestore(totalRounds?: number): RestoreDecision {
    const { rows, run } = this;
    const checkpoints = rows.checkpoints.values().map(({ attempt, round, isInvalid, isRemoved }) => ({
      attempt,
      round,
      isGone: isInvalid || isRemoved,
    }));
    const origins = rows.attempts.values().map(originOf);
    const foreign = foreignOrigin(origins.find(({ parentRunId }) => parentRunId !== null));
    const origin = foreign && this.checkpointsOf(foreign.runId)?.get(`${foreign.attempt}/${foreign.round}`);
    const isOriginGone = foreign !== undefined && (!origin || origin.isInvalid || origin.isRemoved);
    return nextRestore(this.id, origins, run.attempt, checkpoints, isOriginGone, totalRounds);
  }

  private addAttempt(number: number, restore: RestorePoint | null): void {
    const { rows } = this;
    rows.attempts.set(number, {
      number,
      startedAt: null,
      storedSequence: 0,
      seatFailures: 0,
      lastFailureAt: null,
      coordinatorTerm: 1,
      endedAt: null,
      endCause: null,
      endReason: null,
      endRound: null,
      parentRunId: null,
      parentNumber: null,
      parentRound: null,
      ...parentOf(this.id, restore),
    });
    for (const { index, role, jobId } of placesOf(this.id, number, this.spec)) {
      rows.servers.set(placeKey({ attempt: number, index, role }), {
        attempt: number,
        index,
        role,
        term: 1,
        incarnation: 0,
        madeAt: this.now,
        serverId: null,
        host: null,
        port: null,
        unixPath: null,
        storage: null,
        claimedAt: null,
        isLoading: false,
        droppedAt: null,
      });
      this.enqueue({ jobId, kind: 'placement', attempt: number, place: { index, role } });
    }
    this.watch.restored(restore?.round ?? 0, number);
  }

  enqueue(row: Omit<Parameters<Rows['outbox']['set']>[1], 'id' | 'isSent'>): void {
    const id = this.rows.nextId();
    this.rows.outbox.set(id, { ...row, id, isSent: false });
  }

  // ---- what people ask, as runs/run-requests.ts ----

  /** @returns what the request came to, and whether it has changed anything */
  ask(asked: AskedOfRun): { readonly does: RequestStep['does']; readonly hasChanged: boolean } {
    const step = requested(this.run, asked, this.now);
    switch (step.does) {
      case 'move':
        return { does: 'move', hasChanged: this.move(step.move) };
      case 'set':
        this.set(step.run);
        if (step.event) this.addEvents([{ attempt: this.run.attempt, ...step.event }]);
        return { does: 'set', hasChanged: true };
      case 'begin':
        if (step.needsCheckpoint && this.nextRestore(step.run.totalRounds).kind !== 'checkpoint')
          return { does: 'refuse', hasChanged: false };
        return { does: 'begin', hasChanged: this.begin(step.reason, step.run) };
      default:
        return { does: step.does, hasChanged: false };
    }
  }
}
