import type { ReactNode } from 'react';
import { Card } from '../components/Card.js';
import { count } from '../text/format.js';
import { plainText } from '../text/plain-text.js';
import { columnFacts, type DatasetContent } from './statistics.js';

/** Columns that are asked for at once. */
export const MOST_COLUMNS = 100;

interface Props {
  readonly content: DatasetContent;
  readonly offset: number;
  readonly onOffset: (offset: number) => void;
}

/** The schema as a table; of a very wide dataset a page of it. */
export function Columns({ content, offset, onOffset }: Props): ReactNode {
  const { schema, columnCount } = content;
  return (
    <Card title="Columns" aside={<span className="faint">statistics of the training split</span>}>
      <div className="wide-table" tabIndex={0} role="region" aria-label="Columns of the dataset">
        <table className="members columns">
          <thead>
            <tr>
              <th scope="col">Column</th>
              <th scope="col">Kind</th>
              <th scope="col" className="figure-cell">
                Missing
              </th>
              <th scope="col" className="figure-cell">
                Mean ± deviation
              </th>
              <th scope="col" className="figure-cell">
                Lowest to highest
              </th>
              <th scope="col" className="figure-cell">
                Classes
              </th>
            </tr>
          </thead>
          <tbody>
            {schema.columns.map((column) => {
              const facts = columnFacts(column);
              return (
                <tr key={column.name}>
                  <th scope="row">
                    {plainText(column.name, 100)} {column.name === schema.label && <span className="badge own">label</span>}
                  </th>
                  <td>{facts.kind}</td>
                  <td className="figure-cell">{facts.missing}</td>
                  <td className="figure-cell">{facts.mean}</td>
                  <td className="figure-cell">{facts.extremes}</td>
                  <td className="figure-cell">{facts.classes}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
      {columnCount > MOST_COLUMNS && (
        <div className="steps">
          <span className="faint">
            Columns {count(offset + 1)}–{count(offset + schema.columns.length)} of {count(columnCount)}
          </span>
          <button
            type="button"
            className="button small"
            disabled={offset === 0}
            onClick={() => onOffset(Math.max(0, offset - MOST_COLUMNS))}
          >
            Previous
          </button>
          <button
            type="button"
            className="button small"
            disabled={offset + schema.columns.length >= columnCount}
            onClick={() => onOffset(offset + MOST_COLUMNS)}
          >
            Next
          </button>
        </div>
      )}
    </Card>
  );
}
