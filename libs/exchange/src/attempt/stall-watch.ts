/** What the coordinator does while work stands still although everybody is there and speaks (stall.ts), and what it says of work that takes long. */
import type { Attempt } from './attempt.js';
import type { Attendance } from './attendance.js';
import type { Ending } from './ending.js';
import type { Measurements } from './measurements.js';
import type { CoordinatedMember as Member } from './membership.js';
import { TELL_AGAIN, some, type StallDetector } from './stall.js';
import { STALL_MS } from '../stall-tolerant-clock.js';
import type { Coordinated } from './work-plan.js';

/** A round that takes longer is explained, though somebody is at work on it. */
const EXPLAINED_AFTER_MS = 15_000;

export class StallWatch {
  private lastMovedMs = 0;
  private lastTickMs = -Infinity;

  constructor(
    private readonly attempt: Attempt,
    private readonly detector: StallDetector,
    private readonly attendance: Attendance,
    private readonly measurements: Measurements,
    private readonly ending: Ending,
    private readonly coordinator: Coordinated,
  ) {}

  /** Everybody was asked again, and nothing has come of it yet. */
  get isStalled(): boolean {
    return this.detector.isStalled;
  }

  /** Something new has come that brings the present work on. */
  moved(): void {
    this.lastMovedMs = this.attempt.options.now();
    this.detector.moved();
  }

  /** What the run waits for, in at most 300 characters, and also what a round lacks that has not moved for long, though everything that it needs is there. */
  explain(): string | null {
    const waitingFor = this.coordinator.waitingFor();
    if (waitingFor !== null || !this.canStall()) return waitingFor;
    const isLong = this.attempt.options.now() - this.lastMovedMs > EXPLAINED_AFTER_MS;
    return isLong || this.isStalled ? this.lacking().slice(0, 300) : null;
  }

  private canStall(): boolean {
    const { attempt } = this;
    return this.coordinator.plan.ledger.hasBegun && (attempt.isTraining || attempt.table.state === 'EVALUATING');
  }

  tick(): void {
    const { attempt, attendance, coordinator, detector } = this;
    const { members, servers, options } = attempt;
    const isAtWork = (member: Member): boolean => !member.rests && attendance.owes(member);
    this.excuseGrace(options.now());
    if (!this.canStall() || coordinator.waitingFor() !== null || !servers.allSpeak || members.live().some(isAtWork))
      return detector.excused();
    // A shard with a standby may wait for the arbiter, and says nothing of it here.
    const step = detector.due(coordinator.plan.present.mayAwaitArbiter() ? (options.takeoverDeadlineMs ?? 300_000) : 0);
    if (step === 'ask') this.ask();
    if (step === 'drop') {
      attempt.table.take('undelivered');
      for (const member of this.owing()) attendance.lose(member, `it is idle; missing: ${this.lacking()}`, 'SILENT_PEER');
    }
    const why = `round ${attempt.round} stands still: it waits for ${this.lacking()}`;
    if (step === 'end') this.ending.over('stalled', 'failed', why, { cause: 'STALLED' });
  }

  /**
   * No tick comes in the grace after this process stood still (StallTolerantClock). What came at its beginning counts as heard at its end, so the
   * grace counts here neither: else work is said to stand still before a server is noticed that has been silent since. What counted before the grace
   * stays, or a process that is blocked often would never ask.
   */
  private excuseGrace(nowMs: number): void {
    const skippedMs = nowMs - this.lastTickMs;
    if (skippedMs > STALL_MS) this.detector.skipped(skippedMs);
    this.lastTickMs = nowMs;
  }

  private ask(): void {
    const { attempt, measurements } = this;
    const { round } = attempt;
    attempt.table.take('askedAgain');
    const message = `round ${round} stands still, although everybody is connected: it waits for ${this.lacking()}; everybody is asked to send again`;
    attempt.event('round.stalled', message, { round });
    if (!this.isMeasuring) this.coordinator.plan.askAgain();
    attempt.tell(TELL_AGAIN);
    for (const member of this.owing()) measurements.withdraw(member.id);
  }

  /** What stands still is a measurement. */
  private get isMeasuring(): boolean {
    return this.measurements.isUnderWay || !this.attempt.isTraining;
  }

  private owing(): Member[] {
    if (!this.isMeasuring) return this.coordinator.plan.present.undelivered();
    return this.attempt.members.live().filter(({ id }) => this.measurements.owes(id));
  }

  private lacking(): string {
    if (!this.isMeasuring) return this.coordinator.plan.present.lacks();
    return `measures of the evaluation split from worker ${some(this.owing().map(({ id }) => id))}`;
  }
}
