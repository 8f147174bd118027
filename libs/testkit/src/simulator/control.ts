/**
 * The part of the control plane that a run needs to move. It decides with the tables of libs/jobs: what an ended attempt is followed by,
 * how many restarts are left, and which checkpoint the next attempt begins with. It places servers, offers one seat as long as fewer
 * are held than the run has replicas, and collects the journal; it may be away without any round noticing.
 *
 *   QUEUED ── all servers are there and have loaded ──> RUNNING ── attempt over ──> afterEnd: RECOVERING, PAUSED or the end
 */
import type { NumberedEntry } from '@paceline/exchange';
import {
  NO_RESTARTS,
  afterEnd,
  causeOfFailure,
  isOver,
  mayMove,
  nextRestore,
  type AttemptEnd,
  type AttemptOrigin,
  type RestorePoint,
  type RunStatus,
  type StoredCheckpoint,
} from '@paceline/jobs';
import type { Cluster } from './cluster.js';
import type { HostedAttempt } from './hosted-attempt.js';

const PERIOD_MS = 50;
const SEATED_WITHIN_MS = 30_000;
const COORDINATOR_SILENT_MS = 5_000;
const RESTARTS = 10;

export interface StepTask {
  readonly runId: string;
  readonly attempt: number;
  readonly seat: number;
  readonly n: number;
  readonly servers: readonly { index: number; serverId: string; address: string }[];
}

interface OpenTask {
  readonly task: StepTask;
  takenAtMs: number | undefined;
  deliveries: number;
}

export class Control {
  status: RunStatus = 'PENDING';
  attempt = 0;
  reason = '';
  isAway = false;
  isCancelWanted = false;
  /** How often a step task is handed out. */
  deliveriesPerTask = 1;
  readonly journal: NumberedEntry[] = [];
  readonly attempts: AttemptOrigin[] = [];
  /** Checkpoints that the journal has told of. */
  readonly checkpoints: (StoredCheckpoint & { isGone: boolean })[] = [];
  private count = NO_RESTARTS;
  private parts: HostedAttempt[] = [];
  private open: OpenTask | undefined;
  private readonly seatNumbers = new Map<number, number>();
  private lastStored = 0;
  private lastHeardMs = 0;
  private beginAtMs = 0;
  private cause: unknown;

  constructor(private readonly cluster: Cluster) {}

  begin(): void {
    this.move('QUEUED', 'accepted');
    const period = (): void => {
      if (!this.isAway) this.reconcile();
      if (!isOver(this.status)) this.cluster.world.schedule(PERIOD_MS, 'control', period);
    };
    this.cluster.world.schedule(0, 'control', period);
  }

  get isOver(): boolean {
    return isOver(this.status);
  }

  /** The newest attempt's part with the coordinator, once there is one. */
  get coordinatorPart(): HostedAttempt | undefined {
    return this.parts[0]?.coordinator ? this.parts[0] : undefined;
  }

  pause(): boolean {
    if (this.status !== 'RUNNING') return false;
    this.move('PAUSING', 'asked for');
    return true;
  }

  resume(): void {
    if (this.status === 'PAUSED') this.queue('resumed');
  }

  cancel(): void {
    this.isCancelWanted = true;
    if (!isOver(this.status) && (this.status === 'PAUSED' || this.status === 'RECOVERING')) this.move('CANCELLED', 'cancelled');
  }

  takeTask(workerId: string): StepTask | undefined {
    const { open, cluster } = this;
    if (!open || this.isAway || this.isOver || open.deliveries >= this.deliveriesPerTask) return undefined;
    open.takenAtMs = cluster.world.nowMs;
    if (++open.deliveries > 1) cluster.network.count('step task delivered twice');
    cluster.world.note(`task ${open.task.seat}/${open.task.n} to ${workerId}`);
    return open.task;
  }

  /** A worker has left the seat of its task, or could not take it. */
  taskOver(task: StepTask): void {
    if (this.open?.task === task) this.open = undefined;
  }

  partOver(part: HostedAttempt): void {
    this.cluster.world.note(`part ${part.server.index} of attempt ${part.attempt} over`);
  }

  private queue(why: string): void {
    this.beginAtMs = this.cluster.world.nowMs;
    this.move('QUEUED', why);
  }

