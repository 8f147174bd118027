/**
 * Builds the tensorflow engine: the addon of @tensorflow/tfjs-node on the libtensorflow of a PyPI wheel. The package's own installer
 * downloads a TensorFlow of 2022; this one takes a present one (docs/engines.md).
 *
 *     start ─> package ─> headers ─> wheel 0 ─> … ─> wheel n ─> libraries ─> addon ─> trial ─> published
 *
 * Everything happens in `NAME.building`. A step clears what it left half done, does its work, and then writes its mark; a step with a mark is
 * not done again. So an installer that was ended at any point (SIGKILL too) is taken up by the next one at the step where it was, and until the
 * last step, one rename, there is no engine that anybody would load. A mark names the pins it was made with: another release starts anew.
 */
import { createHash } from 'node:crypto';
import {
  createReadStream,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { lockFile, UserError } from '@paceline/runtime';
import { ADDON_REVISION, COMPILE_ARGUMENTS, SOURCE_CHANGES } from './addon-source.js';
import {
  BUILDING,
  enginesDirectory,
  readRecord,
  RECORD_FILE,
  REPLACED,
  type InstallationRecord,
  type TensorflowEngine,
} from './installation.js';
import { TENSORFLOW_PINS, type NpmPin, type PinTable, type TensorflowPins, type TensorflowVariant, type WheelPin } from './pins.js';
import { checkSpace, CommandError, findToolchain, runCommand, type Toolchain } from './toolchain.js';

const NPM_DEADLINE_MS = 5 * 60_000;
/** The largest wheel has 0.7 GB: 3 Mbit/s. */
const WHEEL_DEADLINE_MS = 30 * 60_000;
const UNPACK_DEADLINE_MS = 15 * 60_000;
const COMPILE_DEADLINE_MS = 10 * 60_000;

export interface InstallOptions {
  readonly variant: TensorflowVariant;
  /** Told what is done now. */
  readonly onStep: (text: string) => void;
  /** Loads the engine and computes with it, in another process. @throws UserError or Error when it does not work */
  readonly trial: (engine: TensorflowEngine) => Promise<void>;
  readonly env?: NodeJS.ProcessEnv;
  readonly pins?: PinTable;
  /** `process.platform`-`process.arch`. */
  readonly platform?: string;
  /** Before and after each step: tests end the process here. */
  readonly onBoundary?: (boundary: string) => void;
}

export interface Installed {
  readonly engine: TensorflowEngine;
  /** False when it was there already. */
  readonly isNew: boolean;
}

interface Build {
  readonly pins: TensorflowPins;
  readonly work: string;
  readonly tools: Toolchain;
  readonly options: InstallOptions;
}

interface Step {
  readonly name: string;
  readonly text: string;
  readonly run: (build: Build) => Promise<void> | void;
}

/** @throws UserError with one line of what to do: ENGINE_PLATFORM, ENGINE_TOOL_MISSING, ENGINE_NO_SPACE, ENGINE_BUSY, ENGINE_BUILD_FAILED */
export async function installTensorflow(options: InstallOptions): Promise<Installed> {
  const { variant, env = process.env, onStep } = options;
  const pins = pinsFor(options);
  const name = `tensorflow-${pins.tensorflow}-${variant}`;
  const root = enginesDirectory(env);
  const target = join(root, name);
  const engine: TensorflowEngine = { source: 'installed', packageDir: join(target, 'package'), name, variant, isCurrent: true };
  const lock = lockFile(join(root, `${name}.lock`));
  if ('heldBy' in lock)
    throw new UserError(
      'ENGINE_BUSY',
      `Another installer (pid ${lock.heldBy}${lock.host ? ` on ${lock.host}` : ''}) is building ${name}.`,
      {
        hint: 'Wait for it to end.',
        exit: 'temporary',
      },
    );
  try {
    if (readRecord(target)?.addonRevision === ADDON_REVISION) {
      sweep(target); // what an installer left that ended right after the last step
      return { engine, isNew: false };
    }
    const tools = await findToolchain();
    const work = `${target}${BUILDING}`;
    startOver(work, markOf(pins));
    if (!isDone(work, 'libraries')) checkSpace(root, pins.buildBytes);
    const build: Build = { pins, work, tools, options };
    for (const step of stepsOf(pins)) await perform(step, build);
    onStep('trying the engine');
    await options.trial({ ...engine, packageDir: join(work, 'package') });
    publish(build, target);
    return { engine, isNew: true };
  } finally {
    lock.release();
  }
}

function pinsFor({ pins = TENSORFLOW_PINS, variant, platform = `${process.platform}-${process.arch}` }: InstallOptions): TensorflowPins {
  const found = pins[platform]?.[variant];
  if (found) return found;
  const known = Object.entries(pins).filter(([, variants]) => variants[variant]);
  throw new UserError(
    'ENGINE_PLATFORM',
    `There is no ${variant === 'cuda' ? 'tensorflow engine with CUDA' : 'tensorflow engine'} for ${platform}, only for ${known.map(([name]) => name).join(', ')}.`,
    { hint: 'wasm works here; an installed @tensorflow/tfjs-node is used as it is.', exit: 'configuration' },
  );
}

const stepsOf = (pins: TensorflowPins): Step[] => [
  { name: 'package', text: `fetching ${pins.addon.name} ${pins.addon.version}`, run: fetchPackage },
  {
    name: 'headers',
    text: `fetching ${pins.headers.name} ${pins.headers.version}`,
    run: (build) => fetchNpm(build, pins.headers, 'headers'),
  },
  ...pins.wheels.map((wheel, i) => ({
    name: `wheel-${i}`,
    text: `downloading ${wheel.name} ${wheel.version} from PyPI`,
    run: (build: Build) => fetchWheel(build, wheel, i),
  })),
  { name: 'libraries', text: 'unpacking libtensorflow', run: unpackLibraries },
  { name: 'addon', text: 'compiling the addon', run: compileAddon },
];

async function perform({ name, text, run }: Step, build: Build): Promise<void> {
  const { work, options } = build;
  if (isDone(work, name)) return;
  options.onBoundary?.(`before ${name}`);
  options.onStep(text);
  try {
    await run(build);
  } catch (error) {
    if (!(error instanceof CommandError)) throw error;
    throw new UserError('ENGINE_BUILD_FAILED', `${text}: ${error.message}`, {
      hint: 'Run the same command again: it goes on from here. `paceline engine remove tensorflow` starts from nothing.',
      exit: 'unavailable',
      cause: error,
    });
  }
  options.onBoundary?.(`unmarked ${name}`);
  writeFileSync(join(work, 'done', name), '');
  options.onBoundary?.(`after ${name}`);
}

const isDone = (work: string, step: string): boolean => existsSync(join(work, 'done', step));

const markOf = (pins: TensorflowPins): string =>
  createHash('sha256')
    .update(JSON.stringify([pins, ADDON_REVISION, SOURCE_CHANGES, COMPILE_ARGUMENTS]))
    .digest('hex');

/** Keeps what an interrupted installer with the same pins left. */
function startOver(work: string, mark: string): void {
  const file = join(work, 'pins');
  if (existsSync(file) && readFileSync(file, 'utf8') === mark) return;
  rmSync(work, { recursive: true, force: true });
  mkdirSync(join(work, 'done'), { recursive: true });
  writeFileSync(`${file}.new`, mark);
  renameSync(`${file}.new`, file);
}

async function fetchPackage(build: Build): Promise<void> {
  await fetchNpm(build, build.pins.addon, 'package');
  const folder = join(build.work, 'package');
  for (const { file, from, to } of SOURCE_CHANGES) {
    const source = readFileSync(join(folder, file), 'utf8');
    if (source.split(from).length !== 2)
      throw new Error(`${file} of ${build.pins.addon.name} is not the source that the changes were written for`);
    writeFileSync(
      join(folder, file),
      source.replace(from, () => to),
    );
  }
  // Their modules are given by the engine when it loads the package: one tf.js core for all.
  for (const name of ['@tensorflow/tfjs', '@tensorflow/tfjs-core']) {
    const stub = join(folder, 'node_modules', name);
    mkdirSync(stub, { recursive: true });
    writeFileSync(join(stub, 'package.json'), JSON.stringify({ name, version: build.pins.addon.version, main: 'index.js' }));
    writeFileSync(join(stub, 'index.js'), `throw new Error('loaded without the tensorflow engine of Paceline');\n`);
  }
}

async function fetchNpm({ work, tools }: Build, pin: NpmPin, folder: string): Promise<void> {
  const part = emptied(join(work, `${folder}.part`));
  rmSync(join(work, folder), { recursive: true, force: true });
  const spec = `${pin.name}@${pin.version}`;
  await runCommand(tools.npm, ['pack', spec, '--pack-destination', part, '--silent', '--ignore-scripts'], {
    cwd: part,
    deadlineMs: NPM_DEADLINE_MS,
  });
  const tarball = onlyFile(part, '.tgz');
  await checkHash(tarball, spec, 'sha512', 'base64', pin.sha512);
  await runCommand(tools.python, ['-m', 'tarfile', '-e', tarball, part], { deadlineMs: UNPACK_DEADLINE_MS });
  renameSync(join(part, 'package'), join(work, folder));
  rmSync(part, { recursive: true });
}

async function fetchWheel({ work, tools }: Build, pin: WheelPin, index: number): Promise<void> {
  const folder = emptied(join(work, `wheel-${index}`));
  const spec = `${pin.name}==${pin.version}`;
  // Pinned to one Python version, so that every Python finds the same file.
  const tags = [
    '--python-version',
    '3.11',
    '--implementation',
    'cp',
    '--abi',
    'cp311',
    '--platform',
    pin.platform,
    '--only-binary',
    ':all:',
  ];
  await runCommand(
    tools.python,
    ['-m', 'pip', 'download', '--quiet', '--disable-pip-version-check', '--no-deps', ...tags, '--dest', folder, spec],
    { deadlineMs: WHEEL_DEADLINE_MS },
  );
  await checkHash(onlyFile(folder, '.whl'), spec, 'sha256', 'hex', pin.sha256);
}

/** zipfile checks each file's CRC. The whole wheel has 20,000 files more. */
const UNPACK = `
import sys, zipfile
keep = ('tensorflow/libtensorflow_cc.so.2', 'tensorflow/libtensorflow_framework.so.2')
for wheel in sys.argv[2:]:
    with zipfile.ZipFile(wheel) as archive:
        names = [n for n in archive.namelist() if n in keep or n.startswith(('tensorflow/include/', 'nvidia/'))]
        archive.extractall(sys.argv[1], names)
`;

async function unpackLibraries({ work, tools, pins }: Build): Promise<void> {
  const deps = join(work, 'package/deps');
  rmSync(deps, { recursive: true, force: true });
  const part = emptied(join(work, 'libraries.part'));
  const wheels = pins.wheels.map((_, i) => onlyFile(join(work, `wheel-${i}`), '.whl'));
  await runCommand(tools.python, ['-c', UNPACK, part, ...wheels], { deadlineMs: UNPACK_DEADLINE_MS });
  mkdirSync(join(deps, 'lib'), { recursive: true });
  for (const [file, link] of [
    ['libtensorflow_cc.so.2', 'libtensorflow.so'],
    ['libtensorflow_framework.so.2', 'libtensorflow_framework.so'],
  ] as const) {
    renameSync(join(part, 'tensorflow', file), join(deps, 'lib', file));
    symlinkSync(file, join(deps, 'lib', link));
  }
  renameSync(join(part, 'tensorflow/include'), join(deps, 'include'));
  // Where the wheel's libraries look for them.
  if (existsSync(join(part, 'nvidia'))) renameSync(join(part, 'nvidia'), join(deps, 'nvidia'));
  rmSync(part, { recursive: true });
}

async function compileAddon({ work, tools }: Build): Promise<void> {
  const folder = join(work, 'package');
  const binding = join(folder, 'lib/napi-v8');
  mkdirSync(emptied(binding), { recursive: true });
  const output = join(binding, 'tfjs_binding.node');
  await runCommand(tools.compiler, [...COMPILE_ARGUMENTS, '-o', `${output}.part`], { cwd: folder, deadlineMs: COMPILE_DEADLINE_MS });
  renameSync(`${output}.part`, output);
}

/** One rename makes it an engine; what was only needed to build goes afterwards. */
function publish({ pins, work, options }: Build, target: string): void {
  const { variant, onBoundary } = options;
  const record: InstallationRecord = {
    variant,
    tensorflow: pins.tensorflow,
    addon: pins.addon.version,
    addonRevision: ADDON_REVISION,
    installedAt: new Date().toISOString(),
  };
  writeFileSync(join(work, RECORD_FILE), JSON.stringify(record, undefined, 2));
  onBoundary?.('recorded');
  // An older release's may be in use: its files stay open where they are.
  rmSync(`${target}${REPLACED}`, { recursive: true, force: true });
  if (existsSync(target)) renameSync(target, `${target}${REPLACED}`);
  onBoundary?.('old one aside');
  renameSync(work, target);
  onBoundary?.('published');
  sweep(target);
}

function sweep(target: string): void {
  rmSync(`${target}${REPLACED}`, { recursive: true, force: true });
  for (const name of readdirSync(target).filter((entry) => entry !== 'package' && entry !== RECORD_FILE))
    rmSync(join(target, name), { recursive: true, force: true });
  rmSync(join(target, 'package/deps/include'), { recursive: true, force: true });
}

function emptied(folder: string): string {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  return folder;
}

function onlyFile(folder: string, ending: string): string {
  const [file, another] = readdirSync(folder).filter((name) => name.endsWith(ending));
  if (!file || another) throw new CommandError(`one file *${ending} was expected, not ${readdirSync(folder).join(', ') || 'none'}`);
  return join(folder, file);
}

/** @throws UserError ENGINE_HASH */
async function checkHash(
  file: string,
  what: string,
  algorithm: 'sha256' | 'sha512',
  encoding: 'hex' | 'base64',
  wanted: string,
): Promise<void> {
  const hash = createHash(algorithm);
  await pipeline(createReadStream(file), hash);
  const found = hash.digest(encoding);
  if (found === wanted) return;
  rmSync(file, { force: true });
  throw new UserError(
    'ENGINE_HASH',
    `${what} is not the file that this release was made for: its ${algorithm} is ${found}, not ${wanted}.`,
    {
      hint: 'Try again. If this repeats, the package index serves a different file.',
      exit: 'unavailable',
    },
  );
}
