/**
 * What a coordinator does when work stands still although everybody is there and speaks. Nothing on a connection that holds can get lost; but
 * should a gradient, a message or an acknowledgement never come, whatever the mistake, nobody would wait for it for ever:
 *
 *   MOVING ── nobody is at work and nothing has come for 5 s ──> ASKED     everybody is asked to say and to send again
 *      ^                                                          │ 7 s more
 *      │                                                          ├──> DROPPED   members whose part is missing are lost: they come back over
 *      │                                                          │ 10 s more    new connections, and others do their work
 *      └── something new has come ─────────────────────────────── ┴──> the attempt ends with the cause STALLED, and says what is missing
 *
 * The time does not run while somebody computes, sends or receives (`rests` of its heartbeats is false; how long it may take is the step
 * deadline's business), while a server is silent, or while it is known what the run waits for (a worker, a standby, the arbiter).
 */
import type { Message } from '@paceline/protocol';
import type { Connection } from '../connection.js';

const ASK_AFTER_MS = 5_000;
const DROP_AFTER_MS = 7_000;
const END_AFTER_MS = 10_000;

export interface StallDeadlines {
  readonly askAfterMs?: number | undefined;
  readonly dropAfterMs?: number | undefined;
  readonly endAfterMs?: number | undefined;
}

export type StallStep = 'ask' | 'drop' | 'end';
const STEPS: readonly StallStep[] = ['ask', 'drop', 'end'];

export class StallDetector {
  private sinceMs: number;
  private taken = 0;

  constructor(
    private readonly now: () => number,
    private readonly deadlines: StallDeadlines = {},
  ) {
    this.sinceMs = now();
  }

  /** Everybody was asked again, and nothing has come of it yet. */
  get isStalled(): boolean {
    return this.taken > 0;
  }

  /** Something new has come. */
  moved(): void {
    this.taken = 0;
    this.excused();
  }

  /** Somebody is at work, or somebody else is waited for. */
  excused(): void {
    this.sinceMs = this.now();
  }

  /** Time that has passed up to now does not count. */
  skipped(ms: number): void {
    this.sinceMs = Math.min(this.now(), this.sinceMs + ms);
  }

  /** The step that is due. @param endAfterMs when there is a reason to wait longer than usual */
  due(endAfterMs = 0): StallStep | undefined {
    const { deadlines, taken } = this;
    const step = STEPS[taken];
    const waitMs = {
      ask: deadlines.askAfterMs ?? ASK_AFTER_MS,
      drop: deadlines.dropAfterMs ?? DROP_AFTER_MS,
      end: Math.max(deadlines.endAfterMs ?? END_AFTER_MS, endAfterMs),
    };
    if (step === undefined || this.now() - this.sinceMs < waitMs[step]) return undefined;
    this.taken++;
    this.excused();
    return step;
  }
}

/** A member's side: whether anything has moved here between two of its heartbeats. */
export class IdleDetector {
  private hasMoved = true;

  /** A chunk has come, or is on its way. */
  moved(): void {
    this.hasMoved = true;
  }

  /** At a heartbeat: nothing has come since the one before, nothing waits to be sent, and nothing is computed. */
  rests(isComputing: boolean, connections: readonly (Connection | undefined)[]): boolean {
    const rests = !this.hasMoved && !isComputing && connections.every((connection) => (connection?.queuedBytes ?? 0) === 0);
    this.hasMoved = false;
    return rests;
  }
}

export const TELL_AGAIN: Message = { type: 'tell-again' };

/** A few of many, for messages: `1, 2, 3 and 7 more`. */
export function some(items: readonly (number | string)[], most = 8): string {
  const shown = items.slice(0, most).join(', ');
  return items.length > most ? `${shown} and ${items.length - most} more` : shown;
}
