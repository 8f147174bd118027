/** Predicted values against the true ones, how far they are off on average, and the largest errors. */
import type { ReactNode } from 'react';
import { DASH, count, value } from '../text/format.js';
import { plainText } from '../text/plain-text.js';
import { ExampleTable } from './ExampleTable.js';
import type { ValueOutput } from './prediction-outputs.js';
import { scatterScale, type ScatterScale } from './scatter-scale.js';

export function ValuePredictions({ output }: { output: ValueOutput }): ReactNode {
  const { name, meanAbsoluteError, rootMeanSquaredError, rSquared, columns, worst } = output;
  return (
    <>
      <dl className="figures predictions-figures">
        {(
          [
            ['Mean absolute error (MAE)', value(meanAbsoluteError)],
            ['Root mean squared error (RMSE)', value(rootMeanSquaredError)],
            ['Coefficient of determination (R²)', rSquared === null ? DASH : rSquared.toFixed(4)],
          ] as const
        ).map(([title, figure]) => (
          <div key={title}>
            <dt>{title}</dt>
            <dd>
              <span className="figure">{figure}</span>
            </dd>
          </div>
        ))}
      </dl>
      <p className="note">{`Errors are in the units of ${plainText(name, 60)}.`}</p>
      <div className="predictions-tables">
        <Scatter output={output} />
        {worst.length > 0 && (
          <div>
            <h3>Largest errors</h3>
            <ExampleTable
              label="Largest errors"
              heads={['True', 'Predicted', 'Error']}
              headClass="figure-cell"
              columns={columns}
              rows={worst.map(({ example, truth, prediction, cells }) => ({
                example,
                figures: [value(truth), value(prediction), signed(prediction - truth)],
                cells,
              }))}
            />
          </div>
        )}
      </div>
    </>
  );
}

const signed = (error: number): string => (error > 0 ? `+${value(error)}` : value(error).replace('-', '−'));

const SIDE = 320;
const [LEFT, BOTTOM, EDGE] = [54, 40, 10];
const [WIDTH, HEIGHT] = [LEFT + SIDE + EDGE, EDGE + SIDE + BOTTOM];

/** Both axes have one scale: what is told exactly lies on the diagonal. */
function Scatter({ output }: { output: ValueOutput }): ReactNode {
  const points = output.points.map(([truth = 0, prediction = 0]) => [truth, prediction] as const);
  const scale = scatterScale(points);
  if (!scale) return <p className="nothing">No prediction is a finite number.</p>;
  const name = plainText(output.name, 60);
  const label = `Predicted ${name} against true ${name}, ${count(points.length)} points from ${value(scale.from)} to ${value(scale.to)}; R squared ${output.rSquared?.toFixed(3) ?? 'not defined'}`;
  const x = (at: number): number => LEFT + scale.share(at) * SIDE;
  const y = (at: number): number => EDGE + (1 - scale.share(at)) * SIDE;
  return (
    <figure className="scatter">
      <h3>Predicted against true</h3>
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={label}>
        <Axes scale={scale} x={x} y={y} name={name} />
        <line className="scatter-exact" x1={x(scale.from)} y1={y(scale.from)} x2={x(scale.to)} y2={y(scale.to)} />
        {points.map(([truth, prediction], i) => (
          <circle key={i} className="scatter-point" cx={x(truth)} cy={y(prediction)} r={2.6}>
            <title>{`true ${value(truth)}, predicted ${value(prediction)}`}</title>
          </circle>
        ))}
      </svg>
      <figcaption className="note">
        {points.length < output.count ? `${count(points.length)} of ${count(output.count)} numbers, evenly spread. ` : ''}
        Points on the line were predicted exactly.
      </figcaption>
    </figure>
  );
}

interface AxesProps {
  readonly scale: ScatterScale;
  readonly x: (at: number) => number;
  readonly y: (at: number) => number;
  readonly name: string;
}

function Axes({ scale, x, y, name }: AxesProps): ReactNode {
  const { from, to, ticks } = scale;
  return (
    <g className="scatter-axes">
      {ticks.map((tick) => (
        <g key={tick}>
          <line x1={x(tick)} y1={y(from)} x2={x(tick)} y2={y(to)} />
          <line x1={x(from)} y1={y(tick)} x2={x(to)} y2={y(tick)} />
          <text x={x(tick)} y={y(from) + 15} textAnchor="middle">
            {value(tick)}
          </text>
          <text x={x(from) - 6} y={y(tick) + 4} textAnchor="end">
            {value(tick)}
          </text>
        </g>
      ))}
      <text x={LEFT + SIDE / 2} y={HEIGHT - 5} textAnchor="middle">
        true {name}
      </text>
      <text transform={`translate(11 ${EDGE + SIDE / 2}) rotate(-90)`} textAnchor="middle">
        predicted
      </text>
    </g>
  );
}
