/**
 * What a release consists of, for .github/workflows/release.yml: `node tools/release.mjs v1.2.3 FOLDER` writes into the folder
 *
 *   paceline-1.2.3.tar.gz   the sources of the commit and what is built of them: `npm ci --omit=dev`, then `npx paceline up`
 *   paceline-*-1.2.3.tgz    the SDK (client) and the run spec that it needs, for `npm install`
 *   SHA256SUMS, notes.md    hashes of both, and the part of the changelog
 *
 * It refuses a tag that is not the version of package.json, and a version without a part in the changelog. Needs a build.
 */
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

const root = join(import.meta.dirname, '..');
const PACKAGES = ['@paceline/spec', '@paceline/client'];

/**
 * The part of a version in a changelog in the form of Keep a Changelog.
 * @param {string} changelog
 * @param {string} version
 * @throws {Error} when there is none
 */
export function notesOf(changelog, version) {
  const part = changelog.split(/^## /m).find((text) => text.startsWith(`[${version}]`));
  const notes = part?.split('\n').slice(1).join('\n').trim();
  if (!notes) throw new Error(`CHANGELOG.md has no part "## [${version}]"`);
  return `${notes}\n`;
}

/**
 * @param {string} tag
 * @param {string} folder
 */
function release(tag, folder) {
  const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
  if (tag !== `v${version}`) throw new Error(`the tag is ${tag}, package.json says ${version}`);
  const notes = notesOf(readFileSync(join(root, 'CHANGELOG.md'), 'utf8'), version);
  mkdirSync(folder, { recursive: true });
  /** @param {string} command @param {readonly string[]} args */
  const run = (command, args) => execFileSync(command, args, { cwd: root, encoding: 'utf8', maxBuffer: 64 << 20 });
  const sources = run('git', ['ls-files']).trim().split('\n');
  const built = ['libs', 'apps'].flatMap((group) => readdirSync(join(root, group)).map((name) => `${group}/${name}/dist`));
  const archive = join(folder, `paceline-${version}.tar.gz`);
  run('tar', ['czf', archive, `--transform=s,^,paceline-${version}/,`, ...sources, ...built]);
  run('npm', ['pack', ...PACKAGES.flatMap((name) => ['-w', name]), '--pack-destination', folder]);
  const sums = readdirSync(folder).filter((name) => /\.t(ar\.)?gz$/.test(name));
  const lines = sums.map(
    (name) =>
      `${createHash('sha256')
        .update(readFileSync(join(folder, name)))
        .digest('hex')}  ${name}\n`,
  );
  writeFileSync(join(folder, 'SHA256SUMS'), lines.join(''));
  writeFileSync(join(folder, 'notes.md'), notes);
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) {
  const [tag = '', folder = 'release'] = process.argv.slice(2);
  release(tag, resolve(folder));
}
