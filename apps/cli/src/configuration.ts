/**
 * The per-user configuration file: `{"url", "apiKey"}`, mode 0600, in a folder of mode 0700. PACELINE_URL and PACELINE_API_KEY win over it.
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
}

export const DEFAULT_URL = 'http://127.0.0.1:4100';
const MAX_BYTES = 64 * 1024;

export function configurationFile(env: NodeJS.ProcessEnv = process.env): string {
  return join(userDirectories(env).config, 'config.json');
}

/** @throws UserError CONFIG_* */
export function readConfiguration(env: NodeJS.ProcessEnv, warn: (text: string) => void): Configuration & { readonly url: string } {
  const file = configurationFile(env);
  const stored = existsSync(file) ? readFile(file, warn) : {};
  const url = env['PACELINE_URL'] || stored.url || DEFAULT_URL;
  const apiKey = env['PACELINE_API_KEY'] || stored.apiKey;
  return {
    url,
    apiKey,
    urlFrom: env['PACELINE_URL'] ? 'PACELINE_URL' : stored.url ? 'file' : 'default',
    keyFrom: env['PACELINE_API_KEY'] ? 'PACELINE_API_KEY' : stored.apiKey ? 'file' : 'nowhere',
    file,
  };
}

export function writeConfiguration(
  values: { readonly url: string; readonly apiKey: string },
  env: NodeJS.ProcessEnv = process.env,
): string {
  const file = configurationFile(env);
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

function readFile(file: string, warn: (text: string) => void): { url?: string; apiKey?: string } {
  const stat = statSync(file);
  const uid = process.getuid?.();
  const mode = wideMode(file);
  if (uid !== undefined && stat.uid !== uid && uid !== 0) {
    throw new UserError('CONFIG_NOT_YOURS', `${file} belongs to another user (uid ${stat.uid}), so the key in it is not used.`, {
      hint: 'Remove the file, or set PACELINE_URL and PACELINE_API_KEY.',
      exit: 'configuration',
    });
  }
  if (mode !== undefined) {
    chmodSync(file, 0o600);
    warn(`${file} could be read by others (mode ${mode.toString(8)}); it is 600 now. If others use this machine, make a new key.`);
  }
  if (stat.size > MAX_BYTES) throw unreadable(file, `it has ${bytes(stat.size)}, more than ${bytes(MAX_BYTES)}`);
  let value: unknown;
  try {
    value = JSON.parse(readFileSync(file, 'utf8'));
  } catch (error) {
    throw unreadable(file, (error as Error).message);
  }
  if (value === null || typeof value !== 'object' || Array.isArray(value))
    throw unreadable(file, 'it must hold an object with url and apiKey');
  const { url, apiKey, ...others } = value as Record<string, unknown>;
  for (const [name, given] of Object.entries({ url, apiKey })) {
    if (given !== undefined && typeof given !== 'string') throw unreadable(file, `${name} must be a text`);
  }
  if (Object.keys(others).length > 0)
    throw unreadable(file, `unknown field ${JSON.stringify(Object.keys(others)[0]!.slice(0, 60))}; it holds url and apiKey`);
  return { ...(url === undefined ? {} : { url: url as string }), ...(apiKey === undefined ? {} : { apiKey: apiKey as string }) };
}

function unreadable(file: string, why: string): UserError {
  return new UserError('CONFIG_UNREADABLE', `The configuration file ${file} cannot be used: ${why}.`, {
    hint: 'Correct it, or remove it: `paceline up` writes a new one.',
    exit: 'configuration',
  });
}
