/** How an attempt ends: in its table, in its journal, and for everybody who takes part. */
import type { FailureCause, Message } from '@paceline/protocol';
import type { Attempt } from './attempt.js';
import type { AttemptEnd, Outcome } from './attempt-options.js';
import type { CheckpointTracker } from './checkpoints.js';

/** What the event of a failure tells besides its message. */
type Failure = Record<string, unknown> & { readonly cause?: FailureCause };

export class Ending implements AttemptEnd {
  private untold: { readonly outcome: Outcome; readonly message: string } | undefined;

  constructor(
    private readonly attempt: Attempt,
    private readonly checkpoints: CheckpointTracker,
  ) {}

  over(
    row: 'collected' | 'cancel' | 'serverLost' | 'fail' | 'lost' | 'stopped' | 'stalled',
    outcome: Outcome,
    message: string,
    failure: Failure = {},
  ): void {
    this.attempt.table.take(row, 'OVER');
    this.conclude(outcome, message, failure);
  }

  cancel(): void {
    const { attempt } = this;
    if (attempt.isOver) return;
    attempt.event('run.cancelled', `cancelled in round ${attempt.round}`, { round: attempt.round });
    this.over('cancel', 'cancelled', 'the run was cancelled');
  }

  fail(message: string, cause: FailureCause = 'INTERNAL'): void {
    if (!this.attempt.isOver) this.over('fail', 'failed', message, { cause });
  }

  /** The state is OVER: says so to everybody, as soon as it is certain that no standby goes on in its place. */
  conclude(outcome: Outcome, message: string, failure: Failure = {}): void {
    const { attempt } = this;
    if (outcome === 'failed') attempt.event('run.failed', message, { round: attempt.round, newest: this.checkpoints.newest, ...failure });
    this.untold = { outcome, message };
    attempt.options.surroundings.concluded(this);
  }

  say(): void {
    const { attempt, untold } = this;
    if (!untold) return;
    this.untold = undefined;
    const { outcome, message } = untold;
    const end: Message = { type: 'end', outcome, message: message.slice(0, 2000) };
    attempt.members.send(end, attempt.numbers());
    attempt.servers.send(end, attempt.numbers());
    attempt.options.surroundings.over(outcome, message);
  }
}
