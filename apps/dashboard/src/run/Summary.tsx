/** How far the run is, in one bar and a line of figures. */
import { useRef, type ReactNode } from 'react';
import { useNow } from '../live/use-now.js';
import { useStale } from '../live/use-stale.js';
import { ProgressBar } from '../components/ProgressBar.js';
import { isOver, toneOf } from '../components/status-table.js';
import { DASH, compact, count, duration, loss, percent, rate } from '../text/format.js';
import { plainText } from '../text/plain-text.js';
import type { RunDetails } from './run-details.js';
import { figureOf, isScaled, mainMeasures, type Measure, type TargetScale } from './measures.js';
import { stepsText } from './spec-facts.js';
import { endText, epochText, figuresOf, hasSpeed, isStalled, workersAtWork } from './run-state.js';

/** Figures for the loss and the metrics; further metrics have charts only. */
const MOST_MEASURES = 4;

interface Props {
  readonly run: RunDetails;
  readonly measures: readonly Measure[];
  readonly scales: readonly TargetScale[];
}

export function Summary({ run, measures, scales }: Props): ReactNode {
  const { progress, status } = run;
  const stale = useStale();
  const fraction = progress.totalRounds > 0 ? progress.round / progress.totalRounds : 0;
  const where = `Round ${count(progress.round)} of ${count(progress.totalRounds)}${stepsText(run.spec)}`;
  return (
    <section className="card summary" aria-label="Progress">
      <div className="summary-line">
        <span className="summary-percent">{percent(fraction)}</span>
        <span>{where}</span>
        <span>{epochText(progress)}</span>
        <span className="summary-end">{stale && !isOver(status) ? '' : endText(run)}</span>
      </div>
      <ProgressBar
        label="Progress of the run"
        fraction={fraction}
        tone={isStalled(run) ? 'waiting' : toneOf(status)}
        text={`${percent(fraction)}, ${where}`}
      />
      <Figures run={run} measures={measures} scales={scales} stale={stale} />
    </section>
  );
}

function Figures({ run, measures, scales, stale }: Props & { readonly stale: boolean }): ReactNode {
  const { progress, result } = run;
  const elapsed = useElapsedSeconds(run, stale);
  const of = figuresOf(run);
  const validated = (progress.validation ?? {}) as { readonly values?: unknown };
  const values = { evaluation: result?.values, validation: validated.values, training: progress.values }[of];
  const whose = of === 'training' ? 'training, newest rounds' : of;
  const figure = ({ name, label, format }: Pick<Measure, 'name' | 'label' | 'format'>): Figure => {
    const inTraining = format(figureOf(progress.values, name));
    return [label, format(figureOf(values, name)), of !== 'training' && inTraining !== DASH ? `${of}; ${inTraining} in training` : whose];
  };
  const named = (measure: Measure): Figure =>
    figure(isScaled(measure, scales) ? Object.assign({}, measure, { label: `${measure.label}, scaled` }) : measure);
  const figures: readonly Figure[] = [
    figure({ name: 'loss', label: 'Loss', format: loss }),
    ...mainMeasures(measures).slice(0, MOST_MEASURES).map(named),
    speedFigure(run),
    peopleFigure(run),
    ['Time', duration(elapsed), isOver(run.status) ? 'from start to end' : 'since the start'],
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

type Figure = readonly [string, string, string | undefined];

function speedFigure(run: RunDetails): Figure {
  if (isOver(run.status)) return ['Examples/s', rate(run.result?.examplesPerSecond), 'over the whole training'];
  return hasSpeed(run) ? ['Examples/s', rate(run.progress.examplesPerSecond), 'now'] : ['Examples/s', DASH, undefined];
}

function peopleFigure(run: RunDetails): Figure {
  const { replicas } = run.progress;
  if (isOver(run.status)) return ['Replicas', count(replicas), undefined];
  return ['Workers', count(workersAtWork(run)), `for ${count(replicas)} ${replicas === 1 ? 'replica' : 'replicas'}`];
}

/** @param stale the page does not know any more whether the run goes on, so the time stands still */
function useElapsedSeconds({ startedAt, finishedAt }: RunDetails, stale: boolean): number | null {
  const tickingMs = useNow(1_000);
  const heldMs = useRef(tickingMs);
  if (!stale) heldMs.current = tickingMs;
  const nowMs = heldMs.current;
  if (!startedAt) return null;
  return Math.max(0, ((finishedAt ? Date.parse(finishedAt) : nowMs) - Date.parse(startedAt)) / 1000);
}
