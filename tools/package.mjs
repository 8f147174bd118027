/**
 * The npm package `paceline`: `node tools/package.mjs [FOLDER]` writes paceline-VERSION.tgz into the folder (dist/). Needs a build.
 *
 * It holds the repository as it is built: apps and prisma where they are, and the libraries as bundled packages in node_modules/@paceline,
 * where Node and TypeScript find them by their names. Packages of others are dependencies in the versions of the workspaces.
 * An installation needs nothing else: `npx paceline up`, `npx paceline demo`, `import … from 'paceline'`, `import … from 'paceline/client'`.
 */
import { execFileSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

const root = join(import.meta.dirname, '..');
/** Libraries that nobody needs who does not work on Paceline itself. */
const INTERNAL = ['testkit'];
const APPS = ['api', 'cli', 'ps', 'worker'];
/**
 * Models are made with the person's own tf.js, and the engine computes with it: one copy, which npm installs where nobody has. The version is that of
 * the wasm backend, whose own peer it is.
 * @type {Record<string, string>}
 */
const PEERS = { '@tensorflow/tfjs-core': '~4.22.0', '@tensorflow/tfjs-layers': '~4.22.0' };
/** Files that are built and left out: tests, maps to sources that the package does not have, no state of the compiler. */
const LEFT_OUT = /\.(?:test|fixture)\.|\.map$|\.tsbuildinfo$|\/testing\//;

/** @param {string} path @returns {Record<string, any>} */
const readJson = (path) => JSON.parse(readFileSync(path, 'utf8'));

/** @param {string} folder of a workspace @param {string} target */
function copyBuilt(folder, target) {
  if (!existsSync(join(folder, 'dist'))) throw new Error(`${folder} is not built. Run: npm run build`);
  cpSync(join(folder, 'dist'), join(target, 'dist'), { recursive: true, filter: (path) => !LEFT_OUT.test(relative(folder, path)) });
  if (existsSync(join(folder, 'bin'))) cpSync(join(folder, 'bin'), join(target, 'bin'), { recursive: true });
  writeFileSync(join(target, 'package.json'), `${JSON.stringify(packed(readJson(join(folder, 'package.json'))), null, 2)}\n`);
}

/**
 * A workspace's package.json as it is packed: what the person's program brings is a peer, so that there is one copy of it; `main` and `types` are
 * for tools that do not read `exports` (TypeScript with moduleResolution node).
 * @param {Record<string, any>} own
 */
function packed({ devDependencies: _dev, scripts: _scripts, nx: _nx, ...kept }) {
  const entry = kept.exports?.['.'];
  const dependencies = Object.entries(kept.dependencies ?? {});
  const peers = dependencies.filter(([name]) => name in PEERS);
  return {
    ...kept,
    ...(entry ? { main: entry.default, types: entry.types } : {}),
    dependencies: Object.fromEntries(dependencies.filter(([name]) => !(name in PEERS))),
    ...(peers.length > 0 ? { peerDependencies: Object.fromEntries(peers.map(([name]) => [name, PEERS[name]])) } : {}),
  };
}

/**
 * What the workspaces need of others, in one version each, without the peers.
 * @param {readonly string[]} folders
 * @throws {Error} when two of them want different versions
 */
export function dependenciesOf(folders) {
  /** @type {Record<string, string>} */
  const found = {};
  for (const folder of folders) {
    for (const [name, version] of Object.entries(readJson(join(folder, 'package.json')).dependencies ?? {})) {
      if (name.startsWith('@paceline/') || name in PEERS) continue;
      if (found[name] !== undefined && found[name] !== version) throw new Error(`${name} is wanted as ${found[name]} and as ${version}`);
      found[name] = version;
    }
  }
  return Object.fromEntries(Object.entries(found).sort(([a], [b]) => (a < b ? -1 : 1)));
}

/** @param {string} folder that gets the package's files */
function assemble(folder) {
  const own = readJson(join(root, 'package.json'));
  const libraries = readdirSync(join(root, 'libs')).filter(
    (name) => !INTERNAL.includes(name) && existsSync(join(root, 'libs', name, 'package.json')),
  );
  for (const name of libraries) copyBuilt(join(root, 'libs', name), join(folder, 'node_modules', '@paceline', name));
  // The bundles of the processes look for files of these libraries where the repository has them.
  for (const name of ['engine', 'kernels', 'tensorflow-addon']) copyBuilt(join(root, 'libs', name), join(folder, 'libs', name));
  for (const name of APPS) copyBuilt(join(root, 'apps', name), join(folder, 'apps', name));
  cpSync(join(root, 'apps/dashboard/dist'), join(folder, 'apps/dashboard/dist'), {
    recursive: true,
    filter: (path) => !LEFT_OUT.test(relative(root, path)),
  });
  cpSync(join(root, 'prisma/schema.prisma'), join(folder, 'prisma/schema.prisma'));
  cpSync(join(root, 'prisma/migrations'), join(folder, 'prisma/migrations'), {
    recursive: true,
    filter: (path) => statSync(path).isDirectory() || path.endsWith('.sql') || path.endsWith('.toml'),
  });
  for (const name of ['LICENSE', 'CHANGELOG.md']) cpSync(join(root, name), join(folder, name));
  cpSync(join(root, 'docs/npm.md'), join(folder, 'README.md'));
  for (const [name, from] of ENTRIES) {
    writeFileSync(join(folder, `${name}.js`), `export * from '${from}';\n`);
    writeFileSync(join(folder, `${name}.d.ts`), `export * from '${from}';\n`);
  }
  const workspaces = [...libraries.map((name) => join(root, 'libs', name)), ...APPS.map((name) => join(root, 'apps', name))];
  const { version, description, license, engines, optionalDependencies } = own;
  const manifest = {
    name: 'paceline',
    version,
    description,
    license,
    type: 'module',
    main: './index.js',
    types: './index.d.ts',
    bin: { paceline: './apps/cli/bin/paceline.mjs' },
    exports: {
      ...Object.fromEntries(
        ENTRIES.map(([name]) => [name === 'index' ? '.' : `./${name}`, { types: `./${name}.d.ts`, default: `./${name}.js` }]),
      ),
      './package.json': './package.json',
    },
    engines,
    dependencies: {
      ...dependenciesOf(workspaces),
      ...Object.fromEntries(libraries.map((name) => [`@paceline/${name}`, version])),
    },
    bundleDependencies: libraries.map((name) => `@paceline/${name}`),
    optionalDependencies,
    peerDependencies: PEERS,
  };
  writeFileSync(join(folder, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`);
}

/** What can be imported, and the library that it comes from. @type {readonly (readonly [string, string])[]} */
const ENTRIES = [
  ['index', '@paceline/strategies'],
  ['client', '@paceline/client'],
];
/**
 * @param {string} target folder for the archive
 * @returns the archive's path
 */
export function makePackage(target) {
  const folder = mkdtempSync(join(tmpdir(), 'paceline-package-'));
  try {
    assemble(folder);
    mkdirSync(target, { recursive: true });
    const out = execFileSync('npm', ['pack', '--json', '--ignore-scripts', '--pack-destination', target], {
      cwd: folder,
      encoding: 'utf8',
      maxBuffer: 64 << 20,
    });
    const [{ filename }] = JSON.parse(out);
    return join(target, filename);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) {
  const archive = makePackage(resolve(process.argv[2] ?? join(root, 'dist')));
  console.log(`${archive} (${(statSync(archive).size / 2 ** 20).toFixed(1)} MiB)`);
}
