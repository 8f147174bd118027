/** Rows of a split, page by page: pictures as a grid, everything else as a table. */
import { useCallback, useState, type ReactNode, type SyntheticEvent } from 'react';
import { DatasetPreview } from '../graphql/generated/operations.js';
import { usePoll } from '../live/use-poll.js';
import { Card } from '../components/Card.js';
import { useApi } from '../session/api-context.js';
import { DASH, count } from '../text/format.js';
import { plainText } from '../text/plain-text.js';
import { cellText, isPicture, type DatasetContent } from './statistics.js';

const TABLE_ROWS = 10;
const GRID_ROWS = 24;
/** More are not read at once, and no page has room for them. */
const MOST_COLUMNS = 30;

export function Preview({ name, content }: { name: string; content: DatasetContent }): ReactNode {
  const { columns, splits, label } = content.schema;
  const [split, setSplit] = useState(splits[0]?.name ?? 'train');
  const [from, setFrom] = useState(0);
  const images = columns.filter(({ kind }) => kind === 'image');
  const size = images.length > 0 ? GRID_ROWS : TABLE_ROWS;
  const all = splits.find((each) => each.name === split)?.rows ?? 0;
  const change = (to: string): void => {
    setSplit(to);
    setFrom(0);
  };
  return (
    <Card
      title="Preview"
      aside={
        <span className="steps">
          {splits.length > 1 && (
            <span className="segments" role="group" aria-label="Split">
              {splits.map((each) => (
                <button key={each.name} type="button" aria-pressed={each.name === split} onClick={() => change(each.name)}>
                  {plainText(each.name, 20)}
                </button>
              ))}
            </span>
          )}
          <span className="faint">
            {all === 0 ? 'no rows' : `rows ${count(from + 1)}–${count(Math.min(all, from + size))} of ${count(all)}`}
          </span>
          <button type="button" className="button small" disabled={from === 0} onClick={() => setFrom(Math.max(0, from - size))}>
            Previous
          </button>
          <button type="button" className="button small" disabled={from + size >= all} onClick={() => setFrom(from + size)}>
            Next
          </button>
        </span>
      }
    >
      <Rows
        name={name}
        version={content.version}
        split={split}
        from={from}
        rows={size}
        columns={shownColumns(columns, label)}
        images={images.map((column) => column.name)}
        label={label}
      />
    </Card>
  );
}

/** The label is never among those that there is no room for. */
function shownColumns(columns: DatasetContent['schema']['columns'], label: string | null): readonly string[] {
  const names = columns.map((column) => column.name);
  const first = names.slice(0, MOST_COLUMNS);
  return label === null || first.includes(label) || !names.includes(label) ? first : [...first.slice(0, -1), label];
}

interface RowsProps {
  readonly name: string;
  readonly version: string;
  readonly split: string;
  readonly from: number;
  readonly rows: number;
  readonly columns: readonly string[];
  readonly images: readonly string[];
  readonly label: string | null;
}

function Rows({ name, version, split, from, rows, columns, images, label }: RowsProps): ReactNode {
  const { ask } = useApi();
  const asked = columns.join('\n');
  const load = useCallback(
    async (signal: AbortSignal) => {
      const variables = { name, version, split, rows, from, columns: asked.split('\n') };
      return (await ask(DatasetPreview, variables, signal)).dataset?.version?.preview ?? null;
    },
    [ask, name, version, split, rows, from, asked],
  );
  const { data, trouble, refused } = usePoll('dataset-preview', load, undefined);
  if (refused) return <p className="problem">{refused.message}</p>;
  if (!data)
    return (
      <p className="nothing preview-wait" role="status">
        {data === null ? 'This version is gone.' : trouble ? `${trouble.message} Trying again…` : 'Reading rows…'}
      </p>
    );
  if (data.rows.length === 0) return <p className="nothing">This split has no rows.</p>;
  const cells = data.rows.map((row) => (Array.isArray(row) ? (row as readonly unknown[]) : []));
  const isImage = data.columns.map((column) => images.includes(column));
  if (isImage.includes(true)) return <Pictures columns={data.columns} isImage={isImage} rows={cells} from={from} label={label} />;
  return <Table columns={data.columns} rows={cells} from={from} />;
}

interface TableProps {
  readonly columns: readonly string[];
  readonly rows: readonly (readonly unknown[])[];
  readonly from: number;
}

function Table({ columns, rows, from }: TableProps): ReactNode {
  const isNumber = columns.map((_, c) => rows.some((row) => typeof row[c] === 'number'));
  return (
    <div className="wide-table" tabIndex={0} role="region" aria-label="Rows of the dataset">
      <table className="members preview">
        <thead>
          <tr>
            <th scope="col">Row</th>
            {columns.map((column, c) => (
              <th key={column} scope="col" className={isNumber[c] ? 'figure-cell' : undefined}>
                {plainText(column, 60)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, i) => (
            <tr key={i}>
              <th scope="row">{count(from + i + 1)}</th>
              {columns.map((column, c) => (
                <td key={column} className={isNumber[c] ? 'figure-cell' : undefined}>
                  <span className="cell" title={cellText(row[c])}>
                    {cellText(row[c])}
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

interface PicturesProps extends TableProps {
  readonly isImage: readonly boolean[];
  readonly label: string | null;
}

const SMALL_PX = 64;

/** A small picture that is drawn larger keeps its pixels; a photograph is smoothed. */
export const showPixels = ({ currentTarget: picture }: SyntheticEvent<HTMLImageElement>): void =>
  void picture.classList.toggle('small', picture.naturalWidth <= SMALL_PX);

/** Under each picture the label of its row, or else what its other columns say. */
function Pictures({ columns, isImage, rows, from, label }: PicturesProps): ReactNode {
  const others = columns.map((_, c) => c).filter((c) => !isImage[c]);
  const labelled = label === null ? -1 : columns.indexOf(label);
  const told = labelled >= 0 && !isImage[labelled] ? [labelled] : others.slice(0, 3);
  return (
    <ol className="pictures">
      {rows.map((row, i) => {
        const text = told.map((c) => (told.length > 1 ? `${columns[c]} ${cellText(row[c])}` : cellText(row[c]))).join(', ');
        return (
          <li key={i}>
            {columns.map((column, c) =>
              !isImage[c] ? null : isPicture(row[c]) ? (
                <img
                  key={column}
                  src={row[c]}
                  onLoad={showPixels}
                  alt={`${plainText(column, 60)} of row ${from + i + 1}${text ? `: ${text}` : ''}`}
                />
              ) : (
                <span key={column} className="no-picture">
                  {row[c] === undefined ? DASH : 'too large to show'}
                </span>
              ),
            )}
            <span className="picture-text" title={text}>
              {text || `row ${count(from + i + 1)}`}
            </span>
          </li>
        );
      })}
    </ol>
  );
}
