/**
 * The installer of the tensorflow engine with everything small: a package and a wheel of a few bytes, an npm and a pip that copy them, a
 * compiler that writes its output. What is real: the steps, the hashes, the unpacking, the locks, and SIGKILL at every boundary.
 */
import { execFileSync, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished, expect, it } from 'vitest';

const ROOT = join(import.meta.dirname, '../..');
const NAME = 'tensorflow-9.9.9-cpu';

interface Machine {
  readonly home: string;
  readonly bin: string;
  readonly pins: Record<string, unknown>;
  /** What npm, pip and the compiler were asked for, in order. */
  asked(): string[];
  /** @param kill the boundary at which the process kills itself */
  install(options?: {
    kill?: string;
    broken?: boolean;
    wait?: boolean;
  }): Promise<{ signal: string | null; out: Record<string, never>; boundaries: string[] }>;
}

function machine(): Machine {
  const home = mkdtempSync(join(tmpdir(), 'paceline-install-'));
  onTestFinished(() => rmSync(home, { recursive: true, force: true }));
  const [bin, store] = [join(home, 'bin'), join(home, 'store')];
  for (const folder of [bin, store]) mkdirSync(folder);
  const log = join(home, 'asked');
  const script = (name: string, text: string): void => writeFileSync(join(bin, name), `#!/bin/sh\n${text}\n`, { mode: 0o755 });
  const python = execFileSync('/bin/sh', ['-c', 'command -v python3'], { encoding: 'utf8' }).trim();
  script('npm', `echo npm $2 >> ${log}; case $2 in *tfjs-node*) cp ${store}/addon.tgz "$4";; *) cp ${store}/headers.tgz "$4";; esac`);
  script(
    'python3',
    `case "$*" in "-m pip --version") exit 0;; "-m pip download"*) for last; do :; done; echo pip $last >> ${log}; ` +
      `while [ "$1" != --dest ]; do shift; done; cp ${store}/tensorflow_cpu.whl "$2";; *) exec ${python} "$@";; esac`,
  );
  script(
    'g++',
    `[ "$1" = --version ] && exit 0; echo compile >> ${log}; while [ "$1" != -o ]; do shift; done; cat deps/lib/libtensorflow.so binding/tfjs_binding.cc > "$2"`,
  );
  const backend = ' private:\n  TFJSBackend(napi_env env);';
  const binding =
    '#include "utils.h"\n\nnamespace tfnodejs {\nstatic napi_value InitTFNodeJSBinding(napi_env env, napi_value exports) {\n      {"executeOp", nullptr, ExecuteOp\n';
  const maker = `
import io, sys, tarfile, zipfile
def tar(file, entries):
    with tarfile.open(file, 'w:gz') as archive:
        for name, text in entries:
            info = tarfile.TarInfo(name); info.size = len(text); archive.addfile(info, io.BytesIO(text.encode()))
store, backend, binding = sys.argv[1:]
tar(store + '/addon.tgz', [('package/package.json', '{}'), ('package/binding/tfjs_backend.h', backend), ('package/binding/tfjs_binding.cc', binding)])
tar(store + '/headers.tgz', [('package/include/node_api.h', 'x')])
with zipfile.ZipFile(store + '/tensorflow_cpu.whl', 'w') as wheel:
    for name in ('libtensorflow_cc.so.2', 'libtensorflow_framework.so.2', 'include/tensorflow/c/c_api.h', 'python/large.py'):
        wheel.writestr('tensorflow/' + name, 'the ' + name)
`;
  execFileSync(python, ['-c', maker, store, backend, binding]);
  const hash = (file: string, algorithm: string, encoding: 'hex' | 'base64'): string =>
    createHash(algorithm)
      .update(readFileSync(join(store, file)))
      .digest(encoding);
  const pins = {
    tensorflow: '9.9.9',
    addon: { kind: 'npm', name: '@tensorflow/tfjs-node', version: '1.0.0', sha512: hash('addon.tgz', 'sha512', 'base64') },
    headers: { kind: 'npm', name: 'node-api-headers', version: '1.0.0', sha512: hash('headers.tgz', 'sha512', 'base64') },
    wheels: [
      { kind: 'wheel', name: 'tensorflow-cpu', version: '9.9.9', sha256: hash('tensorflow_cpu.whl', 'sha256', 'hex'), platform: 'any' },
    ],
    buildBytes: 1000,
    installedBytes: 1000,
  };
  return {
    home,
    bin,
    pins,
    asked: () => (existsSync(log) ? readFileSync(log, 'utf8').trim().split('\n') : []),
    install: ({ kill = '', broken = false, wait = false } = {}) => installIn({ home, bin, pins }, kill, broken, wait),
  };
}

