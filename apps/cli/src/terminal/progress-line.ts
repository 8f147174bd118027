/**
 * The progress of a run in one line that fits the terminal:
 *
 *     epoch 2/5 ███████████░░░░░░░░░░░░░ 43%  round 512/1175  loss 0.2315  acc 0.931  12.3k examples/s  ETA 0:08
 *
 * A narrow terminal loses the bar's length first, then fields from the least wanted on.
 */
import type { RunSummary } from '@paceline/client';
import { clean } from './clean.js';
import { count, decimals, duration, fit, widthOf } from './format.js';

const LONGEST_BAR = 30;
const SHORTEST_BAR = 8;

export interface ProgressLineOptions {
  readonly width: number;
  readonly unicode: boolean;
}

export function progressLine(
  run: Pick<RunSummary, 'status' | 'statusReason' | 'progress'>,
  { width, unicode }: ProgressLineOptions,
): string {
  const { progress } = run;
  if (run.status !== 'RUNNING' || progress.totalRounds === 0) return fit(waitingLine(run), width, unicode ? '…' : '.');
  if (progress.phase === 'evaluating')
    return fit(`evaluating${progress.loss === null ? '' : `  loss ${decimals(progress.loss, 4)}`}`, width);
  const share = Math.min(1, progress.round / progress.totalRounds);
  const head = epochText(progress);
  const percent = `${Math.floor(share * 100)}%`;
  // In the order in which they stand; the number says which goes first when there is no room.
  const fields: { text: string; drop: number }[] = [
    { text: `round ${progress.round}/${progress.totalRounds}`, drop: 3 },
    { text: progress.loss === null ? '' : `loss ${decimals(progress.loss, 4)}`, drop: 1 },
    { text: progress.accuracy === null ? '' : `acc ${decimals(progress.accuracy, 3)}`, drop: 5 },
    { text: progress.examplesPerSecond === null ? '' : `${count(progress.examplesPerSecond)} examples/s`, drop: 4 },
    { text: progress.etaSeconds === null ? '' : `ETA ${duration(progress.etaSeconds)}`, drop: 2 },
  ].filter((field) => field.text !== '');
  for (;;) {
    const rest = [percent, ...fields.map((field) => field.text)].join('  ');
    const room = width - widthOf(head) - widthOf(rest) - 2;
    if (room >= SHORTEST_BAR) return `${head} ${bar(share, Math.min(LONGEST_BAR, room), unicode)} ${rest}`;
    if (fields.length === 0) return fit(`${head} ${percent}`, width, unicode ? '…' : '.');
    fields.splice(fields.indexOf(fields.reduce((worst, field) => (field.drop > worst.drop ? field : worst))), 1);
  }
}

function epochText({ epoch, totalEpochs }: RunSummary['progress']): string {
  const total = Number.isInteger(totalEpochs) ? String(totalEpochs) : totalEpochs.toFixed(1);
  return `epoch ${Math.min(epoch + 1, Math.max(1, Math.ceil(totalEpochs)))}/${total}`;
}

function waitingLine({ status, statusReason, progress }: Pick<RunSummary, 'status' | 'statusReason' | 'progress'>): string {
  const why = progress.waitingFor ?? statusReason;
  return why ? `${status.toLowerCase()}: ${clean(why)}` : status.toLowerCase();
}

function bar(share: number, width: number, unicode: boolean): string {
  const filled = Math.round(share * width);
  return unicode ? '█'.repeat(filled) + '░'.repeat(width - filled) : `${'#'.repeat(filled)}${'-'.repeat(width - filled)}`;
}
