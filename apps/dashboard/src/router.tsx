/** Four pages, so a router of our own: the path and the query of the address, and links that change them without a reload. */
import { useSyncExternalStore, type MouseEvent, type ReactNode } from 'react';

export type Route =
  | { readonly page: 'runs' | 'datasets' | 'unknown' }
  | { readonly page: 'run'; readonly id: string }
  | { readonly page: 'dataset'; readonly name: string };

export function routeOf(pathname: string): Route {
  const path = pathname.replace(/\/+$/, '');
  if (path === '' || path === '/runs') return { page: 'runs' };
  if (path === '/datasets') return { page: 'datasets' };
  const [, kind, part] = /^\/(runs|datasets)\/([^/]{1,200})$/.exec(path) ?? [];
  if (part === undefined) return { page: 'unknown' };
  try {
    const named = decodeURIComponent(part);
    return kind === 'runs' ? { page: 'run', id: named } : { page: 'dataset', name: named };
  } catch {
    return { page: 'unknown' }; // not a valid escape, so no address that we made
  }
}

export const runPath = (id: string): string => `/runs/${encodeURIComponent(id)}`;
/** @param version a part of its hash will do; the newest without one */
export const datasetPath = (name: string, version?: string): string =>
  `/datasets/${encodeURIComponent(name)}${version === undefined ? '' : `?version=${encodeURIComponent(version)}`}`;

const CHANGED = 'paceline:navigated';

function subscribe(listener: () => void): () => void {
  window.addEventListener('popstate', listener);
  window.addEventListener(CHANGED, listener);
  return () => {
    window.removeEventListener('popstate', listener);
    window.removeEventListener(CHANGED, listener);
  };
}

/** The address after the origin, without the fragment. */
export function useAddress(): { readonly pathname: string; readonly search: string } {
  const address = useSyncExternalStore(subscribe, () => location.pathname + location.search);
  const query = address.indexOf('?');
  return query < 0 ? { pathname: address, search: '' } : { pathname: address.slice(0, query), search: address.slice(query) };
}

/** @param replaces the address before it is no step of its own to go back to */
export function navigate(to: string, { replaces = false }: { readonly replaces?: boolean } = {}): void {
  const samePage = new URL(to, location.href).pathname === location.pathname;
  history[replaces ? 'replaceState' : 'pushState'](null, '', to);
  window.dispatchEvent(new Event(CHANGED));
  if (!samePage) window.scrollTo(0, 0);
}

interface LinkProps {
  readonly to: string;
  readonly className?: string | undefined;
  readonly current?: boolean;
  readonly label?: string;
  readonly children: ReactNode;
}

export function Link({ to, className, current, label, children }: LinkProps): ReactNode {
  const follow = (event: MouseEvent): void => {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    navigate(to);
  };
  return (
    <a href={to} className={className} onClick={follow} aria-current={current ? 'page' : undefined} aria-label={label}>
      {children}
    </a>
  );
}
