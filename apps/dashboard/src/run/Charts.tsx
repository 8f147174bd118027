/** The charts of a run, with one cursor, one zoom and one smoothing for all of them. */
import { useId, useState, type ReactNode } from 'react';
import { accuracy, count, loss, rate } from '../text/format.js';
import { Chart, type ChartView } from './Chart.js';
import { trainedSpan, zoomTo, type Span } from './chart-scale.js';
import type { RunDetails } from './RunPage.js';
import type { MetricsByName } from './series.js';
import { useDetail } from './use-detail.js';

const MOST_SMOOTHING = 0.98;

export function Charts({ run, metrics: coarse }: { run: RunDetails; metrics: MetricsByName }): ReactNode {
  const { totalRounds, totalEpochs } = run.progress;
  const [zoom, setZoom] = useState<Span>();
  const [smoothing, setSmoothing] = useState(0);
  const [cursor, setCursor] = useState<ChartView['cursor']>();
  const metrics = useDetail(run.id, run.attempt, coarse, zoom);
  const full = trainedSpan(coarse, totalRounds);
  const shown = (zoom && zoomTo(zoom, full)) ?? full;
  const view: ChartView = {
    roundsPerEpoch: totalEpochs > 0 ? totalRounds / totalEpochs : undefined,
    full,
    shown,
    onZoom: (span) => setZoom(span && zoomTo(span, full)),
    cursor,
    onCursor: setCursor,
    smoothing,
  };
  return (
    <div className="charts">
      <div className="chart-tools">
        <Smoothing value={smoothing} onChange={setSmoothing} />
        {shown === full ? (
          <span className="faint zoom-hint">Drag over a chart to zoom</span>
        ) : (
          <span>
            Rounds {count(shown[0] + 1)}–{count(shown[1])}{' '}
            <button type="button" className="button small" onClick={() => setZoom(undefined)}>
              Show all
            </button>
          </span>
        )}
      </div>
      <Chart title="Training loss" points={metrics.loss} format={loss} offersLogarithmic view={view} />
      {(metrics.accuracy.length > 0 || metrics.loss.length === 0) && (
        <Chart title="Training accuracy" points={metrics.accuracy} format={accuracy} ceiling={1} view={view} />
      )}
      <Chart title="Examples/s" points={metrics.examplesPerSecond} format={rate} fromZero view={view} />
    </div>
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
