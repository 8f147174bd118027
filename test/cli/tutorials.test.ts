/** The tutorials as a newcomer follows them: every command as it stands in the page, in an empty folder, and what it prints against what the page shows. */
import { spawn } from 'node:child_process';
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
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
  'own-images',
  ...(process.env['PACELINE_SOAK'] ? ['language-model', 'predict-a-number', 'text', 'weather'] : []),
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
