/** Files are dropped or chosen, described in a small form, sent, and imported by the api. */
import { useEffect, useId, useRef, useState, type DragEvent, type FormEvent, type ReactNode } from 'react';
import { ProgressBar } from '../components/ProgressBar.js';
import { bytes, count, percent } from '../text/format.js';
import { plainText } from '../text/plain-text.js';
import {
  BUILT_IN_NAMES,
  DECIMALS,
  DELIMITERS,
  HEAD_BYTES,
  MISSING,
  NAME_RULE,
  SPLITS,
  columnsIn,
  inNameOrder,
  isName,
  isTableOfText,
  nameOf,
  type DecimalId,
  type DelimiterId,
  type MissingId,
  type SplitId,
} from './import-options.js';
import { useImport, type ImportForm, type Sending, type Wanted } from './use-import.js';

/** As the api takes them for one import. */
const MOST_FILES = 100;
const MOST_BYTES = 10e9;

export function ImportFiles({ onStarted }: { onStarted: () => void }): ReactNode {
  const [files, setFiles] = useState<readonly File[]>([]);
  /** Counts what was chosen or dropped: each begins with a form of its own. */
  const [choice, setChoice] = useState(0);
  const chosen = useRef<HTMLInputElement>(null);
  const [over, setOver] = useState(false);
  const clear = (): void => {
    setFiles([]);
    if (chosen.current) chosen.current.value = '';
  };
  const importing = useImport(() => {
    clear();
    onStarted();
  });
  const isSending = importing.sending !== undefined;

  const take = (list: FileList | null): void => {
    const taken = inNameOrder(list ?? []);
    // Files that are dropped while others are on their way would be lost with the form that describes them.
    if (taken.length === 0 || isSending) return;
    importing.reset();
    setFiles(taken);
    setChoice(choice + 1);
  };
  const drop = (event: DragEvent): void => {
    event.preventDefault();
    setOver(false);
    take(event.dataTransfer.files);
  };
  return (
    <section
      className={`card import ${over ? 'over' : ''}`}
      aria-label="Import files"
      onDragOver={(event) => (event.preventDefault(), setOver(!isSending))}
      onDragLeave={(event) => void (event.currentTarget.contains(event.relatedTarget as Node | null) || setOver(false))}
      onDrop={drop}
    >
      {files.length === 0 ? (
        <div className="drop">
          <label className="button primary file-button">
            Choose files
            <input ref={chosen} className="visually-hidden" type="file" multiple onChange={(event) => take(event.target.files)} />
          </label>
          <p>
            or drop them here: CSV, TSV, JSON Lines, Parquet, NumPy, IDX, safetensors, TFRecord, text, or a tar of pictures; also packed
            with gzip or zstd.
            <span className="note">
              Folders of pictures, and files beyond {bytes(MOST_BYTES)}, are imported from your machine:{' '}
              <code>npx paceline data import FOLDER</code>
            </span>
          </p>
        </div>
      ) : (
        <Form key={choice} files={files} importing={importing} onCleared={clear} />
      )}
    </section>
  );
}

interface FormProps {
  readonly files: readonly File[];
  readonly importing: ImportForm;
  readonly onCleared: () => void;
}

function Form({ files, importing: { sending, problems, start, cancel }, onCleared }: FormProps): ReactNode {
  const [table, setTable] = useState(AS_FOUND);
  const columns = useColumns(files[0]!, table.delimiter);
  const [name, setName] = useState(() => nameOf(files[0]!.name));
  const [label, setLabel] = useState('');
  const [split, setSplit] = useState<SplitId>(files.length > 1 ? 'none' : 'three');
  const [missing, setMissing] = useState<MissingId>('refuse');
  const [order, setOrder] = useState({ inOrder: false, oneSeries: false });
  const listId = useId();
  const problemId = useId();
  const wrong = wrongWith(files, name, table);

  const submit = (event: FormEvent): void => {
    event.preventDefault();
    if (wrong !== undefined) return;
    const { shares } = SPLITS.find(({ id }) => id === split)!;
    start({ files, name, label: label.trim(), shares, missing, ...orderOf(order, files), ...writtenAs(table) });
  };
  return (
    <form className="import-form" onSubmit={submit} aria-busy={sending !== undefined}>
      <p className="import-files">
        <strong>{files.length === 1 ? plainText(files[0]!.name, 200) : `${count(files.length)} files`}</strong>{' '}
        <span className="faint">{bytes(files.reduce((sum, file) => sum + file.size, 0))}</span>
        {files.length > 1 && <span className="note">Read in this order: {namesOf(files)}</span>}
      </p>
      <label className="field">
        <span>Name of the dataset</span>
        <input value={name} onChange={(event) => setName(event.target.value)} spellCheck={false} aria-invalid={!isName(name)} autoFocus />
      </label>
      <label className="field">
        <span>
          Label column <span className="faint">(what is predicted)</span>
        </span>
        <input value={label} onChange={(event) => setLabel(event.target.value)} list={listId} placeholder="none" spellCheck={false} />
        <datalist id={listId}>
          {columns.map((column) => (
            <option key={column} value={column} />
          ))}
        </datalist>
      </label>
      <Select label="Splits" value={split} options={SPLITS} onChange={setSplit} />
      <Select label="Rows with missing values" value={missing} options={MISSING} onChange={setMissing} />
      {files.some((file) => isTableOfText(file.name)) && <TableFields value={table} onChange={setTable} />}
      <OrderFields value={order} hasSeveral={files.length > 1} onChange={setOrder} />
      <div id={problemId} className="problem" role="alert">
        {[...(wrong === undefined ? [] : [wrong]), ...problems].map((problem) => (
          <p key={problem}>{problem}</p>
        ))}
      </div>
      {sending && <Upload sending={sending} />}
      <div className="dialog-buttons">
        <button type="button" className="button" onClick={sending ? cancel : onCleared}>
          {sending ? 'Stop' : 'Other files'}
        </button>
        <button type="submit" className="button primary" disabled={sending !== undefined || wrong !== undefined}>
          {sending ? 'Uploading…' : 'Import'}
        </button>
      </div>
    </form>
  );
}

