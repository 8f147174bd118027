/**
 * `docker compose up` as a new user runs it, from the files that git knows, with nothing set: built, started with two servers and four workers, trained
 * on, a worker killed, taken down. It says so where Docker is not.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { stripVTControlCharacters } from 'node:util';
import { findFreePort } from '@paceline/runtime';
import { afterAll, describe, expect, it } from 'vitest';

const root = join(import.meta.dirname, '../..');
const UP_DEADLINE_MS = 20 * 60_000;
const TRAIN_DEADLINE_MS = 5 * 60_000;

const answers = (...words: string[]): boolean => spawnSync('docker', words, { stdio: 'ignore', timeout: 20_000 }).status === 0;
const why = !answers('info')
  ? 'not run: no Docker daemon answers here'
  : answers('compose', 'version')
    ? undefined
    : 'not run: Docker has no compose here';
if (why) console.log(`docker compose: ${why}`);

describe.skipIf(why !== undefined)(`docker compose up (${why ?? 'Docker is here'})`, () => {
  const folder = mkdtempSync(join(tmpdir(), 'paceline-compose-'));
  const project = `paceline-test-${process.pid}`;
  let port = 0;
  const compose = (words: string[], timeoutMs = 120_000): string =>
    execFileSync('docker', ['compose', '--project-name', project, ...words], {
      cwd: folder,
      encoding: 'utf8',
      timeout: timeoutMs,
      env: { ...process.env, PACELINE_PORT: String(port) },
      stdio: ['ignore', 'pipe', 'inherit'],
    });

  afterAll(() => {
    try {
      compose(['down', '--volumes', '--timeout', '5']);
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });

  it(
    'trains on two servers with nothing set, and goes on when a worker is killed',
    async () => {
      port = await findFreePort();
      const tracked = execFileSync('git', ['ls-files', '-z', '--cached', '--others', '--exclude-standard'], {
        cwd: root,
        encoding: 'utf8',
      });
      for (const file of tracked.split('\0').filter(Boolean)) cpSync(join(root, file), join(folder, file), { recursive: true });
      compose(['up', '--detach', '--wait', '--scale', 'ps=2', '--scale', 'worker=4'], UP_DEADLINE_MS);

      // Compose 2.26 begins each line with an escape sequence.
      const said = stripVTControlCharacters(compose(['logs', '--no-log-prefix', 'secrets']));
      const url = `http://127.0.0.1:${port}`;
      expect(said).toContain(url);
      const key = /^ {2}(pcl_\S+)$/mu.exec(said)![1]!;
      const train = spawnSync(
        process.execPath,
        [join(root, 'apps/cli/bin/paceline.mjs'), 'train', '--epochs', '2', '--servers', '2', '--replicas', '4', '--detach', '--json'],
        { encoding: 'utf8', env: { ...process.env, PACELINE_URL: url, PACELINE_API_KEY: key } },
      );
      expect(train.status, train.stderr).toBe(0);
      const id = /[0-9a-f]{8}-[0-9a-f-]{27}/u.exec(train.stdout)![0];
      const status = async (): Promise<{ status: string; statusReason: string }> =>
        (await fetch(`${url}/api/v1/runs/${id}`, { headers: { authorization: `Bearer ${key}` } })).json() as never;
      await expect.poll(async () => (await status()).status, { timeout: 60_000 }).toBe('RUNNING');
      const worker = compose(['ps', '--quiet', 'worker']).trim().split('\n')[0]!;
      execFileSync('docker', ['kill', worker]);
      await expect.poll(async () => (await status()).status, { timeout: TRAIN_DEADLINE_MS }).toBe('SUCCEEDED');
      // Training traffic stays on its network: a server listens nowhere else.
      const listening = compose(['exec', '-T', 'ps', 'sh', '-c', 'cat /proc/net/tcp']);
      expect(listening).toMatch(/: [0-9A-F]{8}:1068 00000000:0000 0A/u);
      expect(listening).not.toMatch(/: 00000000:1068 /u);
    },
    UP_DEADLINE_MS + TRAIN_DEADLINE_MS,
  );
});
