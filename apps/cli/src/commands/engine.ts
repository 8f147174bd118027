/** `paceline engine`: what a worker on this machine can compute with; installing and removing TensorFlow, trying any. */
import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { EXIT, UserError, webgpuPackage } from '@paceline/runtime';
import {
  engineFolders,
  hasNvidiaDevice,
  installTensorflow,
  prepareForTensorflow,
  removeEngineFolder,
  tensorflowEngines,
  type TensorflowEngine,
} from '@paceline/tensorflow-addon';
import { Argument, type Command } from 'commander';
import type { CommandContext } from '../command.js';
import { clean } from '../terminal/clean.js';
import { bytes } from '../terminal/format.js';

type Act = (
  action: (context: CommandContext, command: Command, argument: string) => Promise<number>,
) => (...args: unknown[]) => Promise<void>;

interface Trial {
  readonly fingerprint: string;
  readonly devices: readonly { readonly name: string; readonly type: string; readonly memoryBytes: number }[];
  readonly examples: number;
  readonly msPerStep: number;
}

const TRIAL_DEADLINE_MS = 120_000;
const TRIAL_MS = 1_000;
const WEBGPU_COMES_BY =
  'Run npm install webgpu in the folder where you start Paceline; it needs a GPU with its driver for Vulkan, Metal or D3D12.';
const NOT_INSTALLED = 'Install it: paceline engine install tensorflow';
const only = (...names: readonly string[]): Argument => new Argument('<engine>', names.join(' or ')).choices(names);

export function addEngineCommands(program: Command, act: Act): void {
  const engine = program
    .command('engine')
    .description(
      'What the workers of this machine compute with. wasm comes with Paceline; tensorflow is built here, for this user; webgpu comes with an npm package (docs/engines.md).',
    );
  engine
    .command('list')
    .description('Shows the engines that a worker of this machine can load, where TensorFlow lies, and which GPU WebGPU finds.')
    .action(act((context) => list(context)));
  engine
    .command('install')
    .description(
      'Builds the tensorflow engine: downloads TensorFlow from PyPI and @tensorflow/tfjs-node from npm (hashes are checked), compiles the addon, tries it. ' +
        'Needs python3 with pip, npm, and g++ or clang++; no root. Ended at any point, it goes on from there the next time. ' +
        'webgpu comes with the npm package of that name, which you install in your project.',
    )
    .addArgument(only('tensorflow', 'webgpu'))
    .option('--cuda', 'with NVIDIA GPUs: several GB of CUDA libraries more')
    .action(act((context, command, name) => install(context, name, command.opts<{ cuda?: boolean }>().cuda === true)));
  engine
    .command('test')
    .description(
      'Compares a gradient of the CNN with that of wasm and times gradient steps of the MLP, in a process of its own; says version, devices and milliseconds per step.',
    )
    .addArgument(only('tensorflow', 'webgpu', 'wasm', 'wasm-relaxed', 'cpu'))
    .action(act((context, _command, name) => test(context, name)));
  engine
    .command('remove')
    .description('Removes what `install` built or began to build. Workers that run keep what they have loaded.')
    .addArgument(only('tensorflow'))
    .action(act((context) => remove(context)));
}