  private move(to: RunStatus, reason: string): void {
    const { cluster, status } = this;
    cluster.checks.expect(mayMove(status, to), 'I6', () => `the run went from ${status} to ${to}: ${reason}`);
    cluster.world.note(`status ${to}`);
    cluster.world.recent.push(`${cluster.world.nowMs.toFixed(3)} STATUS ${to}: ${reason}`);
    this.status = to;
    this.reason = reason;
    if (isOver(to)) cluster.watch.runOver(to, reason);
  }

  private reconcile(): void {
    if (this.status === 'RECOVERING' && this.cluster.world.nowMs >= this.beginAtMs) this.queue('the next attempt');
    else if (this.status === 'QUEUED' && this.parts.length === 0) this.place();
    else if (this.status === 'RUNNING' || this.status === 'PAUSING' || this.status === 'PROVISIONING') this.follow();
    if (this.isCancelWanted && !this.isOver && this.parts.length === 0 && this.status === 'QUEUED') this.move('CANCELLED', 'cancelled');
  }

  /** Every server that is needed takes its part, loads, and begins when all have. */
  private place(): void {
    const { cluster } = this;
    const { servers, world } = cluster;
    if (this.isCancelWanted || servers.some(({ process }) => !process.isAlive || process.isFrozen)) return;
    const decision = nextRestore(cluster.runId, this.attempts, this.attempt, this.checkpoints);
    const restore: RestorePoint | undefined = decision.kind === 'checkpoint' ? decision.restore : undefined;
    this.attempt++;
    this.attempts.push({
      number: this.attempt,
      parentRunId: null,
      parentNumber: restore?.attempt ?? null,
      parentRound: restore?.round ?? null,
    });
    this.open = undefined;
    this.seatNumbers.clear();
    this.lastStored = 0;
    this.cause = undefined;
    this.lastHeardMs = world.nowMs;
    cluster.watch.restored(restore?.round ?? 0, this.attempt);
    this.move('PROVISIONING', `attempt ${this.attempt} from round ${restore?.round ?? 0}`);
    const { attempt } = this;
    const parts: HostedAttempt[] = [];
    for (const server of servers) server.process.run(() => parts.push(server.place(attempt, restore)));
    this.parts = parts;
    cluster.hosted.push(...parts);
    world.microtasksWait = true;
    void Promise.all(parts.map((part) => part.prepare())).then(
      // The attempt may be over before everybody has loaded.
      () => this.parts === parts && this.start(parts),
      (error: Error) => {
        if (this.parts !== parts) return;
        if (!restore) return this.attemptOver({ kind: 'failed', cause: 'INTERNAL', message: error.message });
        const gone = this.checkpoints.find((known) => known.attempt === restore.attempt && known.round === restore.round);
        if (gone) gone.isGone = true;
        cluster.watch.notLoaded(restore, error);
        this.attemptOver({ kind: 'failed', cause: 'CHECKPOINT_INVALID', message: error.message });
      },
    );
  }

  private start(parts: readonly HostedAttempt[]): void {
    const { cluster } = this;
    this.move('RUNNING', `attempt ${this.attempt}`);
    for (const part of parts)
      cluster.world.schedule(cluster.world.random.between(1, 100), `start of server ${part.server.index}`, () =>
        part.server.process.run(() => {
          cluster.world.microtasksWait = true;
          part.start(parts[0]!.server.address);
        }),
      );
  }

