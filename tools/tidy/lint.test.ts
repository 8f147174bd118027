import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ESLint } from 'eslint';
import { describe, expect, it } from 'vitest';
import { repositoryRoot } from './tree.js';

const eslint = new ESLint({ cwd: repositoryRoot });

/** Lints `code` as if it were the text of an existing file, and returns what is said about it. */
async function lintAs(filePath: string, code: string): Promise<{ rule: string | null; message: string }[]> {
  const [result] = await eslint.lintText(code, { filePath });
  return result!.messages.map(({ ruleId, message }) => ({ rule: ruleId, message }));
}

describe('lint refuses a decision that hangs on a text for people', () => {
  it.each([
    ["why.startsWith('the coordinator is gone')"],
    ["run.statusReason?.startsWith('waits for ')"],
    ["(error as Error).message.toLowerCase().includes('locked')"],
    ['/locked/i.test(error.message)'],
    ["message === 'training began'"],
    ["'training began' !== String(error.message)"],
    ["(closed?.description ?? '').endsWith('gone')"],
  ])('%s', async (condition) => {
    const code = `declare const why: string, message: string, error: Error, run: { statusReason?: string }, closed: { description: string } | undefined;
export const f = (): boolean | undefined => ${condition};\n`;
    expect((await lintAs('libs/protocol/src/index.ts', code)).map(({ rule }) => rule)).toContain('messages/decide-nothing');
  });

  it('and lets codes, kinds and types pass', async () => {
    const code = `declare const end: { reason: 'pause' | 'final'; cause: string }, message: { type: string }, reasons: string[], reason: string;
export const f = (): boolean => end.reason === 'pause' || message.type === 'end' || reasons.includes(end.cause) || reason !== '';\n`;
    expect(await lintAs('libs/protocol/src/index.ts', code)).toEqual([]);
    expect(await lintAs('libs/protocol/src/frames.test.ts', `export const f = (why: string): boolean => why.startsWith('a b');\n`)).toEqual(
      [],
    );
  });
});

describe('lint refuses a planted import', () => {
  it.each([
    ['libs/learning/src/index.ts', '@paceline/exchange', 'it is pure'],
    ['libs/exchange/src/index.ts', '@paceline/learning', 'rounds move and add vectors'],
    ['libs/spec/src/index.ts', '@paceline/protocol', 'the run spec is what every process'],
    ['libs/protocol/src/index.ts', '@paceline/spec', 'contract of the data plane'],
    ['libs/runtime/src/index.ts', '@prisma/client', 'starts and watches processes'],
    ['libs/exchange/src/index.ts', 'bullmq', 'no round waits for a database or a queue'],
  ])('%s may not import %s, and is told why', async (file, target, reason) => {
    const messages = await lintAs(file, `import * as planted from '${target}';\nexport const used = planted;\n`);
    expect(messages).toEqual([expect.objectContaining({ rule: 'paceline/boundaries', message: expect.stringContaining(reason) })]);
  });

  it('by a relative path into another project', async () => {
    const messages = await lintAs('libs/learning/src/index.ts', `export * from '../../kernels/src/index.js';\n`);
    expect(messages.map((m) => m.rule)).toContain('paceline/boundaries');
  });

  it('of an app', async () => {
    const messages = await lintAs(
      'libs/learning/src/index.ts',
      `import * as planted from '@paceline/worker';\nexport const used = planted;\n`,
    );
    expect(messages).toEqual([expect.objectContaining({ message: expect.stringContaining('nothing imports apps') })]);
  });

  it('of the inside of a library, or of its own index', async () => {
    const inside = await lintAs('libs/exchange/src/index.ts', `export * from '@paceline/protocol/src/frames.js';\n`);
    expect(inside.map((m) => m.rule)).toContain('no-restricted-imports');
    const own = await lintAs('libs/protocol/src/frames.ts', `export * from './index.js';\n`);
    expect(own.map((m) => m.rule)).toContain('no-restricted-imports');
  });

  it('of the testkit outside tests', async () => {
    const messages = await lintAs(
      'libs/exchange/src/index.ts',
      `import * as planted from '@paceline/testkit';\nexport const used = planted;\n`,
    );
    expect(messages.map((m) => m.rule)).toContain('no-restricted-imports');
  });

  it('but lets the allowed directions pass', async () => {
    expect(await lintAs('libs/exchange/src/index.ts', `export * from '@paceline/protocol';\nexport * from '@paceline/kernels';\n`)).toEqual(
      [],
    );
    expect(await lintAs('libs/learning/src/index.ts', `export type { RunSpec } from '@paceline/spec';\n`)).toEqual([]);
  });
});

