import { expect, test } from 'vitest';
import { addRows, decodeIds, encodeIds, mostRowBytes, encodeRows } from './rows.js';

test('rows are read as they were written, in a byte or two each where they lie close', () => {
  for (const ids of [[], [0], [0, 1, 2], [5, 130, 16_600, 2 ** 21 + 9, 2 ** 24 - 1]].map((each) => Uint32Array.from(each))) {
    const bytes = encodeIds(ids);
    expect(decodeIds(bytes, 2 ** 24)).toEqual({ ids, end: bytes.length });
    expect(encodeRows({ ids, values: new Float32Array(ids.length * 3) }).length).toBeLessThanOrEqual(mostRowBytes(ids.length, 3));
  }
  expect(encodeIds(Uint32Array.from({ length: 100 }, (_, i) => i * 100))).toHaveLength(104);
});

test.each([
  ['no count', [1, 0]],
  ['2 of 9', [2, 0, 0, 0, 1]],
  ['does not end', [1, 0, 0, 0, 0x80]],
  ['more digits', [1, 0, 0, 0, 0x80, 0]],
  ['row 9 of 9', [1, 0, 0, 0, 9]],
])('bytes that no encoder writes are refused: %s', (why, bytes) => {
  expect(() => decodeIds(Uint8Array.from(bytes), 9)).toThrow(why);
});

test('a sum has the rows of both; a row that one of them lacks is added to +0', () => {
  const rows = (ids: number[], values: number[]) => ({ ids: Uint32Array.from(ids), values: Float32Array.from(values) });
  const sum = addRows(rows([1, 4], [-0, 2]), rows([0, 4], [-0, 3]), 1, (elements) => new Float32Array(elements));
  expect([...sum.ids]).toEqual([0, 1, 4]);
  expect([...sum.values]).toEqual([0, 0, 5]);
});
