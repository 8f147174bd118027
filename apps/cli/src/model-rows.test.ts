/** Tables for a trained model are read as the files were that its dataset was made of, unless the user says otherwise. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { resolveFeatures } from '@paceline/data';
import type { ModelFolder } from '@paceline/models';
import { afterAll, expect, it } from 'vitest';
import { inputRows, type TableFlags } from './model-rows.js';

const folder = mkdtempSync(path.join(tmpdir(), 'paceline-model-rows-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

it('the dialect of the dataset goes before what is usual, and a flag before both', async () => {
  const statistics = { count: 9, missing: 0, mean: 0, deviation: 1, minimum: -1, maximum: 1 };
  const made = resolveFeatures({
    format: 'paceline.dataset',
    version: 1,
    columns: ['a', 'y'].map((name) => ({ name, kind: 'number' as const, statistics })),
    label: 'y',
    splits: { train: { rows: 9, shards: [{ sha256: 'a'.repeat(64), rows: 9, bytes: 100 }] } },
    dropped: { missing: 0 },
    isOrdered: true,
    dialect: { decimal: ',', delimiter: '^' },
  });
  if (!made.ok) throw new Error(JSON.stringify(made.issues));
  const model = { preprocessing: { plan: made.plan } } as unknown as ModelFolder;
  const read = async (text: string, flags: TableFlags = {}): Promise<unknown[]> => {
    const file = path.join(folder, 'rows.csv');
    writeFileSync(file, text);
    const found: unknown[] = [];
    for await (const { rows } of inputRows(model, [file], folder, flags)) found.push(...rows);
    return found;
  };
  expect(await read('a^b\n1.234,5^x\n')).toEqual([{ a: 1234.5 }]);
  expect(await read('a|b\n1,234.5|x\n', { decimal: '.', delimiter: '|' })).toEqual([{ a: 1234.5 }]);
});
