/**
 * `prepare` of the root package: npm runs it after an install (npm 11 holds back the scripts of dependencies, not ours).
 * Sets the commit hook named in package.json, which formats and lints what is committed. Does nothing where there is
 * nothing to set: no git checkout, continuous integration, an install without development packages, or a clone whose owner said
 * `git config paceline.hooks off`. An install never fails because of it.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';

const root = process.cwd();
const program = join(root, 'node_modules', 'simple-git-hooks', 'cli.js');

function isOff() {
  try {
    return ['off', 'false', 'no', '0'].includes(
      execFileSync('git', ['config', '--get', 'paceline.hooks'], { cwd: root, encoding: 'utf8' }).trim(),
    );
  } catch {
    return false; // not set, which is the usual case
  }
}

if (existsSync(join(root, '.git')) && existsSync(program) && !process.env.CI && !isOff()) {
  const { status, stderr } = spawnSync(process.execPath, [program], { cwd: root, encoding: 'utf8' });
  if (status !== 0) console.error(`the commit hook could not be set (installing goes on): ${stderr.trim()}`);
}
