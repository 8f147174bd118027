/** Where the tests find TensorFlow; sets what a worker sets before it is loaded. */
import { existsSync, readFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';

/** ADDON_REVISION of libs/tensorflow-addon, as these tests need it. */
const LEAST_ADDON = 3;

/** The folder into which `paceline engine install tensorflow` puts the package; undefined where it has not been installed. */
export function installedPackage(): string | undefined {
  const { PACELINE_HOME, XDG_CACHE_HOME } = process.env;
  const cache = PACELINE_HOME ? join(PACELINE_HOME, 'cache') : join(XDG_CACHE_HOME ?? join(homedir(), '.cache'), 'paceline');
  const folder = join(cache, 'engines/tensorflow-2.21.0-cpu/package');
  for (const name of ['TF_NUM_INTRAOP_THREADS', 'TF_NUM_INTEROP_THREADS', 'TF_DETERMINISTIC_OPS']) process.env[name] ??= '1';
  process.env['TF_CPP_MIN_LOG_LEVEL'] ??= '2';
  if (!existsSync(folder)) return undefined;
  const { addonRevision } = JSON.parse(readFileSync(join(folder, '../installation.json'), 'utf8')) as { addonRevision: number };
  if (addonRevision < LEAST_ADDON)
    throw new Error('an older release built this engine: run `paceline engine install tensorflow`, which builds it anew');
  return folder;
}
