import { describe, expect, test, vi } from 'vitest';
import { safetensorsHeader } from './safetensors.js';
import { parseSafetensorsHeader, safetensorsHeaderBytes } from './safetensors-reader.js';

const first8 = (claimed: bigint): Uint8Array => {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(claimed);
  return bytes;
};

/** The tensors of a file with this header and so many bytes of data. */
const parse = (header: string | Uint8Array, dataBytes: number) => {
  const bytes = Buffer.from(header);
  return parseSafetensorsHeader(bytes, 8 + bytes.length + dataBytes);
};
const entry = (from: number, to: number, more = {}) => ({ dtype: 'F32', shape: [(to - from) / 4], data_offsets: [from, to], ...more });

test('what the writer writes is read back, names that are property names of objects too', () => {
  const tensors = [
    { name: '__proto__', shape: [2, 3] },
    { name: 'constructor', shape: [] },
    { name: 'empty', shape: [0, 7] },
    { name: 'ü/"quoted"\\', shape: [1] },
  ];
  const file = safetensorsHeader(tensors, { run: 'x' });
  const bytes = safetensorsHeaderBytes(file, file.length + 32);
  expect(bytes).toBe(file.length - 8);
  const found = parse(file.subarray(8), 32);
  expect([...found.values()].map(({ name, shape, from, to }) => ({ name, shape, from: from - file.length, to: to - file.length }))).toEqual(
    [
      { name: '__proto__', shape: [2, 3], from: 0, to: 24 },
      { name: 'constructor', shape: [], from: 24, to: 28 },
      { name: 'empty', shape: [0, 7], from: 28, to: 28 },
      { name: 'ü/"quoted"\\', shape: [1], from: 28, to: 32 },
    ],
  );
  expect(found.has('toString')).toBe(false);
});

describe('the length of a header', () => {
  test.each([
    ['2^63', first8(2n ** 63n), 1000],
    ['2^64 - 1', first8(2n ** 64n - 1n), 1000],
    ['larger than the file', first8(993n), 1000],
    ['larger than any header', first8(100_000_001n), 2 ** 40],
    ['0', first8(0n), 1000],
    ['missing', new Uint8Array(7), 7],
  ])('is refused when it is %s', (_, bytes, fileBytes) => {
    expect(() => safetensorsHeaderBytes(bytes, fileBytes)).toThrow(/^SAFETENSORS_INVALID: /);
  });
});

