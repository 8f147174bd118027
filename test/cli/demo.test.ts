/** `npm run demo`, without npm and made short: what it prints, and that nothing is left, whatever ended it. A SIGKILL has test/soak/demo.test.ts. */
import { readdirSync } from 'node:fs';
import { EXIT } from '@paceline/runtime';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { allGone, commandOf, createHome, familyOf, until, type Home, type Running } from './command-line.js';

let home: Home;
beforeEach(() => {
  home = createHome();
});
afterEach(() => home.dispose());

/** Databases of the machine that must not be touched, and a client library's variables. */
const HOSTILE = {
  DATABASE_URL: 'postgresql://x:x@nowhere.invalid/x',
  REDIS_URL: 'redis://nowhere.invalid',
  PGHOST: 'nowhere.invalid',
  PACELINE_URL: 'http://nowhere.invalid',
  PACELINE_API_KEY: 'x',
};
const demo = (...args: string[]): Running => home.startTool('tools/demo.mjs', args, HOSTILE);
/** Of its temporary folders; the home itself is PACELINE_HOME. */
const leftFolders = (): string[] => readdirSync(home.folder).filter((name) => name.startsWith('paceline-'));
const isTraining = (running: Running) =>
  until('training to begin', () => /round [1-9]/.test(running.stderr()) || running.child.exitCode !== null, 100_000);

describe('the demo', () => {
  it('trains although a worker is killed, evaluates, prints one JSON line, stays up with --keep, and leaves nothing after Ctrl-C', async () => {
    const running = demo('--json', '--keep', '--epochs', '1', '--batch', '600', '--workers', '2', '--replicas', '2', '--seed', '5');
    await isTraining(running);
    const worker = familyOf(running.child.pid!).find((pid) => pid !== running.child.pid && commandOf(pid).includes('apps/worker/'))!;
    process.kill(worker, 'SIGKILL');
    await until('the result', () => /stays up at/.test(running.stderr()) || running.child.exitCode !== null, 90_000);
    const url = /stays up at (\S+)/.exec(running.stderr())?.[1];
    expect(url, running.stderr()).toBeDefined();
    expect((await fetch(`${url}/healthz`)).status).toBe(200);
    const family = familyOf(running.child.pid!);
    running.child.kill('SIGINT');
    const { exit, stdout, stderr } = await running.finished;
    expect(exit, stderr).toBe(0);
    expect(stdout.split('\n')).toHaveLength(2);
    expect(stderr).toContain('ended by SIGKILL; starting again');
    expect(JSON.parse(stdout)).toEqual({
      runId: expect.stringMatching(/^[0-9a-f-]{36}$/),
      accuracy: expect.any(Number),
      loss: expect.any(Number),
      rounds: 100,
      examplesPerSecond: expect.any(Number),
      workers: 2,
      replicas: 2,
      weightsSha256: expect.stringMatching(/^[0-9a-f]{64}$/),
    });
    expect((JSON.parse(stdout) as { accuracy: number }).accuracy).toBeGreaterThan(0.93);
    expect(stderr).toMatch(/dashboard (?<url>http:\/\/127\.0\.0\.1:\d+)\/#key=(?<key>pcl_[\w-]+) {2}\(signs in\) {2}key \k<key>\n/);
    expect(stderr).toContain('npm start');
    await allGone(family, 2000);
    expect(leftFolders()).toEqual([]);
  });

  it('leaves nothing after Ctrl-C while it is still starting', async () => {
    const running = demo();
    await until('it to start', () => running.stderr().includes('starting'));
    const family = familyOf(running.child.pid!);
    running.child.kill('SIGINT');
    expect((await running.finished).exit).toBe(EXIT.interrupted);
    await allGone(family);
    expect(leftFolders()).toEqual([]);
  });

  it('refuses impossible flags before anything is started', async () => {
    const mistakes = [
      [['--replicas', '0'], EXIT.usage, /--replicas "0"/],
      [['--batch', '3'], EXIT.badSpec, /globalBatch/],
      [['--model', 'resnet-9000'], EXIT.badSpec, /model/],
      [['--accumulate', '1000'], EXIT.badSpec, /accumulate/],
      [['--epochs', 'many'], EXIT.usage, /--epochs "many"/],
      [['--workers', '0'], EXIT.usage, /--workers "0"/],
      [['--wat'], EXIT.usage, /unknown option '--wat'/],
    ] as const;
    const results = await Promise.all(mistakes.map(([args]) => demo(...args).finished));
    mistakes.forEach(([, exit, message], i) => {
      expect(results[i]!.stderr).toMatch(message);
      expect(results[i]!.exit, results[i]!.stderr).toBe(exit);
    });
    expect(leftFolders()).toEqual([]);
  });
});
