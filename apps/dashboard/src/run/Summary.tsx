/** How far the run is, in one bar and a line of figures. */
import type { ReactNode } from 'react';
import { useNow } from '../live/use-now.js';
import { ProgressBar } from '../parts/ProgressBar.js';
import { isOver, toneOf } from '../parts/Status.js';
import { accuracy, compact, count, duration, loss, percent, rate } from '../text/format.js';
import { plainText, sentence } from '../text/plain-text.js';
import type { RunDetails } from './RunPage.js';

export function Summary({ run }: { run: RunDetails }): ReactNode {
  const { progress, status } = run;
  const fraction = progress.totalRounds > 0 ? progress.round / progress.totalRounds : 0;
  const where = `Round ${count(progress.round)} of ${count(progress.totalRounds)}`;
  return (
    <section className="card summary" aria-label="Progress">
      <div className="summary-line">
        <span className="summary-percent">{percent(fraction)}</span>
        <span>{where}</span>
        <span>{epochText(run)}</span>
        <span className="summary-end">{endText(run)}</span>
      </div>
      <ProgressBar label="Progress of the run" fraction={fraction} tone={toneOf(status)} text={`${percent(fraction)}, ${where}`} />
      <Figures run={run} />
    </section>
  );
}

/** The epoch that is being trained, counted from one. */
export function epochText({ progress: { round, totalRounds, totalEpochs } }: Pick<RunDetails, 'progress'>): string {
  if (totalRounds <= 0 || totalEpochs <= 0) return '';
  const total = Number.isInteger(totalEpochs)
    ? count(totalEpochs)
    : totalEpochs < 0.1
      ? totalEpochs.toPrecision(1)
      : totalEpochs.toFixed(1);
  const current = Math.min(Math.ceil(totalEpochs), Math.floor((round / totalRounds) * totalEpochs) + 1);
  return `Epoch ${count(current)} of ${total}`;
}

function endText({ status, progress }: RunDetails): string {
  if (isOver(status)) return '';
  if (progress.phase === 'evaluating') return 'Evaluating…';
  if (progress.etaSeconds !== null) return `about ${duration(progress.etaSeconds)} left`;
  return sentence(progress.phase, 40);
}

function Figures({ run }: { run: RunDetails }): ReactNode {
  const { progress, result, status } = run;
  const elapsed = useElapsedSeconds(run);
  const over = isOver(status);
  const figures: readonly (readonly [string, string, string | undefined])[] = [
    ['Loss', loss(progress.loss), 'training, newest rounds'],
    ['Accuracy', accuracy(progress.accuracy), 'training, newest rounds'],
    ['Examples/s', rate(over ? result?.examplesPerSecond : progress.examplesPerSecond), over ? 'over the whole training' : 'now'],
    over
      ? ['Replicas', count(progress.replicas), undefined]
      : ['Workers', count(progress.workers), `for ${count(progress.replicas)} ${progress.replicas === 1 ? 'replica' : 'replicas'}`],
    ['Time', duration(elapsed), over ? 'from start to end' : 'since the start'],
    ['Parameters', compact(run.parameterCount), run.clusterSpec ? `cluster ${plainText(run.clusterSpec.name, 60)}` : undefined],
  ];
  return (
    <dl className="figures">
      {figures.map(([name, value, note]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>
            <span className="figure">{value}</span>
            {note && <span className="note">{note}</span>}
          </dd>
        </div>
      ))}
    </dl>
  );
}

function useElapsedSeconds({ startedAt, finishedAt }: RunDetails): number | null {
  const nowMs = useNow(1_000);
  if (!startedAt) return null;
  return Math.max(0, ((finishedAt ? Date.parse(finishedAt) : nowMs) - Date.parse(startedAt)) / 1000);
}
