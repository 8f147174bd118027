/** Rows of files as a trained model takes them. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import sharp from 'sharp';
import { afterAll, expect, it } from 'vitest';
import { readRows, type ReadRowsOptions } from './read-rows.js';

const folder = mkdtempSync(path.join(tmpdir(), 'paceline-rows-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const file = (name: string, content: string | Uint8Array): string => {
  const place = path.join(folder, name);
  writeFileSync(place, content);
  return place;
};
const COLUMNS = { size: 'number', colour: 'category' } as const;
async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const item of items) found.push(item);
  return found;
}
async function rowsOf(source: string, columns: ReadRowsOptions['columns'] = COLUMNS): Promise<Record<string, unknown>[]> {
  return (await all(readRows({ sources: [source], columns, workFolder: folder }))).flatMap(({ rows }) => rows);
}

it('makes of cells what an import makes of them, whatever the form of the file', async () => {
  const expected = [
    { size: 1.5, colour: 'red' },
    { size: null, colour: null },
  ];
  expect(await rowsOf(file('a.csv', 'colour;size;other\n red ;1.5;x\n;n/a;y\n'))).toEqual(expected);
  expect(await rowsOf(file('a.json', '[{"size": 1.5, "colour": "red"}, {"size": null}]'))).toEqual([
    expected[0],
    { size: null, colour: null },
  ]);
  expect(await rowsOf(file('a.jsonl', '{"size": "1.5", "colour": "red"}\n{"size": null, "colour": ""}\n'))).toEqual(expected);
});

it('reads pictures that stand alone, and those that a table names', async () => {
  const bytes = await sharp({ create: { width: 3, height: 2, channels: 3, background: 'red' } })
    .png()
    .toBuffer();
  const picture = file('one.png', bytes);
  expect(await rowsOf(picture, { photo: 'image' })).toEqual([{ photo: bytes }]);
  const [row] = await rowsOf(file('photos.csv', 'photo,size\none.png,3\n'), { photo: 'image', size: 'number' });
  expect(Buffer.from(row!['photo'] as Uint8Array).equals(bytes)).toBe(true);
});

it('names file, row and column of what does not fit', async () => {
  await expect(rowsOf(file('bad.csv', 'size,colour\n1,red\nwide,red\n'))).rejects.toMatchObject({
    code: 'VALUE_MISFIT',
    row: 2,
    column: 'size',
  });
  await expect(rowsOf(file('less.csv', 'size\n1\n'))).rejects.toMatchObject({ code: 'COLUMN_UNKNOWN', column: 'colour' });
  await expect(rowsOf(file('list.json', '[1]'))).rejects.toMatchObject({ code: 'FORMAT_MALFORMED', row: 1 });
});
