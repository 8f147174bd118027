import { useEffect, useId, useRef, useState, type ReactNode } from 'react';
import { navigate } from '../router.js';
import { SHORTCUTS, areOn, neighbour, shortcutOf, turn } from './shortcut-keys.js';

/** Listens for the shortcuts of the page, and shows them on `?`. */
export function Shortcuts({ onTheme }: { onTheme: () => void }): ReactNode {
  const dialog = useRef<HTMLDialogElement>(null);
  const titleId = useId();
  const [on, setOn] = useState(areOn);

  useEffect(() => {
    const act = (event: KeyboardEvent): void => {
      const shortcut = shortcutOf(event, isTyping(event.target));
      if (shortcut === undefined || (!on && shortcut !== '?')) return;
      event.preventDefault();
      if (shortcut === '?') dialog.current?.showModal();
      else if (shortcut === 'r') navigate('/');
      else if (shortcut === 'd') navigate('/datasets');
      else if (shortcut === 't') onTheme();
      else focusRun(shortcut === 'j' ? 1 : -1);
    };
    window.addEventListener('keydown', act);
    return () => window.removeEventListener('keydown', act);
  }, [on, onTheme]);

  const change = (wanted: boolean): void => {
    turn(wanted);
    setOn(wanted);
  };
  return (
    <dialog ref={dialog} className="card dialog" aria-labelledby={titleId}>
      <h2 id={titleId}>Keyboard</h2>
      <dl className="keys">
        {SHORTCUTS.map(({ key, does }) => (
          <div key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{does}</dd>
          </div>
        ))}
        <div>
          <dt>
            <kbd>←</kbd> <kbd>→</kbd> <kbd>+</kbd> <kbd>-</kbd> <kbd>0</kbd>
          </dt>
          <dd>In a chart: point by point, zoom, show all</dd>
        </div>
      </dl>
      <form method="dialog">
        <label className="choice">
          <input type="checkbox" checked={on} onChange={(event) => change(event.target.checked)} />
          <span>Use single keys</span>
        </label>
        <div className="dialog-buttons">
          <button type="submit" className="button">
            Close
          </button>
        </div>
      </form>
    </dialog>
  );
}

const isTyping = (target: EventTarget | null): boolean =>
  document.querySelector('dialog[open]') !== null ||
  (target instanceof HTMLElement && target.closest('input:not([type=range]), textarea, select, [contenteditable]') !== null);

function focusRun(step: 1 | -1): void {
  const links = [...document.querySelectorAll<HTMLElement>('.row-link')];
  const next = neighbour(
    links.findIndex((link) => link === document.activeElement),
    step,
    links.length,
  );
  if (next !== undefined) links[next]!.focus();
}
