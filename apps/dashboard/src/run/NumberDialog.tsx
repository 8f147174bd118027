/** A button that opens a dialog which asks for one whole number, in one of one or two units. */
import { newIdempotencyKey } from '@paceline/client';
import { useId, useRef, useState, type ReactNode } from 'react';

interface Props<Unit extends string> {
  readonly busy: boolean;
  /** Why the last request came to nothing. */
  readonly problem: string;
  readonly button: string;
  readonly title: string;
  readonly explanation: string;
  /** The first is chosen. */
  readonly units: readonly { readonly unit: Unit; readonly label: string; readonly min: number; readonly max: number }[];
  readonly initial: string;
  readonly submit: string;
  /** What would come of it; empty for nothing. */
  readonly preview?: (typed: string, unit: Unit) => string;
  /** @param key a UUID for these two as they were submitted: the same when they are submitted again because nobody answered */
  readonly send: (value: number, unit: Unit, key: string) => Promise<boolean>;
}

export function NumberDialog<Unit extends string>(props: Props<Unit>): ReactNode {
  const { busy, problem, button, title, explanation, units, initial, submit, preview, send } = props;
  const dialog = useRef<HTMLDialogElement>(null);
  const field = useRef<HTMLInputElement>(null);
  const titleId = useId();
  const inputId = useId();
  const [value, setValue] = useState('');
  const [unit, setUnit] = useState(units[0]!.unit);
  const { isSubmitted, keyOf, forget } = useSubmission();
  const { label, min, max } = units.find((each) => each.unit === unit) ?? units[0]!;
  const open = (): void => {
    setValue(initial);
    forget();
    dialog.current?.showModal();
    field.current?.focus();
  };
  return (
    <>
      <button type="button" className="button" disabled={busy} onClick={open}>
        {button}
      </button>
      <dialog ref={dialog} className="card dialog" aria-labelledby={titleId}>
        <h2 id={titleId}>{title}</h2>
        <p>{explanation}</p>
        <form
          onSubmit={(event) => {
            event.preventDefault();
            // What was refused stays, to be mended.
            void send(Number(value), unit, keyOf(value, unit)).then((isDone) => isDone && dialog.current?.close());
          }}
        >
          {units.length > 1 && <Units units={units} chosen={unit} onChoice={setUnit} />}
          <div className="field">
            <label htmlFor={inputId}>{label}</label>
            <input
              ref={field}
              id={inputId}
              type="number"
              required
              min={min}
              max={max}
              step={1}
              value={value}
              onChange={(event) => setValue(event.target.value)}
            />
          </div>
          {preview && (
            <p className="note" role="status">
              {preview(value, unit) || '\u00a0'}
            </p>
          )}
          {isSubmitted && problem !== '' && (
            <p className="problem" role="alert">
              {problem}
            </p>
          )}
          <div className="dialog-buttons">
            <button type="button" className="button" onClick={() => dialog.current?.close()}>
              Close
            </button>
            <button type="submit" className="button primary" disabled={busy}>
              {submit}
            </button>
          </div>
        </form>
      </dialog>
    </>
  );
}

/** What was submitted since the dialog was opened, under a key that changes with it. */
function useSubmission() {
  const last = useRef<{ readonly value: string; readonly unit: string; readonly key: string } | undefined>(undefined);
  const [isSubmitted, setSubmitted] = useState(false);
  const keyOf = (value: string, unit: string): string => {
    if (last.current?.value !== value || last.current.unit !== unit) last.current = { value, unit, key: newIdempotencyKey() };
    setSubmitted(true);
    return last.current.key;
  };
  const forget = (): void => {
    last.current = undefined;
    setSubmitted(false);
  };
  return { isSubmitted, keyOf, forget };
}

interface UnitsProps<Unit extends string> {
  readonly units: readonly { readonly unit: Unit }[];
  readonly chosen: Unit;
  readonly onChoice: (unit: Unit) => void;
}

function Units<Unit extends string>({ units, chosen, onChoice }: UnitsProps<Unit>): ReactNode {
  const name = useId();
  return (
    <fieldset className="units">
      <legend className="visually-hidden">Unit</legend>
      {units.map(({ unit }) => (
        <label key={unit} className="choice">
          <input type="radio" name={name} checked={unit === chosen} onChange={() => onChoice(unit)} />
          <span>{unit.charAt(0).toUpperCase() + unit.slice(1)}</span>
        </label>
      ))}
    </fieldset>
  );
}
