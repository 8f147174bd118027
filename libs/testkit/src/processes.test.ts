import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { endInTime } from './processes.js';

const children: ChildProcess[] = [];
const folder = mkdtempSync(join(tmpdir(), 'paceline-test-processes-'));
afterEach(() => {
  for (const child of children.splice(0)) child.kill('SIGKILL');
  rmSync(folder, { recursive: true, force: true });
});

test('a process that does not hear its signal is killed at the deadline, and the error says which one and shows its log', async () => {
  const child = spawn(process.execPath, ['-e', "process.on('SIGTERM', () => {}); setInterval(() => {}, 1000); console.log('up')"]);
  children.push(child);
  await once(child.stdout, 'data');
  const logFile = join(folder, 'worker-1.log');
  writeFileSync(logFile, 'it holds on to a seat\n');
  await expect(endInTime({ app: 'worker', child, logFile }, 'SIGTERM', 50)).rejects.toThrow(
    new RegExp(`worker \\(process ${child.pid}\\) did not end within 50 ms of SIGTERM and was killed.*\nit holds on to a seat`),
  );
  expect(child.signalCode).toBe('SIGKILL');
  await endInTime({ app: 'worker', child, logFile }, 'SIGTERM', 50); // it is gone already
});
