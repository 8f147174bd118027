import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { recordInto } from './trace.js';

const folder = mkdtempSync(join(tmpdir(), 'paceline-trace-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

test('a file that cannot be written is told before anything is recorded', async () => {
  let isAsked = false;
  const record = (): Promise<number> => Promise.resolve(void (isAsked = true)).then(() => 1);
  await expect(recordInto(join(folder, 'none', 'trace.json'), record)).rejects.toMatchObject({ code: 'OUTPUT_UNUSABLE' });
  await expect(recordInto(folder, record)).rejects.toMatchObject({ code: 'OUTPUT_UNUSABLE' });
  expect(isAsked).toBe(false);
});

test('without a recording no file is left behind, and an old one stays as it is', async () => {
  const [fresh, old] = [join(folder, 'fresh'), join(folder, 'old')];
  writeFileSync(old, 'longer than what comes');
  for (const file of [fresh, old]) await expect(recordInto(file, () => Promise.reject(new Error('CONFLICT')))).rejects.toThrow('CONFLICT');
  expect([existsSync(fresh), readFileSync(old, 'utf8')]).toEqual([false, 'longer than what comes']);
  for (const file of [fresh, old]) await recordInto(file, () => Promise.resolve({ a: 1 }));
  expect([fresh, old].map((file) => readFileSync(file, 'utf8'))).toEqual(['{"a":1}', '{"a":1}']);
});
