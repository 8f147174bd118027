/** How the values of the columns are spread: a histogram per column of numbers, bars of the most frequent classes per category. */
import { useState, type ReactNode } from 'react';
import { Card } from '../components/Card.js';
import { count, value } from '../text/format.js';
import { plainText } from '../text/plain-text.js';
import { binsOf, frequentClasses, type Bin, type DatasetColumn } from './statistics.js';

const SHOWN_AT_FIRST = 12;
const MOST_CLASSES = 8;
/** The server names so many classes of a column. */
const NAMED_CLASSES = 100;
const HEIGHT = 40;

export function Distributions({ columns }: { columns: readonly DatasetColumn[] }): ReactNode {
  const [all, setAll] = useState(false);
  // Numbers first: what is of one height stands side by side.
  const numbers = columns.filter((column) => binsOf(column).length > 0);
  const drawn = [...numbers, ...columns.filter(({ kind }) => kind === 'category')];
  if (drawn.length === 0) return null;
  return (
    <Card title="Distributions" aside={<span className="faint">training split</span>}>
      <div className="distributions">
        {(all ? drawn : drawn.slice(0, SHOWN_AT_FIRST)).map((column) => (
          <figure key={column.name} className="distribution">
            <figcaption>{plainText(column.name, 100)}</figcaption>
            {column.kind === 'category' ? <Classes column={column} /> : <Histogram name={column.name} bins={binsOf(column)} />}
          </figure>
        ))}
      </div>
      {drawn.length > SHOWN_AT_FIRST && !all && (
        <button type="button" className="button small" onClick={() => setAll(true)}>
          Show all {count(drawn.length)}
        </button>
      )}
    </Card>
  );
}

function Histogram({ name, bins }: { name: string; bins: readonly Bin[] }): ReactNode {
  const highest = Math.max(1, ...bins.map((bin) => bin.count));
  const [first, last] = [bins[0]!, bins.at(-1)!];
  const fullest = bins.find((bin) => bin.count === highest) ?? first;
  const label = `Histogram of ${plainText(name, 100)}: from ${value(first.from)} to ${value(last.to)}, most rows (${count(highest)}) at ${rangeOf(fullest)}`;
  return (
    <>
      <svg className="histogram" viewBox={`0 0 ${bins.length} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={label}>
        {bins.map((bin, i) => {
          // A bin with a single row among thousands is still to be seen.
          const height = bin.count === 0 ? 0 : Math.max(0.8, (bin.count / highest) * HEIGHT);
          return (
            <g key={i}>
              <title>{`${rangeOf(bin)}: ${count(bin.count)} ${bin.count === 1 ? 'row' : 'rows'}`}</title>
              <rect className="hit" x={i} y={0} width={1} height={HEIGHT} />
              <rect className="bar-of" x={i + 0.06} y={HEIGHT - height} width={0.88} height={height} />
            </g>
          );
        })}
      </svg>
      <p className="histogram-ends">
        <span>{value(first.from)}</span>
        <span>{value(last.to)}</span>
      </p>
    </>
  );
}

const rangeOf = ({ from, to }: Bin): string => (from === to ? value(from) : `${value(from)} to ${value(to)}`);

function Classes({ column }: { column: DatasetColumn }): ReactNode {
  const classes = frequentClasses(column, MOST_CLASSES);
  const most = Math.max(1, ...classes.map((each) => each.count));
  const all = column.vocabularySize ?? classes.length;
  return (
    <>
      <ol className="classes">
        {classes.map((each, i) => (
          <li key={i}>
            <span className="class-name" title={each.name}>
              {each.name || <span className="faint">empty text</span>}
            </span>
            <span className="class-count">
              {count(each.count)} <span className="faint">{(each.share * 100).toFixed(1)}&#x202f;%</span>
            </span>
            <span className="class-bar" aria-hidden="true">
              <span style={{ transform: `scaleX(${each.count / most})` }} />
            </span>
          </li>
        ))}
      </ol>
      {all > classes.length && (
        <p className="note">
          {all > NAMED_CLASSES
            ? `The most frequent of the first ${NAMED_CLASSES} classes, of ${count(all)}`
            : `and ${count(all - classes.length)} more`}
        </p>
      )}
    </>
  );
}
