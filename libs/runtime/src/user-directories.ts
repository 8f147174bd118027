/**
 * Where Paceline keeps things, by the XDG base directory specification. PACELINE_HOME moves all of them below one folder.
 * Root keeps its data in /var/lib/paceline: the embedded PostgreSQL refuses to run as root and so runs as another user, which may
 * not enter /root.
 */
import { homedir } from 'node:os';
import { join, resolve } from 'node:path';

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
  const dataOfRoot = process.getuid?.() === 0 && !env['XDG_DATA_HOME'] ? '/var/lib/paceline' : undefined;
  return {
    data: dataOfRoot ?? base('XDG_DATA_HOME', '.local/share'),
    cache: base('XDG_CACHE_HOME', '.cache'),
    config: base('XDG_CONFIG_HOME', '.config'),
  };
}
