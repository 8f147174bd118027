/** `npm run demo`, killed in the middle; ended in other ways it is in test/cli/demo.test.ts, and `paceline up` that is killed in stack.test.ts. */
import { readdirSync } from 'node:fs';
import { afterAll, beforeAll, it } from 'vitest';
import { allGone, createHome, familyOf, until, type Home } from '../cli/command-line.js';

let home: Home;
beforeAll(() => void (home = createHome()));
afterAll(() => home.dispose());

it('the demo leaves nothing after a SIGKILL in the middle', async () => {
  const running = home.startTool('tools/demo.mjs', ['--epochs', '50']);
  await until('training to begin', () => /round [1-9]/.test(running.stderr()) || running.child.exitCode !== null, 100_000);
  const family = familyOf(running.child.pid!);
  running.child.kill('SIGKILL');
  await running.finished;
  await allGone(family);
  const leftFolders = (): string[] => readdirSync(home.folder).filter((name) => name.startsWith('paceline-'));
  await until('its folders to be removed', () => leftFolders().length === 0);
});
