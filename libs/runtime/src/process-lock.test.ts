import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { startTicks } from './end-process.js';
import { beatOf, GONE_AFTER_MS, hostElsewhere, lockFile, ofOthers, runningHolder, type Holder } from './process-lock.js';

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

  const elsewhere = { pid: process.pid, ticks: '1', host: 'other', place: 'another boot', machine: 'another machine' };
  /** As its file stands after it was left alone. */
  const leftAlone = (by: object, forMs: number): void => {
    writeFileSync(file, JSON.stringify(by));
    utimesSync(file, Date.now() / 1000, (Date.now() - forMs) / 1000);
  };

  it('is held by a process of another host or container until that has left its file alone for minutes', () => {
    const lock = lockFile(file);
    if ('heldBy' in lock) throw new Error('somebody holds a file that is new');
    lock.release();
    leftAlone(elsewhere, GONE_AFTER_MS / 2);
    expect(lockFile(file)).toEqual({ heldBy: process.pid, host: 'other' });
    expect(hostElsewhere(runningHolder(file)!)).toBe('other');
    leftAlone(elsewhere, GONE_AFTER_MS + 60_000);
    expect(runningHolder(file)).toBeUndefined();
    expect(lockFile(file)).not.toHaveProperty('heldBy');
    expect(hostElsewhere(runningHolder(file)!)).toBeUndefined();
  });

  it('is free at once after this machine was started anew', () => {
    lockFile(file);
    const { machine } = JSON.parse(readFileSync(file, 'utf8')) as Holder;
    leftAlone({ ...elsewhere, machine }, 0);
    // Containers have no machine of their own, and wait.
    expect('heldBy' in lockFile(file)).toBe(!machine);
  });

  it('is touched while it is held, and its holder hears when another host has taken it', () => {
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
    try {
      const taken: Holder[] = [];
      const lock = lockFile(file, {}, (by) => taken.push(by));
      if ('heldBy' in lock) throw new Error('somebody holds a file that is new');
      const text = readFileSync(file, 'utf8');
      utimesSync(file, 1, 1);
      vi.advanceTimersByTime(GONE_AFTER_MS / 4);
      expect([Date.now() - statSync(file).mtimeMs < GONE_AFTER_MS / 2, readFileSync(file, 'utf8'), lock.takenBy()]).toEqual([
        true,
        text,
        undefined,
      ]);
      leftAlone(elsewhere, 0);
      vi.advanceTimersByTime(GONE_AFTER_MS);
      expect([taken.map(({ host }) => host), lock.takenBy()?.host]).toEqual([['other'], 'other']);
      lock.release();
      expect(runningHolder(file)?.host).toBe('other');
    } finally {
      vi.useRealTimers();
    }
  });

  it('is said not to be touched once, and again after it was', () => {
    const warned = vi.spyOn(process, 'emitWarning').mockReturnValue();
    const beat = beatOf(file);
    const times = (): number => (beat(), beat(), warned.mock.calls.length);
    expect([times(), warned.mock.lastCall]).toEqual([
      1,
      [expect.stringMatching(/by-the-lock.json cannot be touched \(ENOENT.* 3 minutes/u)],
    ]);
    lockFile(file);
    expect(times()).toBe(1);
    rmSync(file);
    expect(times()).toBe(2);
    warned.mockRestore();
  });

  it('says what it cannot tell, and stays held', () => {
    const lock = lockFile(file, { url: 'old' });
    if ('heldBy' in lock) throw new Error('somebody holds a file that is new');
    const told: Record<string, unknown> = { url: 'new' };
    told['itself'] = told;
    expect(lock.tell(told as { url: string })).toBeInstanceOf(Error);
    expect(runningHolder<{ url: string }>(file)?.url).toBe('old');
    expect(readdirSync(join(folder, 'made'))).toEqual(['by-the-lock.json']);
  });
});

it('macOS: a machine is known by the id of its hardware, and by none where it does not tell its boot', () => {
  const asked: string[] = [];
  const told = (boot: string, hardware: string) =>
    ofOthers((command) => (asked.push(command), command.endsWith('sysctl') ? boot : hardware));
  const hardware = '+-o J316  <class IOPlatformExpertDevice>\n    {\n      "IOPlatformUUID" = "F00D-1"\n    }\n';
  const { host, place, machine } = told('B007-1\n', hardware);
  expect([place, machine.startsWith(`${host} `), machine.includes('F00D')]).toEqual(['B007-1', true, false]);
  expect(told('B007-2\n', hardware).machine, 'after its next boot').toBe(machine);
  expect(told('B007-1\n', '')).toEqual({ host, place: 'B007-1', machine: '' });
  expect(told('', hardware)).toEqual({ host, place: host, machine: '' });
  expect(new Set(asked)).toEqual(new Set(['/usr/sbin/sysctl', '/usr/sbin/ioreg']));
});
