/** An export takes the place of another one as a whole. */
import fs, { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it, vi } from 'vitest';
import { zip } from './archive.js';
import { jsonOf } from './byte-stream.js';
import { unpack } from './unpack.js';

describe('an export that is replaced', () => {
  const parent = mkdtempSync(join(tmpdir(), 'paceline-unpack-'));
  afterAll(() => rmSync(parent, { recursive: true }));
  const target = join(parent, 'export');
  const card = join(target, 'model-card.json');
  const unpacked = (name: string) => {
    const archive = async function* () {
      yield { path: 'model-card.json', body: jsonOf({ name }) };
    };
    return unpack(zip(archive()), target, true);
  };

  it('is there until the new one is', async () => {
    await unpacked('old');
    for (let n = 0; n < 40; n++) writeFileSync(join(target, `shard-${n}`), 'weights');
    let [isOver, wasAlwaysThere] = [false, true];
    const over = unpacked('new').finally(() => (isOver = true));
    while (!isOver) {
      wasAlwaysThere &&= existsSync(card);
      await new Promise(setImmediate);
    }
    await over;
    expect(wasAlwaysThere).toBe(true);
    expect([readFileSync(card, 'utf8'), readdirSync(target), readdirSync(parent)]).toEqual([
      expect.stringContaining('new'),
      ['model-card.json'],
      ['export'],
    ]);
  });

  it('stays where the new one cannot take its place', async () => {
    const { renameSync } = fs;
    const rename = vi.spyOn(fs, 'renameSync').mockImplementation((from, to) => {
      if (to === target && String(from).endsWith('.partial')) throw new Error('EBUSY');
      renameSync(from, to);
    });
    syncBuiltinESMExports();
    await expect(unpacked('newer')).rejects.toThrow('EBUSY');
    rename.mockRestore();
    syncBuiltinESMExports();
    expect([readFileSync(card, 'utf8'), readdirSync(parent)]).toEqual([expect.stringContaining('new"'), ['export']]);
  });
});
