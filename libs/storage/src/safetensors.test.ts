import { mkdtemp, readFile, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { SafetensorsWriter, safetensorsHeader } from './safetensors.js';

let folder: string;
beforeEach(async () => void (folder = await mkdtemp(path.join(tmpdir(), 'paceline-storage-'))));
afterEach(() => rm(folder, { recursive: true, force: true }));

const tensors = [
  { name: 'dense/kernel', shape: [2, 3] },
  { name: 'dense/bias', shape: [3] },
];

test('a written file has header, offsets and data as the format says', async () => {
  const target = path.join(folder, 'sub', 'w.safetensors');
  const writer = await SafetensorsWriter.create(target, tensors, { run: 'r' });
  const data = Float32Array.from({ length: 9 }, (_, i) => i / 2);
  await writer.append(new Uint8Array(data.buffer, 0, 10));
  await writer.append(new Uint8Array(data.buffer, 10));
  await writer.finish();
  const bytes = await readFile(target);
  const length = Number(bytes.readBigUInt64LE(0));
  expect((8 + length) % 8).toBe(0);
  const header = JSON.parse(bytes.subarray(8, 8 + length).toString()) as Record<string, unknown>;
  expect(header).toEqual({
    __metadata__: { run: 'r' },
    'dense/kernel': { dtype: 'F32', shape: [2, 3], data_offsets: [0, 24] },
    'dense/bias': { dtype: 'F32', shape: [3], data_offsets: [24, 36] },
  });
  expect(new Float32Array(new Uint8Array(bytes.subarray(8 + length)).buffer)).toEqual(data);
  expect(await readdir(path.dirname(target))).toEqual(['w.safetensors']);
});

test('a file with missing bytes never appears', async () => {
  const writer = await SafetensorsWriter.create(path.join(folder, 'w.safetensors'), tensors);
  await writer.append(new Uint8Array(8));
  await expect(writer.finish()).rejects.toThrow('8 bytes were written to a safetensors file of 36');
  expect(await readdir(folder)).toEqual([]);
});

test('names that are property names of objects stay names', () => {
  const header = safetensorsHeader([{ name: '__proto__', shape: [1] }]);
  expect(Buffer.from(header).toString()).toContain('"__proto__":{"dtype":"F32"');
});
