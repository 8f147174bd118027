import { mkdirSync, mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { folderOfDevice } from './device-place.js';

const parent = mkdtempSync(join(tmpdir(), 'places-'));
const made: string[] = [parent];
afterAll(() => {
  for (const folder of made) rmSync(folder, { recursive: true, force: true });
});

it('a socket has room in the folder of a device, which its user alone may enter, however long the path for temporary files is', () => {
  const long = join(parent, 'x'.repeat(100));
  mkdirSync(long);
  const folders = [parent, long].map((each) => folderOfDevice(each));
  made.push(...folders);
  expect(folders.map(dirname)).toEqual([parent, '/tmp']);
  for (const folder of folders) {
    expect(Buffer.byteLength(join(folder, `${'0'.repeat(20)}.sock`))).toBeLessThanOrEqual(103);
    expect(statSync(folder).mode & 0o777).toBe(0o700);
  }
});
