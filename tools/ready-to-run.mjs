/**
 * What `npm run demo` and `npm start` need before they can begin: packages installed as the lockfile says, everything built. Only Node's own
 * modules are used here, as on a fresh machine there is nothing else.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { build } from './build.mjs';

const root = join(import.meta.dirname, '..');
const SMALLEST_NODE = [20, 19];

/** Everything is said on stderr: stdout belongs to the result. @returns {boolean} false when something is missing, which was said */
export function makeReady() {
  /** @param {string} line */
  const say = (line) => process.stderr.write(`${line}\n`);
  const [major, minor] = process.versions.node.split('.').map(Number);
  if (major < SMALLEST_NODE[0] || (major === SMALLEST_NODE[0] && minor < SMALLEST_NODE[1])) {
    say(`Paceline needs Node ${SMALLEST_NODE.join('.')} or newer; this is ${process.version}. See https://nodejs.org`);
    return false;
  }
  if (!isInstalled()) {
    say('Installing packages (npm ci), once.');
    const result = spawnSync('npm', ['ci', '--no-audit', '--no-fund', '--loglevel=error'], {
      cwd: root,
      stdio: ['ignore', 2, 2],
      env: { ...process.env, npm_config_json: '' },
    });
    if (result.status !== 0) {
      say('npm ci failed. Its messages above say why; a registry that cannot be reached is the usual reason.');
      return false;
    }
  }
  return build({ log: say, checked: false });
}

/**
 * Whether node_modules holds what package-lock.json asks for: npm keeps its own copy of the lockfile there, written last. Contents are compared, not
 * times: a checkout makes every file new.
 */
function isInstalled() {
  const installedFile = join(root, 'node_modules/.package-lock.json');
  if (!existsSync(installedFile)) return false;
  try {
    const wanted = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8')).packages;
    const installed = JSON.parse(readFileSync(installedFile, 'utf8')).packages;
    return Object.entries(wanted).every(([path, entry]) => {
      const isWorkspace = !path.includes('node_modules/');
      if (isWorkspace || entry.optional || entry.peer) return true; // other platforms' packages are rightly missing
      return installed[path] !== undefined && installed[path].version === entry.version && installed[path].integrity === entry.integrity;
    });
  } catch {
    return false; // unreadable: install again
  }
}
