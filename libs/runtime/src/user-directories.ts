/**
 * Where Paceline keeps things, by the XDG base directory specification. PACELINE_HOME moves all of them below one folder.
 * Root's data lie in its home too. Only outside of Linux they lie in /var/lib/paceline: the embedded PostgreSQL does not run as root but as
 * another user, who may not enter root's home there.
 */
import { existsSync } from 'node:fs';
import { homedir } from 'node:os';
import { join, resolve } from 'node:path';

const FORMER_DATA_OF_ROOT = '/var/lib/paceline';
const isRoot = (): boolean => process.getuid?.() === 0;

export interface UserDirectories {
  /** State of the local stack: databases, weights, logs, lock and pid file. */
  readonly data: string;
  /** Things that can be fetched again: datasets, Redis binaries. */
  readonly cache: string;
  /** The configuration file with the api key. */
  readonly config: string;
}

export function userDirectories(env: NodeJS.ProcessEnv = process.env): UserDirectories {
  const home = env['PACELINE_HOME'];
  if (home) return { data: resolve(home), cache: join(resolve(home), 'cache'), config: join(resolve(home), 'config') };
  const base = (variable: string, fallback: string): string => {
    const value = env[variable];
    return join(value && value.startsWith('/') ? value : join(env['HOME'] || homedir(), fallback), 'paceline');
  };
  const dataOfRoot = isRoot() && process.platform !== 'linux' && !env['XDG_DATA_HOME'] ? FORMER_DATA_OF_ROOT : undefined;
  return {
    data: dataOfRoot ?? base('XDG_DATA_HOME', '.local/share'),
    cache: base('XDG_CACHE_HOME', '.cache'),
    config: base('XDG_CONFIG_HOME', '.config'),
  };
}

/** Where an earlier version kept root's data, when it did and there is nothing yet in `data`; undefined otherwise. */
export function formerData(data: string, former = FORMER_DATA_OF_ROOT): string | undefined {
  const holdsData = (folder: string): boolean => existsSync(join(folder, 'secrets.json'));
  return isRoot() && data !== former && holdsData(former) && !holdsData(data) ? former : undefined;
}