const PROGRAM = `
import { installTensorflow, tensorflowEngines } from '@paceline/tensorflow-addon';
const { pins, kill, broken, wait } = JSON.parse(process.argv[1]);
const boundaries = [];
const state = () => tensorflowEngines(process.env, '/').map(({ name }) => name);
const before = state().length;
try {
  const { engine, isNew } = await installTensorflow({
    variant: 'cpu', platform: 'test', pins: { test: { cpu: pins } }, onStep: () => {},
    trial: async () => {
      if (state().length > before) throw new Error('there was an engine before it was tried');
      if (broken) throw new Error('the trial failed');
      if (wait) { console.log('waiting'); await new Promise((done) => setTimeout(done, 60_000)); }
    },
    onBoundary: (name) => { boundaries.push(name); if (name === kill) process.kill(process.pid, 'SIGKILL'); },
  });
  console.log(JSON.stringify({ name: engine.name, isNew, boundaries, found: state() }));
} catch (error) {
  console.log(JSON.stringify({ code: error.code, message: error.message, hint: error.hint, boundaries, found: state() }));
}`;

function installIn(
  { home, bin, pins }: Pick<Machine, 'home' | 'bin' | 'pins'>,
  kill: string,
  broken: boolean,
  wait: boolean,
): ReturnType<Machine['install']> {
  const child = spawn(process.execPath, ['--input-type=module', '-e', PROGRAM, JSON.stringify({ pins, kill, broken, wait })], {
    cwd: ROOT,
    env: { PATH: `${bin}:${process.env['PATH']}`, PACELINE_HOME: home },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let stdout = '';
  return new Promise((resolve, reject) => {
    child.stdout.on('data', (chunk: Buffer) => {
      stdout += String(chunk);
      if (wait && stdout.includes('waiting')) resolve({ signal: null, out: { pid: child.pid } as never, boundaries: [] });
    });
    if (wait) onTestFinished(() => void child.kill('SIGKILL'));
    child.once('error', reject);
    child.once('close', (_, signal) => {
      const out = (stdout && !wait ? JSON.parse(stdout.trim().split('\n').at(-1)!) : {}) as { boundaries?: string[] };
      resolve({ signal, out: out as never, boundaries: out.boundaries ?? [] });
    });
  });
}

const enginesOf = ({ home }: Machine): string => join(home, 'cache/engines');

it('builds an engine, once; what was only needed to build is gone', async () => {
  const here = machine();
  const { out } = await here.install();
  expect(out).toMatchObject({ name: NAME, isNew: true, found: [NAME] });
  const folder = join(enginesOf(here), NAME);
  expect(readdirSync(folder).sort()).toEqual(['installation.json', 'package']);
  expect(readdirSync(join(folder, 'package/deps'))).toEqual(['lib']);
  expect(readFileSync(join(folder, 'package/lib/napi-v8/tfjs_binding.node'), 'utf8')).toMatch(
    /^the libtensorflow_cc\.so\.2[\s\S]*ReadTensorInto/,
  );
  expect((await here.install()).out).toMatchObject({ isNew: false, found: [NAME] });
  expect(here.asked()).toHaveLength(4);
});

it.runIf(process.env['PACELINE_SOAK'] === '1')(
  'killed at any point it leaves no half engine, and the next installer goes on from there',
  async () => {
    const { boundaries } = await machine().install();
    expect(boundaries.length).toBeGreaterThan(15);
    // Before a step is where the one before has ended.
    for (const kill of boundaries.filter((boundary) => !boundary.startsWith('before'))) {
      const here = machine();
      const first = await here.install({ kill });
      expect(first.signal, kill).toBe('SIGKILL');
      const isThere = existsSync(join(enginesOf(here), NAME));
      expect(isThere, kill).toBe(kill === 'published');
      const { out } = await here.install();
      expect(out, kill).toMatchObject({ name: NAME, isNew: !isThere, found: [NAME] });
      expect(readdirSync(enginesOf(here)), kill).toEqual([NAME]);
      expect(readdirSync(join(enginesOf(here), NAME)).sort(), kill).toEqual(['installation.json', 'package']);
      // Only the step that it was in is done twice.
      const repeated = here.asked().filter((line, i, all) => all.indexOf(line) !== i);
      expect(repeated.length, kill).toBeLessThanOrEqual(kill.startsWith('unmarked') ? 1 : 0);
    }
  },
);

it('an engine that an older release built is named as such, works on, and is built anew', async () => {
  const here = machine();
  await here.install();
  const record = join(enginesOf(here), NAME, 'installation.json');
  writeFileSync(record, JSON.stringify({ ...(JSON.parse(readFileSync(record, 'utf8')) as object), addonRevision: 1 }));
  const addon = join(enginesOf(here), NAME, 'package/lib/napi-v8/tfjs_binding.node');
  writeFileSync(addon, 'old');
  const listed = execFileSync(process.execPath, [join(ROOT, 'apps/cli/dist/main.js'), 'engine', 'list'], {
    encoding: 'utf8',
    env: { PATH: process.env['PATH'], PACELINE_HOME: here.home },
  });
  expect(listed).toMatch(/tensorflow +tensorflow-9\.9\.9-cpu, installed .*an older release built it: `paceline engine install tensorflow`/);
  expect((await here.install()).out).toMatchObject({ isNew: true, found: [NAME] });
  expect(readFileSync(addon, 'utf8')).toContain('PacelineMaxPool');
  expect((JSON.parse(readFileSync(record, 'utf8')) as { addonRevision: number }).addonRevision).toBeGreaterThan(1);
});

it('a file of another hash is refused, and taken again the next time', async () => {
  const here = machine();
  const wheel = join(here.home, 'store/tensorflow_cpu.whl');
  const right = readFileSync(wheel);
  writeFileSync(wheel, Buffer.concat([right, Buffer.from('!')]));
  expect((await here.install()).out).toMatchObject({ code: 'ENGINE_HASH', found: [] });
  writeFileSync(wheel, right);
  expect((await here.install()).out).toMatchObject({ isNew: true, found: [NAME] });
});

it('an engine that fails its trial is not published', async () => {
  const here = machine();
  expect((await here.install({ broken: true })).out).toMatchObject({ message: 'the trial failed', found: [] });
  expect((await here.install()).out).toMatchObject({ isNew: true });
});

it('of two installers one builds', async () => {
  const here = machine();
  const first = await here.install({ wait: true });
  const { pid } = first.out as unknown as { pid: number };
  expect((await here.install()).out).toMatchObject({ code: 'ENGINE_BUSY', message: expect.stringContaining(`pid ${pid}`) as string });
  process.kill(pid, 'SIGKILL');
  expect((await here.install()).out).toMatchObject({ isNew: true });
});

it('without compiler, Python or room there is one line of what to do', async () => {
  const here = machine();
  const without = async (change: () => void): Promise<unknown> => {
    change();
    return (await here.install()).out;
  };
  const broken = (name: string) => () => writeFileSync(join(here.bin, name), '#!/bin/sh\nexit 1\n', { mode: 0o755 });
  Object.assign(here.pins, { buildBytes: 1e18 });
  expect(await without(() => undefined)).toMatchObject({ code: 'ENGINE_NO_SPACE', hint: expect.stringContaining('Make room') as string });
  broken('clang++')();
  expect(await without(broken('g++'))).toMatchObject({ code: 'ENGINE_TOOL_MISSING', hint: expect.stringContaining('g++') as string });
  expect(await without(broken('python3'))).toMatchObject({ code: 'ENGINE_TOOL_MISSING', hint: expect.stringContaining('pip') as string });
  expect(here.asked()).toEqual([]);
});
