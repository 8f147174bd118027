/**
 * The licences of the packages whose code is in a bundle, as their authors ask whoever hands it on: one text, a section per package and version.
 */
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { join, sep } from 'node:path';

const FOLDER = `${sep}node_modules${sep}`;
const LICENCE_FILE = /^(licen[cs]e|notice|copying)([.-].*)?$/i;

/**
 * @param {string} id of a module in a bundle: its path
 * @returns {string | undefined} the folder of the package that it belongs to; undefined for our own code
 */
export function packageFolderOf(id) {
  const at = id.lastIndexOf(FOLDER);
  if (id.startsWith('\0') || at < 0) return undefined;
  const [first = '', second = ''] = id.slice(at + FOLDER.length).split(sep);
  if (first === '@paceline') return undefined;
  return join(id.slice(0, at + FOLDER.length), first, first.startsWith('@') ? second : '');
}

/** @param {string} folder of a package */
function sectionOf(folder) {
  const { name, version, license, licenses, author, repository } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
  const files = readdirSync(folder)
    .filter((file) => LICENCE_FILE.test(file))
    .sort();
  const texts = files.map((file) => readFileSync(join(folder, file), 'utf8').trim());
  const terms = license?.type ?? license ?? licenses?.map((/** @type {{type: string}} */ { type }) => type).join(' or ');
  const where = repository?.url ?? repository;
  const title = [`${name} ${version}`, terms, author?.name ?? author, where].filter((part) => typeof part === 'string').join('\n');
  return { title, texts };
}

/**
 * @param {Iterable<string>} modules ids of all modules of a bundle
 * @returns {string}
 */
export function noticesOf(modules) {
  const folders = new Set();
  for (const id of modules) {
    const folder = packageFolderOf(id.split('?')[0] ?? id);
    if (folder && existsSync(join(folder, 'package.json'))) folders.add(folder);
  }
  /** @type {Map<string, string>} */
  const sections = new Map();
  for (const folder of folders) {
    const { title, texts } = sectionOf(folder);
    sections.set(title, [title, ...texts].join('\n\n'));
  }
  const sorted = [...sections].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, text]) => text);
  return `Code of these packages is in the files beside this one.\n\n${sorted.join(`\n\n${'-'.repeat(80)}\n\n`)}\n`;
}
