/**
 * The tree as the tidy tests see it: the files git knows or would add, with their texts read once.
 * Where git cannot say (a source archive, an image, a checkout of another user) the folders are walked instead.
 */
import { spawnSync } from 'node:child_process';
import { readFileSync, readdirSync, statSync } from 'node:fs';
import { join, relative } from 'node:path';

export const repositoryRoot = join(import.meta.dirname, '..', '..');

const GENERATED = new Set(['node_modules', 'dist', 'generated', 'coverage', '.git', '.nx', '.paceline']);

function walk(folder: string): string[] {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    if (GENERATED.has(entry.name)) return [];
    const path = join(folder, entry.name);
    return entry.isDirectory() ? walk(path) : entry.isFile() ? [relative(repositoryRoot, path)] : [];
  });
}

function list(): string[] {
  const { status, stdout } = spawnSync('git', ['ls-files', '--cached', '--others', '--exclude-standard', '-z'], {
    cwd: repositoryRoot,
    maxBuffer: 64 << 20,
    encoding: 'utf8',
  });
  if (status !== 0 || stdout === '') return walk(repositoryRoot);
  return stdout.split('\0').filter((path) => path !== '' && statSync(join(repositoryRoot, path), { throwIfNoEntry: false })?.isFile());
}

/** Paths relative to the root, with `/`, sorted. */
export const files: readonly string[] = [...new Set(list())].map((path) => path.replaceAll('\\', '/')).sort();

const texts = new Map<string, string>();

export function textOf(path: string): string {
  let text = texts.get(path);
  if (text === undefined) {
    text = readFileSync(join(repositoryRoot, path), 'utf8');
    texts.set(path, text);
  }
  return text;
}

export const jsonOf = (path: string): Record<string, unknown> => JSON.parse(textOf(path)) as Record<string, unknown>;

const BINARY = /\.(png|jpe?g|gif|ico|wasm|gz|safetensors|woff2?|zip|pdf)$/;

/** Everything a person may read, lockfile apart. */
export const textFiles = files.filter((path) => !BINARY.test(path) && path !== 'package-lock.json');

/** TypeScript of libraries and processes, their tests included. */
export const sources = files.filter((path) => /^(libs|apps)\/[^/]+\/(src|assembly)\/.*\.tsx?$/.test(path) && !path.endsWith('.d.ts'));
export const isTest = (path: string): boolean => /\.(test|fixture)\.tsx?$/.test(path) || path.startsWith('test/');
export const productSources = sources.filter((path) => !isTest(path));
/** Everything that is code: sources, tools, benchmarks, tests. */
export const code = files.filter((path) => /\.(tsx?|mjs|js)$/.test(path) && !path.endsWith('.d.ts'));

export const lineCount = (text: string): number => text.split('\n').length - (text.endsWith('\n') ? 1 : 0);

/** `path:line` of every match of `pattern` in `path`. */
export function findings(path: string, pattern: RegExp): string[] {
  return textOf(path)
    .split('\n')
    .flatMap((line, i) => (pattern.test(line) ? [`${path}:${i + 1}: ${line.trim().slice(0, 120)}`] : []));
}
