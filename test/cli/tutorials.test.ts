/** The tutorials as a newcomer follows them: every command as it stands in the page, in an empty folder, and what it prints against what the page shows. */
import { spawn } from 'node:child_process';
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { Stack } from '@paceline/testkit';
import { afterAll, beforeAll, expect, test } from 'vitest';

const ROOT = path.join(import.meta.dirname, '../..');
const COMMANDS_MAX = 6;

let stack: Stack;
beforeAll(async () => {
  stack = await Stack.start({ servers: 1, workers: 1 });
  const program = path.join(stack.folder, 'bin', 'paceline');
  mkdirSync(path.dirname(program));
  writeFileSync(program, `#!/bin/sh\nexec "${process.execPath}" "${ROOT}/apps/cli/bin/paceline.mjs" "$@"\n`);
  chmodSync(program, 0o755);
});
afterAll(() => stack?.stop());

interface Step {
  readonly commands: string;
  /** Lines that the page shows of what they print. */
  readonly shown: readonly string[];
}

/** Each `sh` block of a page, with the `text` block behind it. */
function stepsOf(page: string): Step[] {
  const blocks = [...page.matchAll(/^```(sh|text)\n(.*?)^```$/gms)].map(([, kind, body]) => ({ kind, body: body! }));
  return blocks.flatMap(({ kind, body }, i) => {
    if (kind !== 'sh') return [];
    const next = blocks[i + 1];
    const shown = next?.kind === 'text' ? next.body.split('\n').filter((line) => line.trim() !== '') : [];
    return [{ commands: body.replaceAll('/path/to/repository', ROOT), shown }];
  });
}

/** Hashes, numbers and the width of columns differ between machines and times. */
const plain = (line: string): string =>
  line
    .replaceAll(/\b[0-9a-f]{8,64}\b/g, 'hash')
    .replaceAll(/[-+]?\d[\d.:,]*(?:e[-+]?\d+)?k?/g, '#')
    .replaceAll(/\s+/g, ' ')
    .trim();

function run(commands: string, cwd: string): Promise<{ readonly exit: number | null; readonly output: string }> {
  const { PATH, HOME } = process.env;
  const bin = path.join(stack.folder, 'bin');
  const env = {
    PATH: `${bin}:${path.dirname(process.execPath)}:${PATH}`,
    HOME,
    LANG: 'C.UTF-8',
    PACELINE_HOME: path.join(stack.folder, 'home'),
    PACELINE_URL: stack.api.ready.url as string,
    PACELINE_API_KEY: stack.key,
  };
  const child = spawn('sh', ['-e', '-c', commands], { cwd, env, stdio: ['ignore', 'pipe', 'pipe'] });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (piece: Buffer) => (output += piece.toString()));
  return new Promise((done) => child.once('close', (exit) => done({ exit, output })));
}

/** Those that train for longer are run with the sweeps. */
const TUTORIALS = [
  'own-csv',
  ...(process.env['PACELINE_SOAK'] ? ['own-images', 'language-model', 'predict-a-number', 'text', 'weather'] : []),
];

test.each(TUTORIALS)('%s does what it says', async (name) => {
  const steps = stepsOf(readFileSync(path.join(ROOT, 'docs/tutorials', `${name}.md`), 'utf8'));
  const commands = steps.flatMap((step) => step.commands.match(/^(?:paceline|node)\b/gm) ?? []);
  expect(commands.length).toBeGreaterThan(3);
  expect(commands.length).toBeLessThanOrEqual(COMMANDS_MAX);
  expect(steps.filter(({ shown }) => shown.length > 0)).toHaveLength(3);
  const folder = path.join(stack.folder, name);
  mkdirSync(folder);
  for (const step of steps) {
    const { exit, output } = await run(step.commands, folder);
    expect(exit, output).toBe(0);
    const lines = output.split('\n').map(plain);
    for (const line of step.shown) expect(lines, `${step.commands}\nprinted\n${output}`).toContain(plain(line));
  }
});

/** The packages that a program installs, as folders: both entries of `paceline`, and tf.js as the sum of its parts. */
function installed(folder: string): void {
  const require = createRequire(import.meta.url);
  const made = (name: string, exports: Readonly<Record<string, string>>, files: Readonly<Record<string, string>>): void => {
    const target = path.join(folder, 'node_modules', name);
    mkdirSync(target, { recursive: true });
    writeFileSync(path.join(target, 'package.json'), JSON.stringify({ name, type: 'module', exports }));
    for (const [file, source] of Object.entries(files)) writeFileSync(path.join(target, file), source);
  };
  const from = (file: string): string => `export * from ${JSON.stringify(pathToFileURL(file).href)};\n`;
  const library = (name: string): string => from(path.join(ROOT, 'libs', name, 'dist/index.js'));
  made('paceline', { '.': './index.js', './client': './client.js' }, { 'index.js': library('strategies'), 'client.js': library('client') });
  const parts = ['core', 'layers', 'backend-cpu'].map((part) => from(require.resolve(`@tensorflow/tfjs-${part}`)));
  made('@tensorflow/tfjs', { '.': './index.js' }, { 'index.js': parts.join('') });
}

test.runIf(process.env['PACELINE_SOAK'] === '1')(
  'parameter-server: the program trains a model of tf.js in the service, as it is pasted',
  async () => {
    const page = readFileSync(path.join(ROOT, 'docs/tutorials/parameter-server.md'), 'utf8');
    const [, program] = /```js\n([\s\S]*?)```/.exec(page)!;
    const folder = path.join(stack.folder, 'parameter-server');
    installed(folder);
    writeFileSync(path.join(folder, 'train.mjs'), program!);
    const { exit, output } = await run('node train.mjs', folder);
    expect(exit, output).toBe(0);
    const [yes, no] = /\[\[([\d.e-]+)\s*\],\s*\[([\d.e-]+)\s*\]\]/.exec(output)!.slice(1).map(Number) as [number, number];
    expect([yes > 0.9, no < 0.1], output).toEqual([true, true]);
    const [, runId, loss] = /run (\S+)[\s\S]*trained, loss ([\d.]+)/.exec(output)!;
    const made = (await stack.client.run(runId!))!;
    expect(made.result!.loss!.toFixed(3)).toBe(loss);
    expect(made.spec).toMatchObject({ strategy: { kind: 'parameter-server', mode: 'async' }, optimizer: { name: 'adam' }, replicas: 2 });
    // The same data and another strategy: nothing is imported again.
    const again = await run(
      `sed "s/{ kind.*}/new CentralStorageStrategy({ replicas: 2 })/; 1i import { CentralStorageStrategy } from 'paceline';" train.mjs > again.mjs && node again.mjs`,
      folder,
    );
    expect(again.exit, again.output).toBe(0);
    const datasets = (await stack.client.datasets.list()).filter(({ name }) => name.startsWith('tensors-'));
    expect(datasets).toHaveLength(1);
  },
);
