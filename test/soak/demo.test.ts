/** `npm run demo` that ends by itself, with what a person reads, and killed in the middle; ended in other ways it is in test/cli/demo.test.ts, and `paceline up` that is killed in stack.test.ts. */
import { readdirSync } from 'node:fs';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { allGone, createHome, familyOf, until, type Home } from '../cli/command-line.js';

let home: Home;
beforeAll(() => void (home = createHome()));
afterAll(() => home.dispose());

const leftFolders = (): string[] => readdirSync(home.folder).filter((name) => name.startsWith('paceline-'));

it('the demo prints its result for people, ends, and leaves nothing', async () => {
  const running = home.startTool('tools/demo.mjs', ['--epochs', '1', '--batch', '600']);
  await until('training to begin', () => /round [1-9]/.test(running.stderr()) || running.child.exitCode !== null, 100_000);
  const family = familyOf(running.child.pid!);
  const { exit, stdout, stderr } = await running.finished;
  expect(exit, stderr).toBe(0);
  expect(stdout).toMatch(/SUCCEEDED[^]*accuracy/);
  await allGone(family);
  expect(leftFolders()).toEqual([]);
});

it('the demo leaves nothing after a SIGKILL in the middle', async () => {
  const running = home.startTool('tools/demo.mjs', ['--epochs', '50']);
  await until('training to begin', () => /round [1-9]/.test(running.stderr()) || running.child.exitCode !== null, 100_000);
  const family = familyOf(running.child.pid!);
  running.child.kill('SIGKILL');
  await running.finished;
  await allGone(family);
  await until('its folders to be removed', () => leftFolders().length === 0);
});
