/** The house rules of code: names, sizes, boundaries. A size may only shrink: see ratchet.json. */
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { APPS, BOUNDARIES, TEST_ONLY } from './boundaries.mjs';
import { cyclesAmong, functionsOf, importsOf, swallowedErrors } from './syntax.js';
import { code, files, findings, isTest, jsonOf, lineCount, productSources, repositoryRoot, sources, textOf } from './tree.js';

const FORBIDDEN_NAMES = new Set(['common', 'shared', 'utils', 'util', 'helpers', 'helper', 'misc', 'core', 'base', 'stuff', 'lib']);
const stem = (name: string): string => name.replace(/(\.test)?\.[a-z]+$/, '').toLowerCase();

describe('names', () => {
  it('no file or folder is called after nothing', () => {
    const nested = files.filter((path) => path.includes('/') && path.split('/').some((name) => FORBIDDEN_NAMES.has(stem(name))));
    expect(nested).toEqual([]);
  });

  it('files and folders are in kebab-case, React components in PascalCase', () => {
    const odd = sources.filter(
      (path) => !path.split('/').every((name) => /^[a-z0-9-]+(\.[a-z]+)*$/.test(name) || /^([A-Z][a-z0-9]+)+(\.test)?\.tsx$/.test(name)),
    );
    expect(odd).toEqual([]);
  });

  it('a library has one index.ts, in src; nothing else has one', () => {
    const found = code.filter((path) => /(^|\/)index\.(ts|tsx|mjs|js)$/.test(path));
    const libraries = files.flatMap((path) => /^libs\/([^/]+)\/package\.json$/.exec(path)?.[1] ?? []);
    expect(found.sort()).toEqual(libraries.map((name) => `libs/${name}/src/index.ts`).sort());
  });

  it('every process has a main.ts of at most 40 lines', () => {
    const mains = code.filter((path) => /(^|\/)main\.tsx?$/.test(path));
    const processes = files.flatMap((path) => /^apps\/([^/]+)\/package\.json$/.exec(path)?.[1] ?? []);
    expect(processes.filter((name) => !mains.some((path) => path.startsWith(`apps/${name}/src/main.`)))).toEqual([]);
    expect(mains.map((path) => `${path}: ${lineCount(textOf(path))}`).filter((line) => Number(line.split(': ')[1]) > 40)).toEqual([]);
  });
});

describe('imports', () => {
  it('make no cycle', () => {
    expect(cyclesAmong(sources)).toEqual([]);
  });

  const packages = Object.keys(BOUNDARIES);
  const folderOf = (name: string): string => `${APPS.includes(name) ? 'apps' : 'libs'}/${name}`;

  it('the table of boundaries has every package, and its rows make no cycle', () => {
    const present = files.flatMap((path) => /^(?:libs|apps)\/([^/]+)\/package\.json$/.exec(path)?.[1] ?? []);
    expect(packages.sort()).toEqual(present.sort());
    const depth = (name: string, seen: string[] = []): number => {
      expect(seen, `${name} imports itself by way of ${seen.join(' -> ')}`).not.toContain(name);
      return 1 + Math.max(0, ...BOUNDARIES[name]!.mayImport.map((next) => depth(next, [...seen, name])));
    };
    for (const name of packages) depth(name);
  });

  it.each(packages)('of %s follow the table and are declared in its package.json and tsconfig.json', (name) => {
    const manifest = jsonOf(`${folderOf(name)}/package.json`) as Record<string, Record<string, string> | undefined>;
    const declared = new Set(
      Object.keys({
        ...manifest['dependencies'],
        ...manifest['devDependencies'],
        ...manifest['optionalDependencies'],
        ...manifest['imports'],
      }),
    );
    const rootDeclared = new Set(Object.keys(jsonOf('package.json')['devDependencies'] as object));
    const wrong: string[] = [];
    const used = new Set<string>();
    for (const path of sources.filter((source) => source.startsWith(`${folderOf(name)}/`))) {
      for (const { specifier, line } of importsOf(path)) {
        const own = /^@paceline\/([^/]+)/.exec(specifier)?.[1];
        const place = `${path}:${line} imports ${specifier}`;
        if (own) {
          used.add(`@paceline/${own}`);
          const allowed = BOUNDARIES[name]!.mayImport.includes(own) || (isTest(path) && TEST_ONLY.includes(own));
          if (!allowed) wrong.push(`${place}: ${BOUNDARIES[name]!.reason}`);
          if (!isTest(path) && !declared.has(`@paceline/${own}`)) wrong.push(`${place}, which package.json does not declare`);
        } else if (!/^(\.|node:|virtual:|~)/.test(specifier)) {
          const external = specifier
            .split('/')
            .slice(0, specifier.startsWith('@') ? 2 : 1)
            .join('/');
          used.add(external);
          if (!declared.has(external) && !(isTest(path) && rootDeclared.has(external)))
            wrong.push(`${place}, which package.json does not declare`);
          if (!isTest(path) && BOUNDARIES[name]!.mayNotUse.some((pattern) => new RegExp(pattern).test(specifier)))
            wrong.push(`${place}: ${BOUNDARIES[name]!.reason}`);
        }
      }
    }
    expect(wrong).toEqual([]);
  });
});

