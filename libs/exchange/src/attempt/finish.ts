/**
 * After the last round: the evaluation split is measured, where no validation has done so, the weights are collected, and with the final checkpoint
 * the run is finished.
 */
import type { Attempt } from './attempt.js';
import type { Attendance } from './attendance.js';
import type { CheckpointTracker } from './checkpoints.js';
import type { Ending } from './ending.js';
import type { Measurements, Measurer } from './measurements.js';
import { UNMEASURED, type Measures } from './measures.js';
import type { Validations } from './validations.js';

export class Finish implements Measurer {
  /** The result, while the final checkpoint is still being written. */
  private result: Record<string, unknown> | undefined;
  /** Why the file of the weights is not written yet. */
  private obstacle: string | undefined;

  constructor(
    private readonly attempt: Attempt,
    private readonly checkpoints: CheckpointTracker,
    private readonly measurements: Measurements,
    private readonly validations: Validations,
    private readonly attendance: Attendance,
    private readonly ending: Ending,
  ) {}

  /** While weights are collected: what that waits for. */
  get waitingFor(): string {
    if (this.result) return 'its final checkpoint to be written';
    return this.obstacle === undefined ? 'its weights to be collected' : `its weights to be written (${this.obstacle})`;
  }

  /** The state after training: nothing is left to measure where nothing can be, or a validation has. */
  get firstState(): 'EVALUATING' | 'COLLECTING' {
    const { options, round } = this.attempt;
    return options.evalExamples === 0 || this.validations.endOf(round) ? 'COLLECTING' : 'EVALUATING';
  }

  /** All rounds are done, and the state is `firstState`. */
  begin(): void {
    const { options, round } = this.attempt;
    this.tellUnwritten();
    const end = this.validations.endOf(round);
    if (end) return options.surroundings.collectWeights(end.values ?? UNMEASURED, end.generation === round ? undefined : end.generation);
    if (options.evalExamples === 0) return options.surroundings.collectWeights(UNMEASURED);
    this.measurements.begin(round, { from: 0, to: options.evalExamples }, this);
    const what = `all ${round} rounds are committed; measuring ${options.evalExamples} evaluation examples`;
    this.attempt.event('evaluation.started', what, { round });
    this.measurements.offer();
  }

  /** The last commit begins the final checkpoint. A coordinator before this one may have been lost between that and its end: it is asked for again, but not where it has residuals. */
  private tellUnwritten(): void {
    const { attempt, checkpoints } = this;
    const { round, options } = attempt;
    const { newest } = checkpoints;
    if (!options.checkpoints?.final || newest >= round || checkpoints.reason === 'final') return;
    const message = `no checkpoint of round ${round}: its coordinator was lost before it was written`;
    attempt.event('checkpoint.failed', message, { round, newest });
  }

  measured(_generation: number, values: Measures | undefined): void {
    const { attempt, measurements } = this;
    attempt.table.take('evaluated', values && 'COLLECTING');
    for (const member of attempt.members.all())
      if (member.leaving !== undefined && !measurements.owes(member.id)) this.attendance.letGo(member);
    if (values) attempt.options.surroundings.collectWeights(values);
  }

  /** The file of the weights could not be written, and is written again. */
  weightsDelayed(why: string): void {
    this.obstacle = why.slice(0, 200);
  }

  weightsCollected(data: Record<string, unknown>): void {
    const { attempt } = this;
    if (attempt.isOver) return;
    if (this.checkpoints.reason === 'final') {
      this.result = data; // the final checkpoint is still being written: its end, whatever it is, comes back here
      return;
    }
    attempt.event('run.finished', this.validations.stop ?? `finished after ${attempt.round} rounds`, data);
    this.ending.over('collected', 'finished', 'the run is finished');
  }

  /** A checkpoint is written, or has failed. */
  checkpointSettled(): void {
    if (this.result) this.weightsCollected(this.result);
  }
}
