import { useEffect, useState, type ReactNode } from 'react';

/** @param what is copied, for those who do not see what it stands beside */
export function CopyButton({ text, what, label = 'Copy' }: { text: string; what: string; label?: string }): ReactNode {
  const [outcome, setOutcome] = useState<'copied' | 'failed'>();
  useEffect(() => {
    if (!outcome) return;
    const timer = setTimeout(() => setOutcome(undefined), 2000);
    return () => clearTimeout(timer);
  }, [outcome]);
  return (
    <button
      type="button"
      className="button small"
      aria-label={`Copy ${what}`}
      onClick={() => void copy(text).then((done) => setOutcome(done ? 'copied' : 'failed'))}
    >
      <span role="status">{outcome === 'copied' ? 'Copied' : outcome === 'failed' ? 'Select it to copy' : label}</span>
    </button>
  );
}

/** The clipboard needs a secure context (https or localhost); a page opened by an address in the local network has the old way. */
async function copy(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyBySelection(text); // not allowed or not there
  }
}

function copyBySelection(text: string): boolean {
  const field = document.createElement('textarea');
  field.value = text;
  field.readOnly = true;
  field.className = 'visually-hidden';
  document.body.append(field);
  const before = document.activeElement;
  field.select();
  const done = document.execCommand('copy');
  field.remove();
  if (before instanceof HTMLElement) before.focus();
  return done;
}
