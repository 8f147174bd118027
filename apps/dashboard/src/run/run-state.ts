/**
 * What a page says about where a run is, in words: how far, why it stands still, what is left, and whose figures its loss and accuracy are.
 * The run's status is the truth; what the coordinator said last (phase, speed, seats) counts only while the run is being trained.
 */
import type { RunDetails } from './run-details.js';
import { isOver } from '../components/status-table.js';
import { accuracy, count, duration, loss } from '../text/format.js';
import { plainText, sentence } from '../text/plain-text.js';
import type { FiguresOf } from './measures.js';
import { validationValues } from './series.js';

/** As lists of runs have it too. */
type Progress = Omit<RunDetails['progress'], 'values'>;
type Placed = Pick<RunDetails, 'status'> & { readonly progress: Progress };

/** Rounds are being committed now, or should be. */
const isTrained = ({ status }: Pick<RunDetails, 'status'>): boolean => status === 'RUNNING' || status === 'PAUSING';

/** A run that is being trained, but has to wait for a worker or a server. */
export const isStalled = (run: Placed): boolean =>
  run.status === 'RUNNING' && plainText(run.progress.waitingFor) !== '' && run.progress.phase === 'waiting';

/** Why the run is in its status, and what it waits for when that is more than the same said twice. */
export function reasonsOf(run: Pick<RunDetails, 'status' | 'statusReason'> & { progress: Pick<Progress, 'waitingFor'> }): string[] {
  const reason = sentence(run.statusReason);
  const waitingFor = plainText(run.progress.waitingFor);
  if (waitingFor === '' || isOver(run.status)) return [reason].filter(Boolean);
  // The reason of the api is newer than the news of the coordinator: both speak of the same wait.
  // oxlint-disable-next-line messages/decide-nothing -- only whether the same is shown twice
  if (/^waits for /i.test(reason)) return [reason];
  return [reason, `Waits for ${waitingFor}`].filter(Boolean);
}

/**
 * Whole epochs are counted from one: "Epoch 2 of 5". A length that is no whole number of epochs is told as a share of passes: "0.3 of 0.6 epochs".
 */
export function epochText({
  round,
  epoch,
  totalRounds,
  totalEpochs,
}: Pick<Progress, 'round' | 'epoch' | 'totalRounds' | 'totalEpochs'>): string {
  if (totalRounds <= 0 || totalEpochs <= 0) return '';
  if (!Number.isInteger(totalEpochs)) {
    const done = (Math.min(round, totalRounds) / totalRounds) * totalEpochs;
    return done >= totalEpochs ? `${passes(totalEpochs)} epochs` : `${passes(done)} of ${passes(totalEpochs)} epochs`;
  }
  const current = Math.min(totalEpochs, epoch + 1);
  return `Epoch ${count(current)} of ${count(totalEpochs)}`;
}

const passes = (epochs: number): string => (epochs === 0 ? '0' : epochs < 0.1 ? epochs.toPrecision(1) : epochs.toFixed(1));

/** What is at the end of the bar: how long it takes still, or what goes on instead. */
export function endText(run: Placed): string {
  const { status, progress } = run;
  if (isOver(status)) return '';
  if (status === 'PAUSED') return 'Paused';
  if (!isTrained(run)) return '';
  if (isStalled(run)) return 'Waiting';
  if (progress.phase === 'evaluating') return 'Evaluating…';
  if (status === 'PAUSING') return 'Pausing…';
  if (progress.etaSeconds !== null) return `about ${duration(progress.etaSeconds)} left`;
  return progress.phase === 'training' ? 'Training' : '';
}

/** Examples per second are of the present moment only while rounds are committed. */
export const hasSpeed = (run: Placed): boolean => isTrained(run) && !isStalled(run);

/** Workers that compute: a seat is kept for some seconds for a worker that is gone, so those that wait for one have none. */
export const workersAtWork = (run: Placed): number =>
  isStalled(run) && /\bworker\b/.test(run.progress.waitingFor ?? '') ? 0 : run.progress.workers;

/** Whether the run measures its evaluation split while it trains. */
export function isValidated(spec: unknown): boolean {
  const { validation, earlyStopping, reduceLROnPlateau } = (spec ?? {}) as Readonly<Record<string, unknown>>;
  return (validation ?? earlyStopping ?? reduceLROnPlateau) !== undefined;
}

export interface Scores {
  readonly loss: string;
  readonly accuracy: string;
  /** What the figures were measured on: the evaluation split, which is the result, or the training examples of the last rounds. */
  readonly of: FiguresOf;
}

type Scored = Pick<RunDetails, 'status'> & {
  result: Pick<NonNullable<RunDetails['result']>, 'loss' | 'accuracy'> | null;
  progress: Pick<Progress, 'loss' | 'accuracy'> & { readonly validation?: unknown };
};

/** The figures that stand for the run: those of its final evaluation, else of the newest validation, else of training. */
export function figuresOf({ status, result, progress }: Scored): FiguresOf {
  if (isOver(status) && result !== null && (result.loss !== null || result.accuracy !== null)) return 'evaluation';
  return validationValues(progress.validation).has('loss') ? 'validation' : 'training';
}

/** Loss and accuracy of them. */
export function scoresOf(run: Scored): Scores {
  const of = figuresOf(run);
  const validated = validationValues(run.progress.validation);
  if (of === 'validation')
    return { loss: loss(validated.get('loss')), accuracy: accuracy(validated.get('accuracy') ?? validated.get('binaryAccuracy')), of };
  const figures = of === 'evaluation' ? run.result! : run.progress;
  return { loss: loss(figures.loss), accuracy: accuracy(figures.accuracy), of };
}
