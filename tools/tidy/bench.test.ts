/** `--help` of every bench says what it measures and which flags it takes; `--check` does not pass where there is nothing to compare. */
import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { repositoryRoot } from './tree.js';

const bench = (...args: string[]) => spawnSync(process.execPath, [join(repositoryRoot, 'tools/bench.mjs'), ...args], { encoding: 'utf8' });
const folder = join(repositoryRoot, 'bench');
const sources = new Map(readdirSync(folder).map((file) => [file.replace('.mjs', ''), readFileSync(join(folder, file), 'utf8')]));
const names = [...sources].filter(([, source]) => / \* bench /u.test(source)).map(([name]) => name);

it('of all: their names, and what each measures', () => {
  const { status, stdout } = bench('--help');
  expect(status).toBe(0);
  expect(names.length).toBeGreaterThan(4);
  for (const name of names) expect(stdout).toMatch(new RegExp(`^  ${name} +\\S`, 'mu'));
});

it.each(names)('of %s', (name) => {
  const { status, stdout, stderr } = bench(name, '--help');
  expect([status, stderr]).toEqual([0, '']);
  expect(stdout).toMatch(new RegExp(`^bench ${name}: `, 'u'));
  // Every flag that it reads, but the one with which it starts its own processes.
  const source = sources.get(name)!;
  const read = [...source.matchAll(/flags\.([a-z]+)|flags\['([a-z-]+)'\]/gu)].map(([, plain, quoted]) => plain ?? quoted!);
  expect(read.length).toBeGreaterThan(0);
  for (const flag of read) if (flag !== 'child') expect(stdout).toMatch(new RegExp(`^  --${flag}\\b`, 'mu'));
});

it.each([
  [
    'no model with a bar',
    ['--only', 'gru', '--tfjs-node', '.'],
    '--check has no bar for gru: name one of mlp,mlp-mnist,cnn,lstm with --only',
  ],
  ['no TensorFlow', [], '--check holds the engine to tf.js on TensorFlow, too: name a --tfjs-node'],
  ['steps that are not timed', ['--steady', '10', '--tfjs-node', '.'], '--check compares times, and --steady measures none'],
])('engines --check fails in one line for %s', (_, args, line) => {
  const { status, stdout, stderr } = bench('engines', '--check', ...args);
  expect([status, stdout, stderr]).toEqual([1, '', `${line}\n`]);
});
