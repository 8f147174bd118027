import { useEffect, useId, useRef, useState, type FormEvent, type ReactNode } from 'react';
import type { ApiFault } from '../graphql/api-fault.js';
import { Logo } from '../components/Logo.js';
import { cleanKey, type StoredKey } from './key-store.js';

interface Props {
  readonly checking: boolean;
  /** A key that nobody typed is checked, so no form is shown yet. */
  readonly quiet: boolean;
  /** Why that takes so long; it is being tried again. */
  readonly trouble: ApiFault | undefined;
  readonly onOtherKey: () => void;
  readonly fault: ApiFault | undefined;
  readonly tried: StoredKey | undefined;
  readonly onKey: (key: StoredKey) => void;
}

const CANNOT_BE = 'This cannot be an API key: a key is one word of letters, digits, dots, hyphens and underscores.';

export function SignIn({ checking, quiet, trouble, onOtherKey, fault, tried, onKey }: Props): ReactNode {
  const [typed, setTyped] = useState(fault?.kind === 'UNAUTHENTICATED' ? '' : (tried?.key ?? ''));
  const [remembered, setRemembered] = useState(tried?.remembered ?? false);
  const [malformed, setMalformed] = useState(false);
  const field = useRef<HTMLInputElement>(null);
  const problemId = useId();

  useEffect(() => {
    document.title = 'Sign in · Paceline';
    if (quiet || checking) return;
    field.current?.focus();
    field.current?.select();
  }, [quiet, checking, fault]);

  const submit = (event: FormEvent): void => {
    event.preventDefault();
    const key = cleanKey(typed);
    setMalformed(!key);
    if (key) onKey({ key, remembered });
    else field.current?.focus();
  };

  const problem = malformed ? <p>{CANNOT_BE}</p> : fault && !checking ? <Problem fault={fault} /> : undefined;
  return (
    <main className="sign-in">
      <form className="card sign-in-card" onSubmit={submit} aria-busy={checking}>
        <h1 className="brand brand-large">
          <Logo /> Paceline
        </h1>
        {quiet ? (
          <>
            <p role="status">{trouble ? `${trouble.message} Trying again…` : 'Signing in…'}</p>
            {trouble && (
              <button type="button" className="button" onClick={onOtherKey}>
                Use another key
              </button>
            )}
          </>
        ) : (
          <>
            <label className="field">
              <span>API key</span>
              <input
                ref={field}
                type="password"
                value={typed}
                onChange={(event) => setTyped(event.target.value)}
                autoComplete="current-password"
                autoCapitalize="none"
                spellCheck={false}
                aria-invalid={problem !== undefined}
                aria-describedby={problemId}
              />
            </label>
            <label className="choice">
              <input type="checkbox" checked={remembered} onChange={(event) => setRemembered(event.target.checked)} />
              <span>Remember on this device</span>
            </label>
            <div id={problemId} className="problem" role="alert">
              {problem}
            </div>
            <button type="submit" className="button primary" disabled={checking}>
              {checking ? 'Checking…' : 'Sign in'}
            </button>
            <p className="hint">
              <code>paceline up</code> and <code>npm run demo -- --keep</code> print a link that opens this page signed in.
            </p>
          </>
        )}
      </form>
    </main>
  );
}

function Problem({ fault }: { fault: ApiFault }): ReactNode {
  if (fault.kind === 'UNAUTHENTICATED') {
    return (
      <p>
        This key is not accepted. It may be incomplete or revoked, or belong to another Paceline. Copy it again, or open the link that was
        printed at the start.
      </p>
    );
  }
  if (fault.kind === 'RATE_LIMITED')
    return <p>Too many attempts. Wait {Math.ceil((fault.retryAfterMs ?? 60_000) / 1000)} seconds, then try again.</p>;
  if (fault.kind === 'UNREACHABLE')
    return (
      <p>
        {fault.message} Is it running? <code>paceline doctor</code> tells.
      </p>
    );
  return <p>{fault.message}</p>;
}
