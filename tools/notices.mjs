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

/**
 * What the files themselves say of their licence, each comment once: the bundles have none of them.
 * @param {readonly string[]} files
 */
function commentsOf(files) {
  const comments = files.flatMap((file) => readFileSync(file, 'utf8').match(/\/\*[\s\S]*?\*\//g) ?? []);
  return [...new Set(comments.filter((comment) => /@license|copyright/i.test(comment)))];
}

/**
 * @param {string} folder of a package
 * @param {readonly string[]} modules of it
 */
function sectionOf(folder, modules) {
  const { name, version, license, licenses, author, repository } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
  const files = readdirSync(folder)
    .filter((file) => LICENCE_FILE.test(file))
    .sort();
  const texts = files.length > 0 ? files.map((file) => readFileSync(join(folder, file), 'utf8').trim()) : commentsOf(modules);
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
  /** @type {Map<string, Set<string>>} */
  const folders = new Map();
  for (const id of modules) {
    const path = id.split('?')[0] ?? id;
    const folder = packageFolderOf(path);
    if (!folder || !existsSync(join(folder, 'package.json'))) continue;
    const known = folders.get(folder) ?? new Set();
    folders.set(folder, known.add(path));
  }
  /** @type {Map<string, string>} */
  const sections = new Map();
  for (const [folder, files] of folders) {
    const { title, texts } = sectionOf(
      folder,
      [...files].filter((file) => existsSync(file)),
    );
    sections.set(title, [title, ...texts].join('\n\n'));
  }
  const sorted = [...sections].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, text]) => text);
  return `Code of these packages is in the files beside this one.\n\n${sorted.join(`\n\n${'-'.repeat(80)}\n\n`)}\n`;
}
