/**
 * `npm run dev`: the local stack of `npm start`, whose processes follow the sources. It takes the flags of `paceline up`.
 *
 *     a source of a library or process changes -> that file alone is compiled -> the processes that load its package are started again
 *     kernels, database schema, GraphQL documents, dashboard -> `npm run build` -> all processes are started again; for the dashboard none
 *
 * A file is compiled without its neighbours (`isolatedModules`), in milliseconds, to the code that the build makes of it. Types are not checked: your
 * editor does that, or `npx tsc -p . --watch`. The next build compiles the package again, with its types.
 */
import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, statSync, watch, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { pathToFileURL } from 'node:url';
import { removeBundles } from './bundle.mjs';
import { makeReady } from './ready-to-run.mjs';

const root = join(import.meta.dirname, '..');
/** Editors write a file in several steps, and several files at once. */
const SETTLE_MS = 60;
const READY_POLL_MS = 25;
const PROCESSES = ['api', 'ps', 'worker'];
const WATCHED = ['libs', 'apps'].flatMap((group) => readdirSync(join(root, group)).map((name) => `${group}/${name}/src`));
WATCHED.push('libs/kernels/assembly', 'prisma');

/** @param {string} path relative to the root */
const packageOf = (path) => path.split('/').slice(0, 2).join('/');

/**
 * What a changed file asks for.
 * @param {string} path relative to the root
 * @returns {'compile' | 'build' | 'nothing'}
 */
export function needOf(path) {
  if (/\.(test|fixture)\.\w+$/.test(path) || path.includes('/generated/')) return 'nothing';
  if (/^(libs\/kernels\/assembly|prisma|apps\/dashboard)\/|^libs\/kernels\/[^/]+\.mjs$|\.graphql$/.test(path)) return 'build';
  return path.endsWith('.ts') ? 'compile' : 'nothing';
}

/** The processes that load a package, by its folder. @param {string} folder */
export function processesOf(folder) {
  /** @param {string} project @returns {string[]} */
  const loadedBy = (project) => {
    const { dependencies = {} } = JSON.parse(readFileSync(join(root, project, 'package.json'), 'utf8'));
    const own = Object.keys(dependencies).flatMap((name) => /^@paceline\/(.*)$/.exec(name)?.[1] ?? []);
    return [project, ...own.flatMap((name) => loadedBy(`libs/${name}`))];
  };
  return PROCESSES.filter((app) => loadedBy(`apps/${app}`).includes(folder));
}

/**
 * Writes what the build would make of a source.
 * @param {string} path relative to the root
 * @param {typeof import('typescript')} ts
 * @returns {Promise<string | undefined>} what is wrong with the file
 */
async function compile(path, ts) {
  const output = join(root, path.replace('/src/', '/dist/').replace(/\.ts$/, '.js'));
  const source = join(root, path);
  if (!existsSync(source)) return (rmSync(output, { force: true }), undefined);
  const { compilerOptions } = ts.readConfigFile(join(root, 'tsconfig.base.json'), ts.sys.readFile).config;
  // A single file has no package.json that says it is a module.
  const whole = { module: 'esnext', moduleResolution: 'bundler', composite: false, declaration: false, declarationMap: false };
  const { options } = ts.convertCompilerOptionsFromJson(Object.assign({}, compilerOptions, whole), root);
  const result = ts.transpileModule(readFileSync(source, 'utf8'), { compilerOptions: options, fileName: path, reportDiagnostics: true });
  const [mistake] = result.diagnostics ?? [];
  if (mistake) {
    const { line } = mistake.file?.getLineAndCharacterOfPosition(mistake.start ?? 0) ?? { line: 0 };
    return `${path}:${line + 1}: ${ts.flattenDiagnosticMessageText(mistake.messageText, '\n')}`;
  }
  if (existsSync(output) && readFileSync(output, 'utf8') === result.outputText) return undefined;
  // The compiler must not believe that it wrote this.
  rmSync(join(root, packageOf(path), 'dist/.tsbuildinfo'), { force: true });
  removeBundles(); // they have the file as it was
  mkdirSync(dirname(output), { recursive: true });
  writeFileSync(output, result.outputText);
  if (result.sourceMapText) writeFileSync(`${output}.map`, result.sourceMapText);
  return undefined;
}

