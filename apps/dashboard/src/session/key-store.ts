/**
 * Where the api key of this browser is: in sessionStorage (this tab, until it is closed), or in localStorage when the person
 * asked to be remembered. A link with `#key=` brings one: it is taken once and removed from the address, so that it is
 * neither in the history nor in a copied link. (A fragment is never sent to a server.)
 */
const NAME = 'paceline.key';
const MAX_KEY_CHARACTERS = 200;

export interface StoredKey {
  readonly key: string;
  readonly remembered: boolean;
}

type Places = { readonly session: Storage; readonly local: Storage };
const browser = (): Places => ({ session: window.sessionStorage, local: window.localStorage });

export function readKey({ session, local }: Places = browser()): StoredKey | undefined {
  const here = session.getItem(NAME);
  if (here) return { key: here, remembered: false };
  const remembered = local.getItem(NAME);
  return remembered ? { key: remembered, remembered: true } : undefined;
}

export function writeKey({ key, remembered }: StoredKey, places: Places = browser()): void {
  forgetKey(places);
  (remembered ? places.local : places.session).setItem(NAME, key);
}

export function forgetKey({ session, local }: Places = browser()): void {
  session.removeItem(NAME);
  local.removeItem(NAME);
}

/** A key as typed or pasted: without spaces around it, and only what can stand in a header. */
export function cleanKey(typed: string): string | undefined {
  const key = typed.trim();
  return /^[\x21-\x7e]+$/.test(key) && key.length <= MAX_KEY_CHARACTERS ? key : undefined;
}

/** The key in an address fragment (`#key=...`), and the fragment without it. */
export function keyInFragment(fragment: string): { readonly key: string; readonly rest: string } | undefined {
  const parameters = new URLSearchParams(fragment.replace(/^#/, ''));
  const key = cleanKey(parameters.get('key') ?? '');
  if (!parameters.has('key')) return undefined;
  parameters.delete('key');
  const rest = parameters.toString();
  return { key: key ?? '', rest: rest ? `#${rest}` : '' };
}

/** A key that a link has brought. One that this browser remembers already stays remembered. */
export const broughtKey = (key: string, { local }: Places = browser()): StoredKey => ({ key, remembered: local.getItem(NAME) === key });

/** Takes the key out of the address; undefined when there is none. */
export function takeKeyFromAddress(): StoredKey | undefined {
  const found = keyInFragment(location.hash);
  if (!found) return undefined;
  history.replaceState(history.state, '', location.pathname + location.search + found.rest);
  return found.key ? broughtKey(found.key) : undefined;
}
