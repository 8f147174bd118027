/** Runs by a part of their name. What is typed goes into the address once the typing rests. */
import { useEffect, useState, type ReactNode } from 'react';
import { navigate } from '../router.js';
import { MOST_NAME, listPath, type FilterName } from './run-filter.js';

const REST_MS = 300;

export function NameSearch({ filter, name }: { filter: FilterName; name: string }): ReactNode {
  const [typed, setTyped] = useState(name);
  const [before, setBefore] = useState(name);
  // The address has changed by a link, or by going back.
  if (before !== name) {
    setBefore(name);
    setTyped(name);
  }
  useEffect(() => {
    if (typed === name) return;
    // The letters of one search are one step to go back over.
    const timer = setTimeout(() => navigate(listPath({ filter, name: typed }), { replaces: name !== '' }), REST_MS);
    return () => clearTimeout(timer);
  }, [typed, name, filter]);
  return (
    <form
      role="search"
      className="name-search"
      onSubmit={(event) => {
        event.preventDefault();
        if (typed !== name) navigate(listPath({ filter, name: typed }), { replaces: name !== '' });
      }}
    >
      <input
        type="search"
        aria-label="Runs by name"
        placeholder="Name"
        maxLength={MOST_NAME}
        spellCheck={false}
        value={typed}
        onChange={(event) => setTyped(event.target.value)}
      />
    </form>
  );
}
