import { expect, it, vi } from 'vitest';
import { verified } from './weight-uploads.js';

function fileOf(scalars: number, padding = 0): Buffer {
  const header = Object.fromEntries(
    Array.from({ length: scalars }, (_, i) => [`v${i}`, { dtype: 'F32', shape: [], data_offsets: [i * 4, i * 4 + 4] }]),
  );
  const text = Buffer.from(JSON.stringify(header) + ' '.repeat(padding));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  return Buffer.concat([length, text, Buffer.alloc(scalars * 4)]);
}

const check = async (file: Buffer): Promise<number> => {
  let bytes = 0;
  for await (const piece of verified(
    (async function* () {
      for (let at = 0; at < file.length; at += 65_536) yield await Promise.resolve(file.subarray(at, at + 65_536));
    })(),
    file.length,
  ))
    bytes += piece.length;
  return bytes;
};

it('weights have as many variables as a model may have, and a header of 2 MiB: more are refused before they are parsed', async () => {
  const most = fileOf(8_192);
  expect(await check(most)).toBe(most.length);
  const [tooMany, tooLong] = [fileOf(8_193), fileOf(1, 2 << 20)];
  const parsed = vi.spyOn(JSON, 'parse');
  try {
    await expect(check(tooMany)).rejects.toMatchObject({
      code: 'INVALID_INPUT',
      message: expect.stringContaining('more than 8192 tensors'),
    });
    await expect(check(tooLong)).rejects.toMatchObject({
      code: 'INVALID_INPUT',
      message: expect.stringContaining('at most 2097152 are read'),
    });
    expect(parsed.mock.calls.filter(([text]) => text.startsWith('{'))).toEqual([]);
  } finally {
    parsed.mockRestore();
  }
});
