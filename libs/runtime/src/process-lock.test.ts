import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { startTicks } from './end-process.js';
import { lockFile, runningHolder } from './process-lock.js';

describe('a lock that is a file', () => {
  let folder: string;
  let file: string;
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'paceline-lock-'));
    file = join(folder, 'made', 'by-the-lock.json');
  });
  afterEach(() => rmSync(folder, { recursive: true, force: true }));

  it('is held by one, who tells what others read, and can be had again', () => {
    const lock = lockFile(file, { url: null as string | null });
    if ('heldBy' in lock) throw new Error('somebody holds a file that is new');
    expect(lockFile(file)).toEqual({ heldBy: process.pid });
    lock.tell({ url: 'http://127.0.0.1:1' });
    expect(runningHolder(file)).toMatchObject({ pid: process.pid, url: 'http://127.0.0.1:1' });
    expect(statSync(file).mode & 0o777).toBe(0o600);
    lock.release();
    expect(runningHolder(file)).toBeUndefined();
    expect(lockFile(file)).not.toHaveProperty('heldBy');
  });

  it.skipIf(startTicks(process.pid) === undefined)(
    'is nobody’s when its holder ended, its pid is another process’, or it was cut short',
    async () => {
      const ended = spawn(process.execPath, ['-e', '']);
      await once(ended, 'exit');
      lockFile(file);
      for (const left of [JSON.stringify({ pid: ended.pid, ticks: '1' }), JSON.stringify({ pid: process.pid, ticks: '1' }), '{"pid":']) {
        writeFileSync(file, left);
        expect(runningHolder(file)).toBeUndefined();
        expect(lockFile(file)).not.toHaveProperty('heldBy');
        expect(runningHolder(file)?.pid).toBe(process.pid);
      }
      expect(readdirSync(join(folder, 'made'))).toEqual(['by-the-lock.json']);
    },
  );
});
