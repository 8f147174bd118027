import type { ReactNode } from 'react';
import { saveFile } from '../session/download.js';
import { count } from '../text/format.js';
import { firstRoundOf, placeOf } from './chart-scale.js';
import { csvOf, validatedWithin, type Point } from './series.js';

interface Props {
  readonly title: string;
  readonly points: readonly Point[];
  readonly validation: readonly Point[];
  readonly format: (value: number | undefined) => string;
}

/** The points of a chart as numbers, newest first, for those who would rather read or copy than look. */
export function ChartTable({ title, points, validation, format }: Props): ReactNode {
  const save = (): void =>
    saveFile(new Blob([csvOf(points, validation)], { type: 'text/csv' }), `${title.toLowerCase().replace(/\W+/g, '-')}.csv`);
  return (
    <>
      <div className="chart-table" tabIndex={0} role="region" aria-label={`${title}, points`}>
        <table className="members">
          <thead>
            <tr>
              <th scope="col">Rounds</th>
              <th scope="col">Mean</th>
              <th scope="col">Lowest</th>
              <th scope="col">Highest</th>
              {validation.length > 0 && <th scope="col">Validation</th>}
            </tr>
          </thead>
          <tbody>
            {[...points].reverse().map((point) => (
              <tr key={point.round}>
                <th scope="row">{point.rounds > 1 ? `${count(firstRoundOf(point))}–${count(placeOf(point))}` : count(placeOf(point))}</th>
                <td>{format(point.value)}</td>
                <td>{format(point.min)}</td>
                <td>{format(point.max)}</td>
                {validation.length > 0 && <td>{format(validatedWithin(validation, point)?.value)}</td>}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <button type="button" className="button small" onClick={save}>
        Save as CSV
      </button>
    </>
  );
}