it('lint refuses a spread literal, which hides unknown properties, and lets a spread of a value pass', async () => {
  const said = await lintAs('libs/protocol/src/index.ts', 'export const f = (a: number) => ({ b: 1, ...{ a } });\n');
  expect(said).toEqual([{ rule: 'no-restricted-syntax', message: expect.stringContaining('A spread literal') }]);
  expect(await lintAs('libs/protocol/src/index.ts', 'export const f = (a: { a: number }) => ({ b: 1, ...a });\n')).toEqual([]);
});

describe('lint with types', () => {
  it('refuses a promise that nobody waits for, and what the compiler refuses, in sources and in tests', () => {
    const folder = mkdtempSync(join(tmpdir(), 'paceline-lint-'));
    try {
      for (const file of ['oxlint.config.json', 'tsconfig.base.json', 'tsconfig.json', 'libs/spec/tsconfig.json'])
        cpSync(join(repositoryRoot, file), join(folder, file));
      symlinkSync(join(repositoryRoot, 'node_modules'), join(folder, 'node_modules'));
      mkdirSync(join(folder, 'libs/spec/src'));
      const planted = 'async function work(): Promise<void> {}\nwork();\nexport const n: number = "text";\n';
      for (const name of ['a.ts', 'a.test.ts']) writeFileSync(join(folder, 'libs/spec/src', name), planted);
      const { status, stdout } = spawnSync(
        join(repositoryRoot, 'node_modules/.bin/oxlint'),
        ['--config', 'oxlint.config.json', '--type-aware', '--type-check', '--format', 'unix', '.'],
        { cwd: folder, encoding: 'utf8' },
      );
      expect(status).toBe(1);
      for (const name of ['a.ts', 'a.test.ts']) {
        const told = stdout.split('\n').filter((line) => line.includes(`${name}:`));
        expect(told.some((line) => line.includes('Promises must be awaited'))).toBe(true);
        expect(told.some((line) => line.includes("'string' is not assignable to type 'number'"))).toBe(true);
      }
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });
});

describe('lint refuses', () => {
  it.each([
    [
      'an empty catch',
      'export function f(): void {\n  try {\n    JSON.parse("");\n  } catch {\n    // nothing\n  }\n}\n',
      'no-restricted-syntax',
    ],
    ['an empty .catch', 'export const f = (p: Promise<void>): Promise<void> => p.catch(() => {});\n', 'no-restricted-syntax'],
    ['any', 'export const f = (x: any): number => x;\n', '@typescript-eslint/no-explicit-any'],
    [
      'a function of more than 70 lines',
      `export function f(): number {\n  let x = 0;\n${'  x += 1;\n'.repeat(70)}  return x;\n}\n`,
      'max-lines-per-function',
    ],
    [
      'a file of more than 400 lines',
      'export {};\n' + Array.from({ length: 401 }, (_, i) => `export const x${i} = ${i};\n`).join(''),
      'max-lines',
    ],
  ])('%s', async (_, code, rule) => {
    expect((await lintAs('libs/protocol/src/index.ts', code)).map((m) => m.rule)).toContain(rule);
  });
});
