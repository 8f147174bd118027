import { Arena } from '@paceline/kernels';
import { ProtocolError } from '@paceline/protocol';
import { expect, test } from 'vitest';
import { acquireRegion } from '../attempt/regions.js';
import { addRows, decodeIds, encodeIds, mostRowBytes, encodeRows, RowsRegion } from './rows.js';

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

const PAYLOADS = process.env['PACELINE_SOAK'] === '1' ? 300_000 : 5_000;

test(`${PAYLOADS} gradients of rows with mistakes are refused, or are some rows of the table in order`, { timeout: 3_600_000 }, () => {
  const WIDTH = 3;
  const ROWS = 400;
  let state = 7;
  const random = (below: number): number => (state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0) % below;
  const arena = Arena.create({ initialBytes: 1 << 18, maximumBytes: 1 << 18 });
  const words = [0, 1, ROWS, 0x7fffffff, 0xffffffff, 0x80808080];
  let [taken, refused] = [0, 0];
  for (let i = 0; i < PAYLOADS; i++) {
    const ids = Uint32Array.from({ length: ROWS }, (_, id) => id).filter(() => random(20) === 0);
    let bytes = encodeRows({ ids, values: new Float32Array(ids.length * WIDTH).fill(0.5) });
    for (let left = 1 + random(3); left > 0; left--) {
      const at = random(bytes.length);
      if (random(2) === 0) bytes[at]! ^= 1 << random(8);
      else new DataView(bytes.buffer).setUint32(Math.min(at & ~3, bytes.length - 4), words[random(words.length)]!, true);
    }
    if (random(6) === 0) bytes = bytes.slice(0, random(bytes.length));
    const payload = acquireRegion(arena, Math.max(1, Math.ceil(bytes.length / 4)));
    payload.bytes.set(bytes);
    try {
      const region = RowsRegion.of(payload, bytes.length, ROWS, WIDTH);
      taken++;
      if (region.ids.some((id, at) => id >= ROWS || (at > 0 && id <= region.ids[at - 1]!)))
        throw new Error(`payload ${i} has rows in no order`);
      expect(region.floats).toHaveLength(region.ids.length * WIDTH);
      region.release();
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error;
      expect(error.code).toBe('BAD_PAYLOAD');
      refused++;
    }
    if (arena.bytesInUse !== 0) throw new Error(`payload ${i} has left memory behind`);
  }
  expect(Math.min(taken, refused)).toBeGreaterThan(PAYLOADS / 20);
});
