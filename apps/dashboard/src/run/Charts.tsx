import type { ReactNode } from 'react';
import { accuracy, loss, rate } from '../text/format.js';
import { isOver } from '../parts/status-table.js';
import { Chart } from './Chart.js';
import type { RunDetails } from './RunPage.js';
import type { MetricsByName } from './series.js';

/** More lines than this would hide the curve. */
const MAX_EPOCH_LINES = 40;

export function Charts({ run, metrics }: { run: RunDetails; metrics: MetricsByName }): ReactNode {
  const { totalRounds, totalEpochs, round } = run.progress;
  const roundsPerEpoch = totalEpochs >= 1 && totalEpochs <= MAX_EPOCH_LINES ? totalRounds / totalEpochs : undefined;
  // While training, the axis holds all rounds to come, so that the curve grows into its place.
  const lastRound = Math.max(1, isOver(run.status) && run.status !== 'SUCCEEDED' ? round : totalRounds) - 1;
  const axis = { roundsPerEpoch, lastRound };
  return (
    <div className="charts">
      <Chart title="Training loss" points={metrics.loss} format={loss} canBeLogarithmic {...axis} />
      {(metrics.accuracy.length > 0 || metrics.loss.length === 0) && (
        <Chart title="Training accuracy" points={metrics.accuracy} format={accuracy} ceiling={1} {...axis} />
      )}
      <Chart title="Examples/s" points={metrics.examplesPerSecond} format={rate} fromZero {...axis} />
    </div>
  );
}