/** @returns {Promise<boolean>} false when it failed; what the tools said was printed */
const buildAll = () =>
  new Promise((resolve) => {
    const child = spawn(process.execPath, [join(root, 'tools/build.mjs'), '--unchecked'], { stdio: ['ignore', 2, 2] });
    child.once('exit', (code) => resolve(code === 0));
  });

/**
 * Calls `onChange` with the paths that have changed, together and in turn. New folders are watched too.
 * @param {(paths: readonly string[]) => Promise<void>} onChange
 */
function watchSources(onChange) {
  /** @type {Set<string>} */
  const changed = new Set();
  let turn = Promise.resolve();
  /** @type {NodeJS.Timeout | undefined} */
  let timer;
  const settle = () => {
    const paths = [...changed];
    changed.clear();
    if (paths.length > 0) turn = turn.then(() => onChange(paths));
  };
  /** @param {string} folder */
  const watchTree = (folder) => {
    for (const entry of readdirSync(folder, { withFileTypes: true })) if (entry.isDirectory()) watchTree(join(folder, entry.name));
    watchFolder(folder, watchTree);
  };
  /** @param {string} folder @param {(folder: string) => void} [onFolder] called for a new folder in it */
  const watchFolder = (folder, onFolder) => {
    const watcher = watch(folder, (_, name) => {
      if (name === null) return;
      const path = join(folder, name);
      const isFolder = statSync(path, { throwIfNoEntry: false })?.isDirectory() ?? false;
      if (isFolder) return onFolder?.(path);
      changed.add(relative(root, path));
      clearTimeout(timer);
      timer = setTimeout(settle, SETTLE_MS);
    });
    watcher.on('error', () => watcher.close()); // the folder is gone
  };
  for (const folder of WATCHED) if (existsSync(join(root, folder))) watchTree(join(root, folder));
  watchFolder(join(root, 'libs/kernels')); // where the formulas of its kernels are
}

/** @param {string} line */
function say(line) {
  process.stderr.write(`dev: ${line}\n`);
}

/**
 * @param {import('../apps/cli/dist/stack/local-stack.js').LocalStack} stack
 * @param {readonly string[]} paths
 * @param {typeof import('typescript')} ts
 */
async function follow(stack, paths, ts) {
  const startedMs = performance.now();
  const sources = paths.filter((path) => needOf(path) === 'compile');
  const built = paths.filter((path) => needOf(path) === 'build');
  const mistakes = (await Promise.all(sources.map((path) => compile(path, ts)))).filter((mistake) => mistake !== undefined);
  if (built.length > 0 && !(await buildAll())) mistakes.push(`${built.join(', ')} cannot be built`);
  if (mistakes.length > 0) return say(`${mistakes.join('\n')}\ndev: nothing is started again`);
  const isForAll = built.some((path) => !path.startsWith('apps/dashboard/'));
  const apps = isForAll ? PROCESSES : [...new Set(sources.flatMap((path) => processesOf(packageOf(path))))];
  const own = sources.filter((path) => /^(apps\/cli|libs\/(runtime|client))\//.test(path));
  if (own.length > 0) say(`${own.join(', ')}: the command line and what supervises the stack have it when you start \`npm run dev\` again`);
  const affected = stack.children.filter(({ name }) => apps.some((app) => name.startsWith(app)));
  await Promise.all(affected.map((child) => child.restart()));
  while (affected.some((child) => child.state() === 'STARTING')) await new Promise((resolve) => setTimeout(resolve, READY_POLL_MS));
  const ready = affected.filter((child) => child.state() === 'READY');
  if (ready.length > 0)
    say(`${ready.map(({ name }) => name).join(', ')} ready after ${((performance.now() - startedMs) / 1000).toFixed(1)} s`);
}

async function dev() {
  if (!makeReady()) return 78;
  const { runProgram } = await import('../apps/cli/dist/program.js');
  const { runSingleFiles } = await import('../apps/cli/dist/stack/local-stack.js');
  runSingleFiles();
  const { default: ts } = await import('typescript');
  return runProgram(['up', ...process.argv.slice(2)], process.env, (stack) => {
    watchSources((paths) => follow(stack, paths, ts));
    say('watches the sources; types are not checked');
  });
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) process.exitCode = await dev();
