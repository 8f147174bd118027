/**
 * `npm run build`: everything that runs, through Nx and its cache.
 *
 *     sources as at the last build, outputs there   ->  nothing to do, in about 60 ms (Nx alone needs 1.3 s to find that out)
 *     otherwise                                     ->  nx run paceline:everything (project.json)
 *     otherwise, for `npm run demo` and `npm start` ->  nx run paceline:runnable: the same without type checks, in less than half of the computing
 *
 * The TypeScript projects are compiled by one `tsc -b`, not by one per package, as
 * each compiler has to start and read the same declarations again. `nx build NAME` still builds a single project, without its bundles.
 * A second build that starts meanwhile waits for the first.
 */
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { pathToFileURL } from 'node:url';

const root = join(import.meta.dirname, '..');
const stampFile = join(root, '.nx/paceline-build.json');
const lockFile = join(root, '.nx/paceline-build.lock');
const LOCK_DEADLINE_MS = 10 * 60_000;

const SKIPPED_FOLDERS = new Set(['node_modules', 'dist', '.nx', '.git', 'generated', 'test', 'docs']);
/** What a build leaves behind; a folder that was cleaned by hand is noticed. */
const outputs = () =>
  ['libs', 'apps']
    .flatMap((group) => readdirSync(join(root, group)).map((name) => join(group, name)))
    .map((project) => join(project, 'dist'));

/**
 * @param {{log?: (line: string) => void, checked?: boolean}} [options] `checked: false` is satisfied with what runs
 * @returns {boolean} false when the build failed; what the tools said was printed to stderr
 */
export function build({ log = (line) => process.stdout.write(`${line}\n`), checked = true } = {}) {
  if (isFresh(checked)) {
    log('build: up to date');
    return true;
  }
  const release = lock();
  try {
    if (isFresh(checked)) return true; // built by the one that we waited for
    const startedAt = performance.now();
    const before = stampOf();
    const nx = join(root, 'node_modules/.bin/nx');
    const result = spawnSync(nx, ['run', `paceline:${checked ? 'everything' : 'runnable'}`, '--outputStyle=static'], {
      cwd: root,
      encoding: 'utf8',
      maxBuffer: 64 * 1024 * 1024,
      env: {
        ...process.env,
        NX_DAEMON: 'false',
        NX_CACHE_DIRECTORY: join(root, '.nx/cache'),
        NX_TUI: 'false',
        NX_NO_CLOUD: 'true',
        FORCE_COLOR: '0',
        // A build asks nobody for news: it works without a network and waits for none.
        npm_config_update_notifier: 'false',
        CHECKPOINT_DISABLE: '1',
        PRISMA_HIDE_UPDATE_MESSAGE: '1',
      },
    });
    if (result.status !== 0) {
      process.stderr.write(`${result.stdout ?? ''}${result.stderr ?? ''}${result.error ? `${result.error.message}\n` : ''}build: failed\n`);
      return false;
    }
    mkdirSync(join(root, '.nx'), { recursive: true });
    writeFileSync(stampFile, JSON.stringify({ sources: before, outputs: presentOutputs(), checked }));
    log(`build: done in ${((performance.now() - startedAt) / 1000).toFixed(1)} s`);
    return true;
  } finally {
    release();
  }
}

/** @param {boolean} checked */
function isFresh(checked) {
  if (!existsSync(stampFile)) return false;
  try {
    const stamp = JSON.parse(readFileSync(stampFile, 'utf8'));
    return (
      (stamp.checked || !checked) &&
      stamp.sources === stampOf() &&
      stamp.outputs.length > 0 &&
      stamp.outputs.every((/** @type {string} */ file) => existsSync(join(root, file)))
    );
  } catch {
    return false; // cut short while it was written: build
  }
}

function presentOutputs() {
  return outputs().flatMap((dist) =>
    [
      '.tsbuildinfo',
      'index.js',
      'main.js',
      'bundle/main.js',
      'bundle/compute-thread.js',
      'library/index.js',
      'library/server-entry.js',
      'kernels.wasm',
      'index.html',
    ]
      .map((name) => join(dist, name))
      .filter((file) => existsSync(join(root, file))),
  );
}

/** Names, sizes and times of all sources: Nx compares contents, this only decides whether to ask it. */
function stampOf() {
  const hash = createHash('sha256');
  /** @param {string} folder */
  const visit = (folder) => {
    for (const entry of readdirSync(folder, { withFileTypes: true }).sort((a, b) => (a.name < b.name ? -1 : 1))) {
      const path = join(folder, entry.name);
      if (entry.isDirectory()) {
        if (!SKIPPED_FOLDERS.has(entry.name)) visit(path);
      } else if (!/\.(test\.tsx?|md)$/.test(entry.name)) {
        const { mtimeMs, size } = statSync(path);
        hash.update(`${relative(root, path)} ${mtimeMs} ${size}\n`);
      }
    }
  };
  for (const folder of ['libs', 'apps', 'prisma']) visit(join(root, folder));
  for (const file of [
    'tsconfig.build.json',
    'tsconfig.base.json',
    'nx.json',
    'project.json',
    'docs/reference/schema.graphql',
    'package-lock.json',
    'tools/build.mjs',
    'tools/bundle.mjs',
  ]) {
    const { mtimeMs, size } = statSync(join(root, file));
    hash.update(`${file} ${mtimeMs} ${size}\n`);
  }
  hash.update(process.version);
  return hash.digest('hex');
}

/** One build at a time; a lock whose holder is gone is taken over. */
function lock() {
  mkdirSync(join(root, '.nx'), { recursive: true });
  const until = performance.now() + LOCK_DEADLINE_MS;
  for (;;) {
    try {
      writeFileSync(lockFile, String(process.pid), { flag: 'wx' });
      return () => rmSync(lockFile, { force: true });
    } catch (error) {
      if (codeOf(error) !== 'EEXIST') throw error;
    }
    if (!isAlive(Number(readText(lockFile)))) rmSync(lockFile, { force: true });
    else if (performance.now() > until) throw new Error(`another build (pid ${readText(lockFile)}) holds ${lockFile} for ten minutes`);
    else Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 100);
  }
}

/** @param {unknown} error */
const codeOf = (error) => /** @type {NodeJS.ErrnoException} */ (error).code;

/** @param {string} file */
function readText(file) {
  return existsSync(file) ? readFileSync(file, 'utf8') : '';
}

/** @param {number} pid */
function isAlive(pid) {
  if (!pid) return false;
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return codeOf(error) === 'EPERM';
  }
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href)
  process.exitCode = build({ checked: !process.argv.includes('--unchecked') }) ? 0 : 1;