async function list({ terminal, env }: CommandContext): Promise<number> {
  const found = tensorflowEngines(env);
  const rows = [
    { name: 'wasm', source: 'comes with Paceline' },
    { name: 'wasm-relaxed', source: 'comes with Paceline; faster, with bits of its own, where the processor has fused multiply-add' },
    { name: 'cpu', source: 'comes with Paceline; slow, for comparison' },
    ...found.map((engine) => ({
      name: 'tensorflow',
      source: `${engine.name}, ${engine.source === 'project' ? 'of this project' : 'installed'} (${engine.packageDir})${ageOf(engine)}`,
    })),
  ];
  const webgpu = await lookForGpu(env);
  if (webgpu.source !== undefined) rows.push({ name: 'webgpu', source: webgpu.source });
  const unavailable = webgpu.why === undefined ? [] : [{ name: 'webgpu', why: webgpu.why }];
  if (terminal.json) terminal.document({ engines: rows, unavailable, hasNvidiaDevice: hasNvidiaDevice() });
  for (const { name, source } of rows) terminal.print(`${terminal.style('bold', name.padEnd(13))} ${clean(source)}`);
  if (found.length === 0) terminal.print(`${terminal.style('bold', 'tensorflow'.padEnd(13))} is not installed. ${NOT_INSTALLED}`);
  for (const { name, why } of unavailable)
    terminal.print(`${terminal.style('bold', name.padEnd(13))} is not available: ${clean(why, 600)}`);
  return EXIT.ok;
}

/** Where the engine comes from and what it computes on, or why it is none here. */
async function lookForGpu(env: NodeJS.ProcessEnv): Promise<{ readonly source?: string; readonly why?: string }> {
  const folder = webgpuPackage();
  if (folder === undefined) return { why: `the npm package webgpu is not installed. ${WEBGPU_COMES_BY}` };
  const asked = await askEngines<{ name: string; type: string }>(LOOK_FOR_GPU, { webgpuPackage: folder }, env);
  if ('why' in asked) return { why: asked.why };
  const { name, type } = asked.answer;
  return {
    source: `on ${name}${type === 'CPU' ? ', a driver that computes on the processor: slow, only for runs that name it' : ''} (${folder})`,
  };
}

async function install({ terminal, env }: CommandContext, name: string, cuda: boolean): Promise<number> {
  if (name === 'webgpu')
    throw new UserError('ENGINE_FROM_NPM', 'webgpu is not built here: it comes with the npm package webgpu (130 MB).', {
      hint: WEBGPU_COMES_BY,
      exit: 'usage',
    });
  const from = performance.now();
  let trial: Trial | undefined;
  const { engine, isNew } = await installTensorflow({
    variant: cuda ? 'cuda' : 'cpu',
    env,
    onStep: (text) => terminal.note(`${text} …`),
    trial: async ({ packageDir }) => void (trial = await tryEngine('tensorflow', { tensorflowPackage: packageDir }, env)),
  });
  const seconds = Math.round((performance.now() - from) / 1000);
  if (terminal.json) terminal.document({ engine, isNew, ...(trial ? { trial } : {}) });
  terminal.print(isNew ? `${engine.name} is installed, after ${seconds} s.` : `${engine.name} is installed already.`);
  if (trial) showTrial({ terminal }, trial);
  return EXIT.ok;
}

async function test({ terminal, env }: CommandContext, name: string): Promise<number> {
  const engine = name === 'tensorflow' ? firstEngine(env) : undefined;
  const trial = await tryEngine(name, { tensorflowPackage: engine?.packageDir, webgpuPackage: webgpuPackage() }, env);
  if (terminal.json) terminal.document({ ...(engine ? { engine } : {}), trial });
  if (engine) terminal.print(`${engine.name} (${engine.packageDir})${ageOf(engine)}`);
  showTrial({ terminal }, trial);
  return EXIT.ok;
}

const ageOf = ({ isCurrent }: TensorflowEngine): string =>
  isCurrent ? '' : '; an older release built it: `paceline engine install tensorflow` builds it anew, which makes convolutions faster';

function firstEngine(env: NodeJS.ProcessEnv): TensorflowEngine {
  const [engine] = tensorflowEngines(env);
  if (!engine) throw new UserError('ENGINE_NOT_INSTALLED', 'TensorFlow is not installed here.', { hint: NOT_INSTALLED, exit: 'notFound' });
  return engine;
}

async function remove({ terminal, env }: CommandContext): Promise<number> {
  const folders = engineFolders(env);
  for (const folder of folders) removeEngineFolder(folder);
  if (terminal.json) terminal.document({ removed: folders.map(({ name }) => name) });
  terminal.print(folders.length === 0 ? 'Nothing is installed.' : `Removed ${folders.map(({ name }) => name).join(', ')}.`);
  return EXIT.ok;
}

