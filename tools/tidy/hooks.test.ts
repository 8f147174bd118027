/** The commit hook, in a repository of its own: it formats and lints what is committed, and installing never fails for it. */
import { execFileSync, spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { repositoryRoot } from './tree.js';

let folder: string;
const environment = (more: NodeJS.ProcessEnv = {}): NodeJS.ProcessEnv => {
  const clean = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^(CI|GIT_.*|SKIP_.*)$/.test(name)));
  const name = {
    GIT_AUTHOR_NAME: 'test',
    GIT_AUTHOR_EMAIL: 'test@example.com',
    GIT_COMMITTER_NAME: 'test',
    GIT_COMMITTER_EMAIL: 'test@example.com',
  };
  return { ...clean, ...name, GIT_CONFIG_GLOBAL: '/dev/null', GIT_CONFIG_NOSYSTEM: '1', ...more };
};
const git = (...args: string[]): string => execFileSync('git', args, { cwd: folder, env: environment(), encoding: 'utf8', stdio: 'pipe' });
const prepare = (more?: NodeJS.ProcessEnv) =>
  spawnSync(process.execPath, ['tools/hooks.mjs'], { cwd: folder, env: environment(more), encoding: 'utf8' });
const hook = () => join(folder, '.git', 'hooks', 'pre-commit');

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'paceline-hooks-'));
  mkdirSync(join(folder, 'tools'));
  for (const file of ['package.json', '.oxfmtrc.jsonc', 'tools/hooks.mjs']) cpSync(join(repositoryRoot, file), join(folder, file));
  symlinkSync(join(repositoryRoot, 'node_modules'), join(folder, 'node_modules'));
  writeFileSync(join(folder, '.gitignore'), 'node_modules\n');
  writeFileSync(join(folder, 'oxlint.config.json'), JSON.stringify({ rules: { 'no-debugger': 'error' } }));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

describe('the commit hook', () => {
  it('formats what is committed, and refuses what lint refuses', () => {
    git('init', '-q');
    expect(prepare()).toMatchObject({ status: 0, stderr: '' });
    expect(existsSync(hook())).toBe(true);
    writeFileSync(join(folder, 'a.mjs'), 'export const  a = "x"\n');
    git('add', '.');
    git('commit', '-q', '-m', 'first');
    expect(git('show', 'HEAD:a.mjs')).toBe("export const a = 'x';\n");
    writeFileSync(join(folder, 'b.mjs'), 'debugger;\n');
    git('add', 'b.mjs');
    expect(() => git('commit', '-q', '-m', 'second')).toThrow();
    expect(git('log', '--format=%s').trim()).toBe('first');
  });

  it.each([
    ['in continuous integration', { CI: 'true' }, true],
    ['outside a git checkout', {}, false],
  ])('is not set %s, and nothing fails', (_, more, inGit) => {
    if (inGit) git('init', '-q');
    expect(prepare(more)).toMatchObject({ status: 0, stderr: '' });
    expect(existsSync(hook())).toBe(false);
  });

  it('is not set where its owner turned it off', () => {
    git('init', '-q');
    git('config', 'paceline.hooks', 'off');
    expect(prepare()).toMatchObject({ status: 0 });
    expect(existsSync(hook())).toBe(false);
  });

  it('and installing goes on where it cannot be set', () => {
    git('init', '-q');
    rmSync(join(folder, '.git', 'hooks'), { recursive: true });
    writeFileSync(join(folder, '.git', 'hooks'), 'in the way');
    expect(prepare().status).toBe(0);
    expect(readFileSync(join(folder, '.git', 'hooks'), 'utf8')).toBe('in the way');
  });
});
