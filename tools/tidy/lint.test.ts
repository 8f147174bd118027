/** Files with planted mistakes are linted in a folder of their own, all at once. */
import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { repositoryRoot } from './tree.js';

interface Said {
  readonly rule: string;
  readonly message: string;
}

const folder = mkdtempSync(join(tmpdir(), 'paceline-lint-'));
const said = new Map<string, Said[]>();

/** @returns where the file lies: beside the given one */
function plant(beside: string, code: string): string {
  const path = join(dirname(beside), `planted-${said.size}${/(\.test)?\.tsx?$/.exec(beside)![0]}`);
  said.set(path, []);
  mkdirSync(join(folder, dirname(path)), { recursive: true });
  writeFileSync(join(folder, path), code);
  return path;
}

/** What lint says of a planted file. */
const rulesOf = (path: string): string[] => said.get(path)!.map(({ rule }) => rule);

function oxlint(...flags: string[]): { status: number | null; stdout: string } {
  const command = join(repositoryRoot, 'node_modules/.bin/oxlint');
  const { status, stdout, stderr } = spawnSync(command, ['--config', 'oxlint.config.json', ...flags, '.'], {
    cwd: folder,
    encoding: 'utf8',
  });
  return { status, stdout: stdout || stderr };
}

beforeAll(() => {
  const own = ['boundaries', 'lint-rules', 'lint-messages'].map((name) => `tools/tidy/${name}.mjs`);
  for (const file of ['oxlint.config.json', 'package.json', 'tsconfig.base.json', 'tsconfig.json', 'libs/spec/tsconfig.json', ...own])
    cpSync(join(repositoryRoot, file), join(folder, file));
  symlinkSync(join(repositoryRoot, 'node_modules'), join(folder, 'node_modules'));
  const { diagnostics } = JSON.parse(oxlint('--format', 'json').stdout) as {
    diagnostics: { filename: string; code: string; message: string }[];
  };
  for (const { filename, code, message } of diagnostics)
    said.get(filename)?.push({ rule: code.replace(/^([^(]+)\((.*)\)$/, '$1/$2'), message });
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe('lint refuses a decision that hangs on a text for people', () => {
  it.each(
    [
      "why.startsWith('the coordinator is gone')",
      "run.statusReason?.startsWith('waits for ')",
      "(error as Error).message.toLowerCase().includes('locked')",
      '/locked/i.test(error.message)',
      "message === 'training began'",
      "'training began' !== String(error.message)",
      "(closed?.description ?? '').endsWith('gone')",
    ].map((condition) => {
      const code = `declare const why: string, message: string, error: Error, run: { statusReason?: string }, closed: { description: string } | undefined;
export const f = (): boolean | undefined => ${condition};\n`;
      return [condition, plant('libs/protocol/src/index.ts', code)];
    }),
  )('%s', (_, path) => {
    expect(rulesOf(path!)).toContain('messages/decide-nothing');
  });

  const code = `declare const end: { reason: 'pause' | 'final'; cause: string }, message: { type: string }, reasons: string[], reason: string;
export const f = (): boolean => end.reason === 'pause' || message.type === 'end' || reasons.includes(end.cause) || reason !== '';\n`;
  const passes = [
    plant('libs/protocol/src/index.ts', code),
    plant('libs/protocol/src/frames.test.ts', `export const f = (why: string): boolean => why.startsWith('a b');\n`),
  ];
  it('and lets codes, kinds, types and tests pass', () => {
    expect(passes.map((path) => said.get(path))).toEqual([[], []]);
  });
});

describe('lint refuses a planted import', () => {
  it.each(
    [
      ['libs/learning/src/index.ts', '@paceline/exchange', 'it is pure'],
      ['libs/exchange/src/index.ts', '@paceline/learning', 'rounds move and add vectors'],
      ['libs/spec/src/index.ts', '@paceline/protocol', 'the run spec is what every process'],
      ['libs/protocol/src/index.ts', '@paceline/spec', 'contract of the data plane'],
      ['libs/runtime/src/index.ts', '@prisma/client', 'starts and watches processes'],
      ['libs/exchange/src/index.ts', 'bullmq', 'no round waits for a database or a queue'],
      ['libs/learning/src/index.ts', '../../kernels/src/arena.js', 'leaves the package'],
      ['libs/learning/src/index.ts', '@paceline/worker', 'nothing imports apps'],
      ['libs/learning/src/index.ts', '@paceline/learning', 'is this package'],
    ].map(([file, target, reason]) => [
      `${file} may not import ${target}`,
      reason,
      plant(file!, `import * as planted from '${target}';\nexport const used = planted;\n`),
      plant(file!, `export * from '${target}';\n`),
      plant(file!, `export const planted = (): Promise<unknown> => import('${target}');\n`),
    ]),
  )('%s, and says why: %s', (_, reason, ...paths) => {
    for (const path of paths) expect(said.get(path!)).toEqual([{ rule: 'paceline/boundaries', message: expect.stringContaining(reason!) }]);
  });

  it.each([
    ['the inside of a library', plant('libs/exchange/src/index.ts', `export * from '@paceline/protocol/src/frames.js';\n`)],
    ['the inside of a folder of a library', plant('libs/exchange/src/index.ts', `export * from '@paceline/protocol/src/a/b.js';\n`)],
    ['its own index', plant('libs/protocol/src/frames.ts', `export * from './index.js';\n`)],
    [
      'the testkit outside tests',
      plant('libs/exchange/src/index.ts', `import * as planted from '@paceline/testkit';\nexport const used = planted;\n`),
    ],
  ])('of %s', (_, path) => {
    expect(rulesOf(path)).toEqual(['eslint/no-restricted-imports']);
  });

  const allowed = [
    plant('libs/exchange/src/index.ts', `export * from '@paceline/protocol';\nexport * from '@paceline/kernels';\n`),
    plant('libs/learning/src/index.ts', `export type { RunSpec } from '@paceline/spec';\n`),
    plant('libs/exchange/src/a.test.ts', `import * as planted from '@paceline/testkit';\nexport const used = planted;\n`),
  ];
  it('but lets the allowed directions pass', () => {
    expect(allowed.map((path) => said.get(path))).toEqual([[], [], []]);
  });
});

describe('lint with types', () => {
  it('refuses a promise that nobody waits for, and what the compiler refuses, in sources and in tests', () => {
    const mistakes = 'async function work(): Promise<void> {}\nwork();\nexport const n: number = "text";\n';
    const paths = ['libs/spec/src/a.ts', 'libs/spec/src/a.test.ts'].map((beside) => plant(beside, mistakes));
    const { status, stdout } = oxlint('--type-aware', '--type-check', '--format', 'unix');
    expect(status).toBe(1);
    for (const path of paths) {
      const told = stdout.split('\n').filter((line) => line.includes(`${path}:`));
      expect(told.some((line) => line.includes('Promises must be awaited'))).toBe(true);
      expect(told.some((line) => line.includes("'string' is not assignable to type 'number'"))).toBe(true);
    }
  });
});

describe('lint refuses', () => {
  it.each(
    [
      [
        'a spread literal, which hides unknown properties',
        'export const f = (a: number) => ({ b: 1, ...{ a } });\n',
        'paceline/no-spread-literal',
      ],
      [
        'an empty catch',
        'export function f(): void {\n  try {\n    JSON.parse("");\n  } catch {\n    // nothing\n  }\n}\n',
        'paceline/no-empty-catch',
      ],
      ['an empty .catch', 'export const f = (p: Promise<void>): Promise<void> => p.catch(() => {});\n', 'paceline/no-empty-catch'],
      ['any', 'export const f = (x: any): number => x;\n', 'typescript/no-explicit-any'],
      ['require', 'export const f = (): unknown => require("node:fs");\n', 'typescript/no-require-imports'],
      ['a mistake of types that is passed by', `// @ts-${'ignore'}\nexport const x: number = 1;\n`, 'typescript/ban-ts-comment'],
      ['a variable that nobody reads', 'const x = 1;\nexport {};\n', 'eslint/no-unused-vars'],
      ['a comparison that converts', 'export const f = (x: unknown): boolean => x == 1;\n', 'eslint/eqeqeq'],
      [
        'a function of more than 70 lines',
        `export function f(): number {\n  let x = 0;\n${'  x += 1;\n'.repeat(70)}  return x;\n}\n`,
        'eslint/max-lines-per-function',
      ],
      [
        'a file of more than 400 lines',
        'export {};\n' + Array.from({ length: 401 }, (_, i) => `export const x${i} = ${i};\n`).join(''),
        'eslint/max-lines',
      ],
    ].map(([what, code, rule]) => [what, rule, plant('libs/protocol/src/index.ts', code!)]),
  )('%s', (_, rule, path) => {
    expect(rulesOf(path!)).toEqual([rule]);
  });

  const spread = plant('libs/protocol/src/index.ts', 'export const f = (a: { a: number }) => ({ b: 1, ...a });\n');
  it('and lets a spread of a value pass', () => {
    expect(said.get(spread)).toEqual([]);
  });
});
