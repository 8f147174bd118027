import { beforeEach, expect, test, vi } from 'vitest';
import { familyMs } from '../../bench/thread-times.mjs';

/** The process 1 with its child 2, in place of /proc. */
const proc = vi.hoisted(() => ({ files: new Map<string, string>(), failures: 0, onFailure: (): void => undefined }));
vi.mock('node:fs', () => {
  const below = (path: string): string[] => [...proc.files.keys()].filter((file) => file.startsWith(`${path}/`));
  return {
    existsSync: (path: string): boolean => below(path).length > 0,
    readdirSync: (path: string): string[] => {
      const files = below(path);
      if (files.length === 0) throw new Error(`ENOENT: ${path}`);
      return [...new Set(files.map((file) => file.slice(path.length + 1).split('/')[0]!))];
    },
    readFileSync: (path: string): string => {
      const text = proc.files.get(path);
      if (text === undefined) throw new Error(`ENOENT: ${path}`);
      if (path === '/proc/2/task/2/schedstat' && proc.failures-- > 0) {
        proc.onFailure();
        throw new Error(`ESRCH: ${path}`);
      }
      return text;
    },
  };
});

beforeEach(() => {
  proc.files.clear();
  for (const [pid, ms, children] of [
    [1, 100, '2 '],
    [2, 30, ''],
  ] as const) {
    proc.files.set(`/proc/${pid}/task/${pid}/schedstat`, `${ms * 1e6} 0 1`);
    proc.files.set(`/proc/${pid}/task/${pid}/children`, children);
    proc.files.set(`/proc/${pid}/stat`, `${pid} (sh) S ${Array.from({ length: 50 }, () => 0).join(' ')}`);
  }
  [proc.failures, proc.onFailure] = [0, () => undefined];
});

test('a child whose threads could not be read is read again, and counts as not known where that fails too', () => {
  expect(familyMs(1)).toBe(130);
  proc.failures = 2;
  expect(familyMs(1)).toBe(130);
  proc.failures = Infinity;
  expect(familyMs(1)).toBeNaN();
});

test('a child that has ended meanwhile counts nothing, and a process that is not there is not known', () => {
  proc.failures = 1;
  proc.onFailure = () => {
    for (const file of [...proc.files.keys()]) if (file.startsWith('/proc/2/')) proc.files.delete(file);
  };
  expect(familyMs(1)).toBe(100);
  expect(familyMs(3)).toBeNaN();
});
