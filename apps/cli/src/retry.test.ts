import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Configuration } from './configuration.js';
import { retryOptions } from './retry.js';
import type { Terminal } from './terminal/terminal.js';

let home: string;
beforeAll(() => void (home = mkdtempSync(join(tmpdir(), 'paceline-retry-'))));
afterAll(() => rmSync(home, { recursive: true, force: true }));

function waitsMs(url: string, urlFrom: Configuration['urlFrom'], env: NodeJS.ProcessEnv = {}): number {
  const terminal = { env: { ...env, PACELINE_HOME: home } } as unknown as Terminal;
  return retryOptions({ apiKey: 'k', url, urlFrom } as Configuration & { url: string }, terminal).forMs;
}

test('a local stack that does not run is not waited for; any other address is', () => {
  expect(waitsMs('http://127.0.0.1:4100', 'file')).toBe(0);
  expect(waitsMs('http://127.0.0.1:4100', 'PACELINE_URL')).toBe(15_000);
  expect(waitsMs('https://paceline.example.org', 'file')).toBe(15_000);
  expect(waitsMs('http://127.0.0.1:4100', 'file', { PACELINE_RETRY_SECONDS: '3' })).toBe(3_000);
});