function showTrial({ terminal }: Pick<CommandContext, 'terminal'>, { fingerprint, devices, examples, msPerStep }: Trial): void {
  terminal.print(clean(fingerprint, 300));
  // What TensorFlow says of a CPU's memory is a constant; WebGPU says nothing of a GPU's.
  for (const { name, type, memoryBytes } of devices.filter((device) => device.type === 'GPU'))
    terminal.print(`${clean(type)} ${clean(name)}${memoryBytes > 0 ? `, ${bytes(memoryBytes)}` : ''}`);
  terminal.print(`${msPerStep.toFixed(2)} ms per gradient step of ${examples} examples (the model mlp)`);
}

/**
 * The command line does not load engines: a process of its own does, from where the packages are resolved. The CNN has most of the kernels, the MLP is
 * what is measured.
 */
const TRIAL = `
import { agreesWithWasm, runTrial } from '@paceline/engine';
import { runDataOf } from '@paceline/data';
import { parseRunSpec } from '@paceline/spec';
const asked = (request, model, globalBatch) => {
  const { spec } = parseRunSpec({ model, globalBatch, replicas: 1 });
  return { ...request, spec, format: runDataOf(spec).format };
};
const answer = async (request) => {
  await agreesWithWasm(asked(request, 'cnn', 4));
  return runTrial(asked(request, 'mlp', 128));
};`;
const LOOK_FOR_GPU = `
import { findAdapterInProcess } from '@paceline/engine';
const answer = (question) => findAdapterInProcess(question, process.env, 20_000);`;
const ANSWER = `
try {
  console.log(JSON.stringify(await answer(JSON.parse(process.argv[1]))));
  process.exit(0);
} catch (error) {
  console.error(error.message);
  process.exit(1);
}`;

/** @throws UserError ENGINE_BROKEN */
async function tryEngine(
  backend: string,
  packages: { readonly tensorflowPackage?: string | undefined; readonly webgpuPackage?: string | undefined },
  env: NodeJS.ProcessEnv,
): Promise<Trial> {
  const asked = await askEngines<Trial>(TRIAL, { backend, ...packages, measureMs: TRIAL_MS }, env);
  if ('answer' in asked) return asked.answer;
  throw new UserError('ENGINE_BROKEN', `The ${backend} engine does not work here: ${asked.why}`, {
    hint:
      backend === 'tensorflow' ? 'Build it anew: paceline engine remove tensorflow, then paceline engine install tensorflow.' : undefined,
    exit: 'unsuccessful',
  });
}

type Asked<T> = { readonly answer: T } | { readonly why: string };

/** @param script defines `answer`, a function of the question */
function askEngines<T>(script: string, question: object, env: NodeJS.ProcessEnv): Promise<Asked<T>> {
  const child = spawn(process.execPath, ['--input-type=module', '-e', script + ANSWER, JSON.stringify(question)], {
    cwd: fileURLToPath(new URL('.', import.meta.url)),
    env: prepareForTensorflow({ ...env }),
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: TRIAL_DEADLINE_MS,
    killSignal: 'SIGKILL',
  });
  const said = { stdout: '', stderr: '' };
  child.stdout.on('data', (chunk: Buffer) => (said.stdout += String(chunk).slice(0, 100_000)));
  child.stderr.on('data', (chunk: Buffer) => (said.stderr = (said.stderr + String(chunk)).slice(-10_000)));
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code, signal) => {
      if (code === 0) return resolve({ answer: JSON.parse(said.stdout.trim().split('\n').at(-1)!) as T });
      resolve({ why: signal ? `its process was ended by ${signal}` : (said.stderr.trim().split('\n').at(-1) ?? `exit code ${code}`) });
    });
  });
}
