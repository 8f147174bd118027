/**
 * `node prune.mjs node_modules [PACKAGE …]`: makes an image smaller. Removes what Node never loads from installed packages: source maps,
 * type declarations, and files that only browsers load (minified bundles beside the one that `main` names); and the packages that are named.
 */
import { readFileSync, readdirSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';

const [folder, ...packages] = process.argv.slice(2);
const NEVER_LOADED = /\.(map|d\.[cm]?ts|tsbuildinfo)$/u;
let bytes = 0;

/** @param {string} path */
function remove(path) {
  bytes += statSync(path).isFile() ? statSync(path).size : 0;
  rmSync(path, { recursive: true });
}

/** Bundles of tf.js for browsers: each is the whole library again. @param {string} path */
function isBrowserBundle(path) {
  const found = /^(?<home>.*\/@tensorflow\/[^/]+)\/dist\/(?<file>tf[^/]*\.js)$/u.exec(path);
  if (!found?.groups) return false;
  const { main, module } = JSON.parse(readFileSync(join(found.groups.home, 'package.json'), 'utf8'));
  return ![main, module].includes(`dist/${found.groups.file}`);
}

for (const name of packages) rmSync(join(folder, name), { recursive: true, force: true });
for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
  const path = join(entry.parentPath, entry.name);
  if (entry.isFile() && (NEVER_LOADED.test(entry.name) || isBrowserBundle(path))) remove(path);
}
console.log(`removed ${(bytes / 2 ** 20).toFixed(0)} MiB`);
