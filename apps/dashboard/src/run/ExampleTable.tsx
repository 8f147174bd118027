/** Some examples of the evaluation split: what was said of each, and what stands in its columns. */
import type { ReactNode } from 'react';
import { cellText } from '../datasets/statistics.js';
import { count } from '../text/format.js';
import { plainText } from '../text/plain-text.js';

interface Props {
  readonly label: string;
  readonly heads: readonly string[];
  /** CSS class of the head cells. */
  readonly headClass?: string;
  readonly columns: readonly string[];
  readonly rows: readonly {
    readonly example: number;
    readonly step?: number | null;
    readonly figures: readonly string[];
    /** As the server sends them: nothing is taken for granted. */
    readonly cells: unknown;
  }[];
}

export function ExampleTable({ label, heads, headClass = 'said', columns, rows }: Props): ReactNode {
  const lists = rows.map(({ cells }) => (Array.isArray(cells) ? (cells as readonly unknown[]) : []));
  const isNumber = columns.map((_, c) => lists.some((cells) => typeof cells[c] === 'number'));
  return (
    <div className="wide-table" tabIndex={0} role="region" aria-label={label}>
      <table className="members preview">
        <thead>
          <tr>
            <th scope="col">Example</th>
            {heads.map((head) => (
              <th key={head} scope="col" className={headClass}>
                {head}
              </th>
            ))}
            {columns.map((column, c) => (
              <th key={c} scope="col" className={isNumber[c] ? 'figure-cell' : undefined}>
                {plainText(column, 60)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map(({ example, step, figures }, i) => (
            <tr key={i}>
              <th scope="row">
                {count(example + 1)}
                {typeof step === 'number' && <span className="note">step {count(step + 1)}</span>}
              </th>
              {figures.map((figure, f) => (
                <td key={f} className={headClass}>
                  {figure}
                </td>
              ))}
              {columns.map((_, c) => (
                <td key={c} className={isNumber[c] ? 'figure-cell' : undefined}>
                  <span className="cell" title={cellText(lists[i]![c])}>
                    {cellText(lists[i]![c])}
                  </span>
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