const MOST_NAMED = 5;

/** The first ones and the last one. */
function namesOf(files: readonly File[]): string {
  const names = files.map(({ name }) => plainText(name, 60));
  return names.length <= MOST_NAMED ? names.join(', ') : `${names.slice(0, MOST_NAMED - 1).join(', ')}, …, ${names.at(-1)!}`;
}

/** The order of the rows: whether they are in order, and whether the files are one series. */
type Order = Pick<Wanted, 'inOrder' | 'oneSeries'>;

/** Files are one series where they are several, and in order. */
const orderOf = ({ inOrder, oneSeries }: Order, files: readonly File[]): Order => ({
  inOrder,
  oneSeries: inOrder && oneSeries && files.length > 1,
});

function OrderFields({ value, hasSeveral, onChange }: { value: Order; hasSeveral: boolean; onChange: (order: Order) => void }): ReactNode {
  const { inOrder, oneSeries } = value;
  return (
    <>
      <label className="choice">
        <input type="checkbox" checked={inOrder} onChange={(event) => onChange({ inOrder: event.target.checked, oneSeries })} />
        <span>
          Keep the order of the rows <span className="faint">(data over time)</span>
        </span>
      </label>
      {inOrder && hasSeveral && (
        <label className="choice">
          <input type="checkbox" checked={oneSeries} onChange={(event) => onChange({ inOrder, oneSeries: event.target.checked })} />
          <span>
            All files are one series <span className="faint">(each goes on where the one before it ends)</span>
          </span>
        </label>
      )}
    </>
  );
}

/** How tables of text are written, where it is not found. */
interface Table {
  readonly decimal: DecimalId;
  readonly delimiter: DelimiterId;
}
const AS_FOUND: Table = { decimal: 'auto', delimiter: 'auto' };

function writtenAs(table: Table): Pick<Wanted, 'decimal' | 'delimiter'> {
  const { decimal } = DECIMALS.find(({ id }) => id === table.decimal)!;
  return { decimal, delimiter: delimiterOf(table.delimiter) };
}
const delimiterOf = (chosen: DelimiterId): string | null => DELIMITERS.find(({ id }) => id === chosen)!.delimiter;

function TableFields({ value, onChange }: { value: Table; onChange: (table: Table) => void }): ReactNode {
  return (
    <>
      <Select
        label="Columns are separated by"
        value={value.delimiter}
        options={DELIMITERS}
        onChange={(delimiter) => onChange({ ...value, delimiter })}
      />
      <Select label="Decimal sign" value={value.decimal} options={DECIMALS} onChange={(decimal) => onChange({ ...value, decimal })} />
    </>
  );
}

/** Names that may be the label, for a field that suggests them. */
function useColumns(file: File, chosen: DelimiterId): readonly string[] {
  const [columns, setColumns] = useState<readonly string[]>([]);
  useEffect(() => {
    let isShown = true;
    file
      .slice(0, HEAD_BYTES)
      .text()
      .then((head) => isShown && setColumns(columnsIn(file.name, head, delimiterOf(chosen))))
      .catch(() => undefined); // a folder cannot be read; sending it says so
    return () => {
      isShown = false;
    };
  }, [file, chosen]);
  return columns;
}

function wrongWith(files: readonly File[], name: string, { decimal, delimiter }: Table): string | undefined {
  if (files.length > MOST_FILES) return `At most ${MOST_FILES} files go into one import.`;
  const large = files.find((file) => file.size > MOST_BYTES);
  if (large)
    return `${plainText(large.name, 200)} is larger than ${bytes(MOST_BYTES)}: import it from your machine with paceline data import.`;
  const empty = files.find((file) => file.size === 0);
  if (empty) return `${plainText(empty.name, 200)} is empty, or a folder.`;
  if (decimal === 'comma' && delimiter === 'comma') return 'A comma cannot be the decimal sign and separate the columns.';
  if (!isName(name)) return `The name must have ${NAME_RULE}.`;
  return BUILT_IN_NAMES.includes(name) ? `${name} is a built-in dataset: choose another name.` : undefined;
}

interface SelectProps<Id extends string> {
  readonly label: string;
  readonly value: Id;
  readonly options: readonly { readonly id: Id; readonly label: string }[];
  readonly onChange: (id: Id) => void;
}

function Select<Id extends string>({ label, value, options, onChange }: SelectProps<Id>): ReactNode {
  return (
    <label className="field">
      <span>{label}</span>
      <select value={value} onChange={(event) => onChange(event.target.value as Id)}>
        {options.map((option) => (
          <option key={option.id} value={option.id}>
            {option.label}
          </option>
        ))}
      </select>
    </label>
  );
}

function Upload({ sending: { file, sentBytes, allBytes } }: { sending: Sending }): ReactNode {
  const fraction = allBytes > 0 ? sentBytes / allBytes : 0;
  const text = file === undefined ? 'Starting the import…' : `${plainText(file, 100)}: ${bytes(sentBytes)} of ${bytes(allBytes)}`;
  return (
    <div className="import-progress">
      <ProgressBar label="Upload" fraction={fraction} tone="going" text={text} />
      <span className="note">
        {text} <span className="faint">{percent(fraction)}</span>
      </span>
    </div>
  );
}
