import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test, vi } from 'vitest';
import { intoFile } from './output-file.js';

const folder = mkdtempSync(join(tmpdir(), 'paceline-output-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const into = <T>(file: string, make: () => Promise<T>, mayReplace = true): Promise<T> =>
  intoFile(file, { mayReplace, textOf: (made) => JSON.stringify(made) }, make);

test('a file that is taken, or cannot be written, is told before anything is computed', async () => {
  let isAsked = false;
  const make = (): Promise<number> => Promise.resolve(void (isAsked = true)).then(() => 1);
  const taken = join(folder, 'taken');
  writeFileSync(taken, 'mine');
  await expect(into(join(folder, 'none', 'trace.json'), make)).rejects.toMatchObject({ code: 'OUTPUT_UNUSABLE' });
  await expect(into(folder, make)).rejects.toMatchObject({ code: 'OUTPUT_UNUSABLE' });
  await expect(into(taken, make, false)).rejects.toMatchObject({ code: 'OUTPUT_UNUSABLE', hint: expect.stringContaining('--force') });
  expect([isAsked, readFileSync(taken, 'utf8')]).toEqual([false, 'mine']);
});

test('without anything to write no file is left behind, and an old one stays as it is', async () => {
  const [fresh, old] = [join(folder, 'fresh'), join(folder, 'old')];
  writeFileSync(old, 'longer than what comes');
  for (const file of [fresh, old]) await expect(into(file, () => Promise.reject(new Error('CONFLICT')))).rejects.toThrow('CONFLICT');
  const ended = vi.spyOn(process, 'exit').mockImplementation(() => {
    throw new Error('ended');
  });
  for (const file of [fresh, old]) await expect(into(file, async () => process.emit('SIGINT'))).rejects.toThrow('ended');
  expect(ended).toHaveBeenCalledWith(130);
  ended.mockRestore();
  expect([existsSync(fresh), readFileSync(old, 'utf8')]).toEqual([false, 'longer than what comes']);
  for (const file of [fresh, old]) await into(file, () => Promise.resolve({ a: 1 }));
  expect([fresh, old].map((file) => readFileSync(file, 'utf8'))).toEqual(['{"a":1}', '{"a":1}']);
});
