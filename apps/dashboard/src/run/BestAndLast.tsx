import type { ReactNode } from 'react';
import { count, loss } from '../text/format.js';
import { plainText } from '../text/plain-text.js';
import { figureOf, mainMeasures, type Measure } from './measures.js';
import type { RunDetails } from './run-details.js';
import type { RunCourse } from './use-course.js';

interface Props {
  readonly course: Pick<RunCourse, 'metric' | 'best' | 'last'>;
  readonly result: Pick<NonNullable<RunDetails['result']>, 'weightsRound'>;
  readonly measures: readonly Measure[];
}

/** The best and the last validation side by side, and which of them the weights are. Nothing where they are the same. */
export function BestAndLast({ course: { metric, best, last }, result, measures }: Props): ReactNode {
  if (best.round === last.round) return null;
  const columns = [
    { title: 'Best', at: best },
    { title: 'Last', at: last },
  ];
  const rows: readonly Pick<Measure, 'name' | 'label' | 'format'>[] = [
    { name: 'loss', label: 'Loss', format: loss },
    ...mainMeasures(measures),
  ];
  return (
    <div>
      <table className="members best-and-last">
        <caption className="visually-hidden">{`Validation at the best round, by ${plainText(metric, 100)}, and at the last`}</caption>
        <thead>
          <tr>
            <th scope="col">Validation</th>
            {columns.map(({ title, at }) => (
              <th key={title} scope="col" className="figure-cell">
                {title}, round {count(at.round)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map(({ name, label, format }) => (
            <tr key={name}>
              <th scope="row">{label}</th>
              {columns.map(({ title, at }) => (
                <td key={title} className="figure-cell">
                  {format(figureOf(at.values, name))}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      <p className="note">{`Best by ${plainText(metric, 100)}. The weights are those of round ${count(result.weightsRound)}.`}</p>
    </div>
  );
}
