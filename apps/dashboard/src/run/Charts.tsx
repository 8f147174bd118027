/** The charts of a run, one for each metric, with one cursor, one zoom and one smoothing for all of them. */
import { useId, useMemo, useState, type ReactNode } from 'react';
import { count, loss, rate } from '../text/format.js';
import { plainText } from '../text/plain-text.js';
import { Chart, type ChartView } from './Chart.js';
import { chartMarks } from './chart-marks.js';
import { trainedSpan, zoomTo, type Span } from './chart-scale.js';
import { isScaled, measuresAt, outputsOf, withoutDiagonal, type Measure, type TargetScale } from './measures.js';
import { MetricPicker } from './MetricPicker.js';
import { rateCurve } from './rate-curve.js';
import type { RunDetails } from './run-details.js';
import { hasEvenEpochs } from './spec-facts.js';
import { OF_VALIDATION, seriesOf, SPEED, type MetricsByName } from './series.js';
import type { RunCourse } from './use-course.js';
import { useDetail } from './use-detail.js';

const MOST_SMOOTHING = 0.98;

interface Props {
  readonly run: RunDetails;
  readonly measures: readonly Measure[];
  readonly metrics: MetricsByName;
  readonly course: RunCourse | undefined;
  readonly scales: readonly TargetScale[];
}

export function Charts({ run, measures, metrics: coarse, course, scales }: Props): ReactNode {
  const { totalRounds, totalEpochs } = run.progress;
  const [zoom, setZoom] = useState<Span>();
  const [smoothing, setSmoothing] = useState(0);
  const [cursor, setCursor] = useState<ChartView['cursor']>();
  const [output, setOutput] = useState<string>();
  const [hidden, setHidden] = useState<ReadonlySet<string>>(new Set());
  const metrics = useDetail(run.id, run.attempt, coarse, zoom);
  const full = trainedSpan(coarse, totalRounds);
  const shown = (zoom && zoomTo(zoom, full)) ?? full;
  const view: ChartView = {
    roundsPerEpoch: totalEpochs > 0 && hasEvenEpochs(run.spec) ? totalRounds / totalEpochs : undefined,
    full,
    shown,
    onZoom: (span) => setZoom(span && zoomTo(span, full)),
    cursor,
    onCursor: setCursor,
    smoothing,
  };
  const { spec } = run;
  const marks = useMemo(() => chartMarks(course, spec), [course, spec]);
  const reductions = course?.reductions;
  const rates = useMemo(() => rateCurve(spec, { totalRounds, totalEpochs }, reductions), [spec, totalRounds, totalEpochs, reductions]);
  // The rate is known for rounds that are still to come.
  const whole: Span = [0, Math.max(1, totalRounds)];
  const rateView: ChartView = Object.assign({}, view, zoom ? {} : { full: whole, shown: whole });
  const drawn = withoutDiagonal(measuresAt(measures, output));
  const validationOf = (name: string) => seriesOf(metrics, `${OF_VALIDATION}${name}`);
  return (
    <div className="charts">
      <div className="chart-tools">
        <OutputChoice outputs={outputsOf(measures)} chosen={output} onChange={setOutput} />
        <MetricPicker measures={drawn} hidden={hidden} onChange={setHidden} />
        <Smoothing value={smoothing} onChange={setSmoothing} />
        <ZoomState view={view} />
      </div>
      <Chart
        title={titleOf('Loss', validationOf('loss').length > 0)}
        points={seriesOf(metrics, 'loss')}
        validation={validationOf('loss')}
        format={loss}
        offersLogarithmic
        better="lower"
        marks={marks.best}
        view={view}
      />
      {drawn
        .filter(({ metric }) => !hidden.has(metric))
        .map((measure) => (
          <Chart
            key={measure.metric}
            title={titleOf(chartName(measure, scales), validationOf(measure.name).length > 0)}
            points={seriesOf(metrics, measure.name)}
            validation={validationOf(measure.name)}
            format={measure.format}
            ceiling={measure.ceiling}
            isShare={measure.unit === 'share'}
            better={measure.better}
            marks={marks.best}
            view={view}
          />
        ))}
      <Chart title="Examples/s" points={seriesOf(metrics, SPEED)} format={rate} fromZero view={view} />
      {rates.length > 0 && <Chart title="Learning rate" points={rates} format={rateText} fromZero marks={marks.reduced} view={rateView} />}
    </div>
  );
}

/** "Training loss" where there is one line, "Loss" where both are named beside it. */
const titleOf = (title: string, isValidated: boolean): string =>
  isValidated ? title : `Training ${/^[A-Z][a-z]/.test(title) ? title[0]!.toLowerCase() + title.slice(1) : title}`;

const SHORT: Readonly<Record<string, string>> = { meanAbsoluteError: 'MAE', meanSquaredError: 'MSE', rootMeanSquaredError: 'RMSE' };
function chartName(measure: Measure, scales: readonly TargetScale[]): string {
  const { metric, label, output } = measure;
  return `${SHORT[metric] ?? label}${output === undefined ? '' : ` of ${plainText(output, 40)}`}${isScaled(measure, scales) ? ', scaled' : ''}`;
}

const rateText = (value: number | undefined): string => (value === undefined || value === 0 ? '0' : String(Number(value.toPrecision(3))));

/** Which rounds are shown, where they are not all. */
function ZoomState({ view: { shown, full, onZoom } }: { view: ChartView }): ReactNode {
  if (shown === full) return <span className="faint zoom-hint">Drag over a chart to zoom</span>;
  return (
    <span>
      Rounds {count(shown[0] + 1)}–{count(shown[1])}{' '}
      <button type="button" className="button small" onClick={() => onZoom(undefined)}>
        Show all
      </button>
    </span>
  );
}

interface OutputChoiceProps {
  readonly outputs: readonly string[];
  readonly chosen: string | undefined;
  readonly onChange: (output: string | undefined) => void;
}

/** Only where the metrics of several outputs are told. */
function OutputChoice({ outputs, chosen, onChange }: OutputChoiceProps): ReactNode {
  const id = useId();
  if (outputs.length === 0) return null;
  return (
    <span className="steps">
      <label htmlFor={id}>Metrics of</label>
      <select
        id={id}
        className="small-select"
        value={chosen === undefined ? '' : String(outputs.indexOf(chosen))}
        onChange={({ target }) => onChange(target.value === '' ? undefined : outputs[Number(target.value)])}
      >
        <option value="">all outputs, their mean</option>
        {outputs.map((output, i) => (
          <option key={output} value={i}>
            {plainText(output, 60)}
          </option>
        ))}
      </select>
    </span>
  );
}

function Smoothing({ value, onChange }: { value: number; onChange: (value: number) => void }): ReactNode {
  const id = useId();
  return (
    <span className="smoothing">
      <label htmlFor={id}>Smoothing</label>
      <input
        id={id}
        type="range"
        min={0}
        max={MOST_SMOOTHING}
        step={0.02}
        value={value}
        onChange={(event) => onChange(Number(event.target.value))}
      />
      <span className="faint">{value === 0 ? 'off' : value.toFixed(2)}</span>
    </span>
  );
}