describe('a header is refused', () => {
  const CASES: [why: string, header: string | Uint8Array, dataBytes: number, message: RegExp][] = [
    ['that is not JSON', '{"a":', 0, /not JSON/],
    ['with an open string', '{"a', 0, /not JSON/],
    ['with a bad escape in a name', '{"\\x":1}', 0, /not JSON/],
    ['that is not UTF-8', Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x7d]), 0, /not UTF-8/],
    ['with a byte order mark', '\ufeff{}', 0, /not JSON/],
    ['that is an array', '[]', 0, /not a JSON object/],
    ['that is null', 'null', 0, /not a JSON object/],
    ['with an entry that is no object', '{"a":[1]}', 0, /no object/],
    ['with a name twice', '{"a":{"dtype":"F32"},"a":{}}', 0, /"a" occurs twice/],
    ['with a name twice, once escaped', '{"a":{},"\\u0061":{}}', 0, /"a" occurs twice/],
    ['with __proto__ twice', '{"__proto__":{},"__proto__" : {}}', 0, /"__proto__" occurs twice/],
    ['with a field of an entry twice', '{"a":{"shape":[1],"shape":[2]}}', 0, /"shape" occurs twice/],
    ['with an entry nested deeply', `{"a":${'['.repeat(100_000)}`, 0, /nested too deeply/],
    ['with an unknown dtype', JSON.stringify({ a: entry(0, 4, { dtype: 'F33' }) }), 4, /dtype of "a" is unknown/],
    ['with an inherited name for a dtype', JSON.stringify({ a: entry(0, 4, { dtype: 'constructor' }) }), 4, /dtype of "a" is unknown/],
    ['with a negative dimension', JSON.stringify({ a: entry(0, 4, { shape: [-1] }) }), 4, /shape of "a" is not valid/],
    ['with half a dimension', JSON.stringify({ a: entry(0, 4, { shape: [0.5] }) }), 4, /shape of "a" is not valid/],
    ['with a shape that overflows', JSON.stringify({ a: entry(0, 4, { shape: [2 ** 31, 2 ** 31] }) }), 4, /too large/],
    ['with a shape that overflows before a zero', JSON.stringify({ a: entry(0, 0, { shape: [2 ** 40, 2 ** 40, 0] }) }), 0, /too large/],
    ['with 33 dimensions', JSON.stringify({ a: entry(0, 4, { shape: Array(33).fill(1) }) }), 4, /shape of "a" is not valid/],
    ['with offsets that do not fit the shape', JSON.stringify({ a: entry(0, 8, { shape: [1] }) }), 8, /span 8 bytes, its shape 4/],
    ['with offsets backwards', JSON.stringify({ a: entry(0, 4, { data_offsets: [4, 0] }) }), 4, /span -4 bytes/],
    ['with negative offsets', JSON.stringify({ a: entry(0, 4, { data_offsets: [-4, 0] }) }), 4, /offsets of "a" are not valid/],
    ['with one offset', JSON.stringify({ a: entry(0, 4, { data_offsets: [0] }) }), 4, /offsets of "a" are not valid/],
    ['with offsets past 2^53', '{"a":{"dtype":"U8","shape":[1],"data_offsets":[9007199254740992,9007199254740993]}}', 1, /offsets of "a"/],
    ['with tensors that overlap', JSON.stringify({ a: entry(0, 8), b: entry(4, 12) }), 12, /"b" overlaps/],
    ['with the same data twice', JSON.stringify({ a: entry(0, 8), b: entry(0, 8) }), 8, /"b" overlaps/],
    ['with a gap', JSON.stringify({ a: entry(0, 4), b: entry(8, 12) }), 12, /gap before the data of "b"/],
    ['with a gap at the start', JSON.stringify({ a: entry(4, 8) }), 8, /gap before the data of "a"/],
    ['with bytes after the last tensor', JSON.stringify({ a: entry(0, 4) }), 5, /end at byte .* the file has/],
    ['with tensors past the end of the file', JSON.stringify({ a: entry(0, 400) }), 4, /end at byte .* the file has/],
  ];
  test.each(CASES)('%s', (_, header, dataBytes, message) => {
    expect(() => parse(header, dataBytes)).toThrow(message);
    expect(() => parse(header, dataBytes)).toThrow(/^SAFETENSORS_INVALID: /);
  });
});

test('a header with more tensors or names than are taken is refused before it is parsed', () => {
  const header = (tensors: number, metadata = 0): string =>
    JSON.stringify(
      Object.assign(
        { __metadata__: Object.fromEntries(Array.from({ length: metadata }, (_, i) => [`m${i}`, ''])) },
        Object.fromEntries(Array.from({ length: tensors }, (_, i) => [`t${i}`, entry(i * 4, i * 4 + 4)])),
      ),
    );
  const parseMost = (text: string, tensors: number) => {
    const bytes = Buffer.from(text);
    return parseSafetensorsHeader(bytes, 8 + bytes.length + tensors * 4, { maxTensors: 3 });
  };
  expect(parseMost(header(3, 900), 3).size).toBe(3);
  const parsed = vi.spyOn(JSON, 'parse');
  try {
    expect(() => parseMost(header(4), 4)).toThrow('SAFETENSORS_INVALID: it has more than 3 tensors');
    expect(() => parseMost(header(3, 1100), 3)).toThrow('SAFETENSORS_INVALID: its header has more than 1012 names');
    expect(parsed.mock.calls.filter(([text]) => text.startsWith('{'))).toEqual([]);
  } finally {
    parsed.mockRestore();
  }
});

test('a header of a megabyte of open strings or names is refused in time that grows with its length', () => {
  // Processor time, the least of three, because the machine may be busy.
  const spentMs = (header: string): number =>
    Math.min(
      ...[1, 2, 3].map(() => {
        const before = process.cpuUsage();
        expect(() => parse(header, 0)).toThrow(/SAFETENSORS_INVALID/);
        return process.cpuUsage(before).user / 1e3;
      }),
    );
  // Were it by the square, sixteen times as much would take 256 times as long; what takes no time at all is not measured.
  const NOISE_MS = 5;
  for (const header of [(size: number) => `{${'"'.repeat(size + 1)}`, (size: number) => `{"${'\\"'.repeat(size / 2)}`])
    expect(spentMs(header(1_000_000))).toBeLessThan(64 * (spentMs(header(1_000_000 / 16)) + NOISE_MS));
});
