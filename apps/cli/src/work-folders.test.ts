import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { hostname, tmpdir } from 'node:os';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { openWorkFolder } from './work-folders.js';

it('what killed commands have left is removed by the next one, and nothing that is in use', () => {
  const cache = path.join(mkdtempSync(path.join(tmpdir(), 'paceline-work-')), 'imports');
  onTestFinished(() => rmSync(path.dirname(cache), { recursive: true }));
  const mine = openWorkFolder(cache);
  const gone = spawnSync(process.execPath, ['-e', '']).pid;
  const dead = path.basename(mine).replace(`-${process.pid}-`, `-${gone}-`);
  const elsewhere = path.basename(mine).replace(hostname().replaceAll(/[^A-Za-z0-9.-]/g, '_'), 'elsewhere');
  for (const name of [dead, elsewhere, 'work-AbCd12', 'work-old123', 'other']) mkdirSync(path.join(cache, name));
  writeFileSync(path.join(cache, dead, 'rows'), 'x');
  utimesSync(path.join(cache, 'work-old123'), new Date(0), new Date(0));
  const next = openWorkFolder(cache);
  expect(readdirSync(cache).sort()).toEqual(
    [mine, next]
      .map((folder) => path.basename(folder))
      .concat(elsewhere, 'work-AbCd12', 'other')
      .sort(),
  );
});
