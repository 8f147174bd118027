/**
 * The progress of a run in one line that fits the terminal:
 *
 *     epoch 2/5 ███████████░░░░░░░░░░░░░ 43%  round 512/1175  loss 0.2315  acc 93.1 %  12.3k examples/s  ETA 0:08
 *
 * A narrow terminal loses the bar's length first, then fields from the least wanted on.
 */
import type { RunSummary } from '@paceline/client';
import { trafficText } from '../show-traffic.js';
import { clean } from './clean.js';
import { count, decimals, duration, fit, percent, widthOf } from './format.js';

const LONGEST_BAR = 30;
const SHORTEST_BAR = 8;

export interface ProgressLineOptions {
  readonly width: number;
  readonly unicode: boolean;
  /** Commands in what a run waits for, as they are typed here. */
  readonly typed?: (text: string) => string;
}

export function progressLine(
  run: Pick<RunSummary, 'status' | 'statusReason' | 'progress'> & Partial<Pick<RunSummary, 'traffic'>>,
  { width, unicode, typed = (text) => text }: ProgressLineOptions,
): string {
  const { progress } = run;
  if (run.status !== 'RUNNING' || progress.totalRounds === 0) return fit(typed(waitingLine(run)), width, unicode ? '…' : '.');
  if (progress.phase === 'evaluating')
    return fit(`evaluating${progress.loss === null ? '' : `  loss ${decimals(progress.loss, 4)}`}`, width);
  const validated = progress.validation?.values['loss'] ?? null;
  const share = Math.min(1, progress.round / progress.totalRounds);
  const head = epochText(progress);
  const done = `${Math.floor(share * 100)}%`;
  // In the order in which they stand; the number says which goes first when there is no room.
  const fields: { text: string; drop: number }[] = [
    { text: `round ${progress.round}/${progress.totalRounds}`, drop: 4 },
    { text: progress.loss === null ? '' : `loss ${decimals(progress.loss, 4)}`, drop: 1 },
    { text: progress.accuracy === null ? '' : `acc ${percent(progress.accuracy, 1)}`, drop: 6 },
    { text: validated === null ? '' : `val_loss ${decimals(validated, 4)}`, drop: 2 },
    { text: progress.examplesPerSecond === null ? '' : `${count(progress.examplesPerSecond)} examples/s`, drop: 5 },
    { text: progress.etaSeconds === null ? '' : `ETA ${duration(progress.etaSeconds)}`, drop: 3 },
    { text: run.traffic?.toServersBytes ? trafficText(run.traffic) : '', drop: 7 },
  ].filter((field) => field.text !== '');
  for (;;) {
    const rest = [done, ...fields.map((field) => field.text)].join('  ');
    const room = width - widthOf(head) - widthOf(rest) - 2;
    if (room >= SHORTEST_BAR) return `${head} ${bar(share, Math.min(LONGEST_BAR, room), unicode)} ${rest}`;
    if (fields.length === 0) return fit(`${head} ${done}`, width, unicode ? '…' : '.');
    fields.splice(fields.indexOf(fields.reduce((worst, field) => (field.drop > worst.drop ? field : worst))), 1);
  }
}

/** `epoch 2/5`; of a length that is no whole number of epochs, how many are done: `epoch 0.3/0.6`. */
export function epochText({ epoch, totalEpochs, round, totalRounds }: RunSummary['progress']): string {
  if (Number.isInteger(totalEpochs)) return `epoch ${Math.min(epoch + 1, totalEpochs)}/${totalEpochs}`;
  const short = (epochs: number): string => (totalEpochs >= 1 || epochs === 0 ? epochs.toFixed(1) : epochs.toPrecision(2));
  return `epoch ${short((round / totalRounds) * totalEpochs)}/${short(totalEpochs)}`;
}

function waitingLine({ status, statusReason, progress }: Pick<RunSummary, 'status' | 'statusReason' | 'progress'>): string {
  const why = progress.waitingFor ?? statusReason;
  return why ? `${status.toLowerCase()}: ${clean(why)}` : status.toLowerCase();
}

function bar(share: number, width: number, unicode: boolean): string {
  const filled = Math.round(share * width);
  return unicode ? '█'.repeat(filled) + '░'.repeat(width - filled) : `${'#'.repeat(filled)}${'-'.repeat(width - filled)}`;
}
