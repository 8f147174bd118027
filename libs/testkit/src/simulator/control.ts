/**
 * The part of the control plane that a run needs to move: it places the servers of an attempt, offers one seat as long as fewer are
 * held than the run has replicas, and collects the journal. It may be away (an api or Redis that is down) without any round noticing.
 */
import type { NumberedEntry, Outcome } from '@paceline/exchange';
import type { Cluster } from './cluster.js';
import type { HostedAttempt } from './sim-server.js';

const PERIOD_MS = 50;
const SEATED_WITHIN_MS = 30_000;

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
  attempt = 0;
  /** The end of the run as the control plane has learned it. */
  outcome: { readonly outcome: Outcome; readonly message: string } | undefined;
  isAway = false;
  /** How often a step task is handed out. */
  deliveriesPerTask = 1;
  readonly journal: NumberedEntry[] = [];
  private parts: HostedAttempt[] = [];
  private open: OpenTask | undefined;
  private readonly seatNumbers = new Map<number, number>();
  private lastStored = 0;

  constructor(private readonly cluster: Cluster) {}

  begin(): void {
    this.newAttempt();
    const period = (): void => {
      if (!this.isAway) this.reconcile();
      if (!this.outcome) this.cluster.world.schedule(PERIOD_MS, 'control', period);
    };
    this.cluster.world.schedule(PERIOD_MS, 'control', period);
  }

  /** The newest attempt's part with the coordinator. */
  get coordinatorPart(): HostedAttempt | undefined {
    return this.parts[0];
  }

  takeTask(workerId: string): StepTask | undefined {
    const { open, cluster } = this;
    if (!open || this.isAway || this.outcome || open.deliveries >= this.deliveriesPerTask) return undefined;
    open.takenAtMs = cluster.world.nowMs;
    if (++open.deliveries > 1) cluster.network.count('step task delivered twice');
    cluster.world.note(`task ${open.task.seat}/${open.task.n} to ${workerId}`);
    return open.task;
  }

  /** A worker has left the seat of its task, or could not take it. */
  taskOver(task: StepTask, _failure: string | undefined): void {
    if (this.open?.task === task) this.open = undefined;
  }

  partOver(part: HostedAttempt): void {
    this.cluster.world.note(`part ${part.server.index} of attempt ${part.attempt} over`);
  }

  private newAttempt(): void {
    const { cluster } = this;
    this.attempt++;
    this.open = undefined;
    this.parts = cluster.servers.map((server) => server.place(this.attempt));
    cluster.hosted.push(...this.parts);
    for (const part of this.parts)
      cluster.world.schedule(cluster.world.random.between(1, 100), `start of server ${part.server.index}`, () =>
        part.server.process.run(() => {
          cluster.world.microtasksWait = true;
          part.start(cluster.servers[0]!.address);
        }),
      );
  }

  private reconcile(): void {
    const part = this.coordinatorPart;
    if (!part) return;
    const { process } = part.server;
    if (!process.isAlive) return this.over('failed', 'the coordinator does not report any more');
    if (process.isFrozen) return;
    this.collectJournal(part);
    if (part.outcome && part.journal!.pending === 0) return this.over(part.outcome.outcome, part.outcome.message);
    this.keepSeatOpen(part);
  }

  private collectJournal(part: HostedAttempt): void {
    const { random } = this.cluster.world;
    const entries = part.journal!.batch(20, random.chance(0.3) ? 0 : this.lastStored);
    for (const entry of entries) {
      if (entry.n <= this.lastStored) continue;
      this.lastStored = entry.n;
      // As stored: what the coordinator changes afterwards must not show.
      this.journal.push({ ...entry });
      this.cluster.watch.stored(entry);
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

  private over(outcome: Outcome, message: string): void {
    if (this.outcome) return;
    this.outcome = { outcome, message };
    this.cluster.watch.runOver(outcome, message);
  }
}