  private follow(): void {
    const { world } = this.cluster;
    const part = this.coordinatorPart;
    const process = this.parts[0]!.server.process;
    if (this.status === 'PROVISIONING' && this.parts.some(({ server }) => !server.process.isAlive))
      return this.attemptOver({ kind: 'failed', cause: 'SERVER_LOST', message: 'a server was lost before the attempt began' });
    if (!process.isAlive || process.isFrozen || !part) {
      if (this.parts.some(({ server }) => !server.process.isAlive) || world.nowMs - this.lastHeardMs > COORDINATOR_SILENT_MS)
        if (world.nowMs - this.lastHeardMs > (process.isAlive ? COORDINATOR_SILENT_MS : 500))
          this.attemptOver({ kind: 'failed', cause: 'COORDINATOR_SILENT', message: 'the coordinator reports nothing any more' });
      return;
    }
    this.lastHeardMs = world.nowMs;
    this.collectJournal(part);
    const coordinator = part.coordinator!;
    if (part.outcome) {
      if (part.journal!.pending > 0) return;
      const { outcome, message } = part.outcome;
      return this.attemptOver(
        outcome === 'failed' ? { kind: 'failed', cause: causeOfFailure(this.cause), message } : { kind: outcome, message },
      );
    }
    if (this.isCancelWanted && part.hasStarted) process.run(() => coordinator.cancel());
    else if (this.status === 'PAUSING' && part.hasStarted) process.run(() => coordinator.pause());
    // Nobody is sent to a server that is still loading.
    if (this.status !== 'PROVISIONING') this.keepSeatOpen(part);
  }

  private attemptOver(end: AttemptEnd): void {
    const { cluster, status, isCancelWanted, count } = this;
    const committedRounds = cluster.watch.committedRounds;
    const next = afterEnd({ status, isCancelWanted, restarts: RESTARTS, count, committedRounds }, end, () => cluster.world.random.float());
    cluster.world.note(`attempt over: ${next.row}`);
    cluster.ends.set(next.row, (cluster.ends.get(next.row) ?? 0) + 1);
    if (next.row === 'restart') cluster.watch.restarted(next.reason);
    // The device that computed it is not asked again: the same rounds, once more, are finite.
    if (end.kind === 'failed' && end.cause === 'NON_FINITE_ROLLBACK') cluster.run.spoiled.clear();
    this.count = next.count;
    this.parts = [];
    this.open = undefined;
    if (next.restartAfterMs !== null) this.beginAtMs = cluster.world.nowMs + next.restartAfterMs;
    if (next.to) this.move(next.to, next.reason);
  }

  private collectJournal(part: HostedAttempt): void {
    const { random } = this.cluster.world;
    const { checks } = this.cluster;
    checks.expect(
      part.attempt === this.attempt,
      'I7',
      () => `attempt ${part.attempt} writes to the run, which is in attempt ${this.attempt}`,
    );
    const entries = part.journal!.batch(20, random.chance(0.3) ? 0 : this.lastStored);
    for (const entry of entries) {
      if (entry.n <= this.lastStored) continue;
      this.lastStored = entry.n;
      // As stored: what the coordinator changes afterwards must not show.
      this.journal.push({ ...entry });
      this.cluster.watch.stored(entry);
      if (entry.kind !== 'event') continue;
      if (entry.type === 'run.failed') this.cause = entry.data['cause'];
      if (entry.type !== 'checkpoint.written') continue;
      const round = Number(entry.data['round']);
      this.checkpoints.push({ attempt: part.attempt, round, isGone: false });
      this.cluster.watch.checkpointWritten({ runId: this.cluster.runId, attempt: part.attempt, round });
    }
    // An acknowledgement may be lost on its way.
    if (random.chance(0.8)) part.journal!.acknowledge(this.lastStored);
  }

  private keepSeatOpen(part: HostedAttempt): void {
    const { cluster, open } = this;
    const coordinator = part.coordinator!;
    if (coordinator.phase === 'finished' || (coordinator.phase === 'evaluating' && coordinator.seats().length > 0)) return;
    const held = coordinator.seats();
    if (open) {
      const isHeld = held.some(({ seat, n }) => seat === open.task.seat && n === open.task.n);
      const isLate = open.takenAtMs !== undefined && cluster.world.nowMs - open.takenAtMs > SEATED_WITHIN_MS;
      if (isHeld || isLate) this.open = undefined;
      return;
    }
    if (held.length >= cluster.run.shape.replicas) return;
    let seat = 0;
    while (held.some((taken) => taken.seat === seat)) seat++;
    const n = (this.seatNumbers.get(seat) ?? -1) + 1;
    this.seatNumbers.set(seat, n);
    const servers = this.parts.map(({ server }) => ({ index: server.index, serverId: server.process.name, address: server.address }));
    this.open = { task: { runId: cluster.runId, attempt: this.attempt, seat, n, servers }, takenAtMs: undefined, deliveries: 0 };
  }
}
