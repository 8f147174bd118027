/**
 * The per-user configuration file: `{"url", "apiKey", "otherKeys"}`, mode 0600, in a folder of mode 0700. PACELINE_URL and PACELINE_API_KEY win
 * over it. A key of it goes to the address that it stands beside and to no other: `otherKeys` has those of other addresses.
 * A file that others can read is repaired with a warning; one that belongs to somebody else is refused.
 */
import { chmodSync, existsSync, mkdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { userDirectories } from '@paceline/runtime/user-directories';
import { UserError } from '@paceline/runtime/user-error';
import { bytes } from './terminal/format.js';

export interface Configuration {
  readonly url: string | undefined;
  readonly apiKey: string | undefined;
  /** Where each value came from, for people. */
  readonly urlFrom: 'PACELINE_URL' | 'file' | 'default';
  readonly keyFrom: 'PACELINE_API_KEY' | 'file' | 'nowhere';
  readonly file: string;
  /** The address that the key of the file is for, where that is another one. */
  readonly keyIsFor?: string | undefined;
}

interface Stored {
  readonly url?: string;
  readonly apiKey?: string;
  readonly otherKeys?: Readonly<Record<string, string>>;
}

export const DEFAULT_URL = 'http://127.0.0.1:4100';
const MAX_BYTES = 64 * 1024;

export function configurationFile(env: NodeJS.ProcessEnv = process.env): string {
  return join(userDirectories(env).config, 'config.json');
}

/** @throws UserError CONFIG_* */
export function readConfiguration(env: NodeJS.ProcessEnv, warn: (text: string) => void): Configuration & { readonly url: string } {
  const file = configurationFile(env);
  const { PACELINE_URL: givenUrl, PACELINE_API_KEY: givenKey } = env;
  if (givenUrl && givenKey) return { url: givenUrl, apiKey: givenKey, urlFrom: 'PACELINE_URL', keyFrom: 'PACELINE_API_KEY', file };
  const stored = existsSync(file) ? readFile(file, warn) : {};
  const url = givenUrl || stored.url || DEFAULT_URL;
  const storedKey = keysOf(stored).get(placeOf(url));
  return {
    url,
    apiKey: givenKey || storedKey,
    urlFrom: givenUrl ? 'PACELINE_URL' : stored.url ? 'file' : 'default',
    keyFrom: givenKey ? 'PACELINE_API_KEY' : storedKey ? 'file' : 'nowhere',
    file,
    keyIsFor: stored.apiKey && !storedKey ? stored.url || DEFAULT_URL : undefined,
  };
}

/** Two spellings of an address are one place. */
function placeOf(url: string): string {
  if (!URL.canParse(url)) return url;
  const { origin } = new URL(url);
  return origin.replace(/^(https?:\/\/)localhost(?=:|$)/, '$1127.0.0.1');
}

function keysOf({ url, apiKey, otherKeys = {} }: Stored): Map<string, string> {
  const keys = new Map(Object.entries(otherKeys).map(([address, key]) => [placeOf(address), key]));
  if (apiKey) keys.set(placeOf(url || DEFAULT_URL), apiKey);
  return keys;
}

/**
 * Makes an address the one that commands speak to, with its key. Keys of other addresses stay.
 * @param formerUrl where the same api was before: its key goes
 */
export function writeConfiguration(
  { url, apiKey, formerUrl = url }: { readonly url: string; readonly apiKey: string; readonly formerUrl?: string },
  env: NodeJS.ProcessEnv = process.env,
): string {
  const file = configurationFile(env);
  const others = keysOf(existsSync(file) ? readFile(file, () => undefined) : {});
  for (const gone of [url, formerUrl]) others.delete(placeOf(gone));
  const values = Object.assign({ url, apiKey }, others.size > 0 ? { otherKeys: Object.fromEntries(others) } : {});
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
  const partial = `${file}.${process.pid}`;
  try {
    writeFileSync(partial, `${JSON.stringify(values, undefined, 2)}\n`, { mode: 0o600 });
    chmodSync(partial, 0o600); // whatever the umask is
    renameSync(partial, file);
  } finally {
    rmSync(partial, { force: true });
  }
  return file;
}

/** Mode of the file when others may read or write it, else undefined. */
export function wideMode(file: string): number | undefined {
  const mode = statSync(file).mode & 0o777;
  return (mode & 0o077) === 0 ? undefined : mode;
}

function readFile(file: string, warn: (text: string) => void): Stored {
  const stat = statSync(file);
  const uid = process.getuid?.();
  const mode = wideMode(file);
  if (uid !== undefined && stat.uid !== uid && uid !== 0) {
    throw new UserError('CONFIG_NOT_YOURS', `${file} belongs to another user (uid ${stat.uid}), so the key in it is not used.`, {
      hint: 'Remove the file, or set PACELINE_URL and PACELINE_API_KEY.',
      exit: 'configuration',
    });
  }
  if (mode !== undefined) warn(`${narrowed(file, mode)} If others use this machine, make a new key.`);
  if (stat.size > MAX_BYTES) throw unreadable(file, `it has ${bytes(stat.size)}, more than ${bytes(MAX_BYTES)}`);
  let value: unknown;
  try {
    value = JSON.parse(readFileSync(file, 'utf8'));
  } catch (error) {
    throw unreadable(file, (error as Error).message);
  }
  if (value === null || typeof value !== 'object' || Array.isArray(value))
    throw unreadable(file, 'it must hold an object with url and apiKey');
  const { url, apiKey, otherKeys, ...others } = value as Record<string, unknown>;
  for (const [name, given] of Object.entries({ url, apiKey })) {
    if (given !== undefined && typeof given !== 'string') throw unreadable(file, `${name} must be a text`);
  }
  if (otherKeys !== undefined && !areTexts(otherKeys)) throw unreadable(file, 'otherKeys must be an object with a key for each address');
  if (Object.keys(others).length > 0)
    throw unreadable(file, `unknown field ${JSON.stringify(Object.keys(others)[0]!.slice(0, 60))}; it holds url, apiKey and otherKeys`);
  return value as Stored;
}

const areTexts = (value: unknown): boolean =>
  value !== null && typeof value === 'object' && !Array.isArray(value) && Object.values(value).every((each) => typeof each === 'string');

/** @returns what was done about a file that others can read */
function narrowed(file: string, mode: number): string {
  const before = `(mode ${mode.toString(8)})`;
  try {
    chmodSync(file, 0o600);
    return `${file} could be read by others ${before}; it is 600 now.`;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    const why = code === 'EROFS' ? 'its disk can only be read' : code;
    return `${file} can be read by others ${before}, and it cannot be changed to 600: ${why}.`;
  }
}

function unreadable(file: string, why: string): UserError {
  return new UserError('CONFIG_UNREADABLE', `The configuration file ${file} cannot be used: ${why}.`, {
    hint: 'Correct it, or remove it: `paceline up` writes a new one.',
    exit: 'configuration',
  });
}