describe('nothing is left over', () => {
  // Spelt so that this file does not find itself.
  const LEFT_OVER = new RegExp(`\\b(${['TO' + 'DO', 'FIX' + 'ME', 'XX' + 'X', 'HA' + 'CK'].join('|')})\\b`);
  const NOT_RUN = /\b(it|test|describe|suite)(\.\w+)*\.(skip|only|todo|fails)\b|\bx(it|describe)\(/;

  it('no note to do something later', () => {
    expect(code.flatMap((path) => findings(path, LEFT_OVER))).toEqual([]);
  });

  it('no test that does not run', () => {
    expect(code.filter((path) => isTest(path)).flatMap((path) => findings(path, NOT_RUN))).toEqual([]);
  });

  it('no failure is swallowed without a word', () => {
    expect(code.filter((path) => !isTest(path)).flatMap(swallowedErrors)).toEqual([]);
  });
});

describe('explained', () => {
  const opensWithProse = (path: string): boolean => /^(#!.*\n)?\s*\/\*\*[\s\S]{80,}?\*\//.test(textOf(path).slice(0, 6000));

  it('protocols and state machines open with a header in prose', () => {
    const protocol = productSources.filter((path) => /^(libs\/(protocol|exchange|control-plane)|apps\/(ps|worker))\/src\//.test(path));
    expect(protocol.filter((path) => !/(index|main)\.ts$/.test(path) && lineCount(textOf(path)) > 60 && !opensWithProse(path))).toEqual([]);
  });

  it('so does every file of more than 150 lines', () => {
    expect(productSources.filter((path) => lineCount(textOf(path)) > 150 && !opensWithProse(path))).toEqual([]);
  });
});

describe('sizes only shrink', () => {
  const RATCHET = 'tools/tidy/ratchet.json';
  /** Where STYLE draws the line, whatever the ratchet says. */
  const CEILINGS: Record<string, number> = { fileLinesMedian: 150, fileLines95thPercentile: 400 };
  const lengths = productSources
    .filter((path) => !path.endsWith('/index.ts'))
    .map((path) => ({ path, lines: lineCount(textOf(path)) }))
    .sort((a, b) => a.lines - b.lines);
  const functions = productSources.flatMap(functionsOf).sort((a, b) => b.lines - a.lines);
  const circles = cyclesAmong(productSources, { withTypes: true });
  const measured: Record<string, number> = {
    fileLinesMedian: lengths[Math.floor(lengths.length / 2)]!.lines,
    fileLines95thPercentile: lengths[Math.ceil(lengths.length * 0.95) - 1]!.lines,
    fileLinesLongest: lengths.at(-1)!.lines,
    functionLinesLongest: functions[0]!.lines,
    filesInCirclesOfTypes: circles.flat().length,
    lintDisabled: code.flatMap((path) => findings(path, new RegExp('(ox|es)lint-' + 'disable|@ts-' + '(ignore|expect-error)'))).length,
  };
  const longest = [
    ...lengths.slice(-3).map(({ path, lines }) => `${path} (${lines})`),
    ...functions.slice(0, 3).map(({ place, name, lines }) => `${place} ${name} (${lines})`),
    ...circles.map((circle) => `a circle of ${circle.join(' ')}`),
  ];

  if (process.env['TIGHTEN']) {
    const old = jsonOf(RATCHET) as Record<string, number>;
    const tightened = Object.fromEntries(Object.entries(measured).map(([key, value]) => [key, Math.min(value, old[key] ?? value)]));
    writeFileSync(join(repositoryRoot, RATCHET), `${JSON.stringify(tightened, null, 2)}\n`);
  }
  const ratchet = (process.env['TIGHTEN'] ? measured : jsonOf(RATCHET)) as Record<string, number>;

  it.each(Object.keys(measured))('%s', (key) => {
    expect(measured[key], `the longest are ${longest.join(', ')}`).toBeLessThanOrEqual(Math.min(ratchet[key]!, CEILINGS[key] ?? Infinity));
  });

  it('and the ratchet itself never loosens', () => {
    let committed: Record<string, number>;
    try {
      committed = JSON.parse(
        execFileSync('git', ['show', `HEAD:${RATCHET}`], { cwd: repositoryRoot, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }),
      ) as Record<string, number>;
    } catch {
      return expect(files.length).toBeGreaterThan(0); // no git here, so no earlier ratchet to compare with
    }
    for (const [key, bound] of Object.entries(committed)) expect(ratchet[key], key).toBeLessThanOrEqual(bound);
  });
});
