/** Ready line, shutdown, orphan guard and supervision, each with real processes that run the built package. */
import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { endProcess, isAlive } from './end-process.js';
import { waitForReady } from './ready.js';
import { superviseChild, type SupervisedChild, type SupervisorEvent } from './supervisor.js';

const root = join(import.meta.dirname, '..');
const dist = JSON.stringify(join(root, 'dist/index.js'));
const temp = mkdtempSync(join(tmpdir(), 'paceline-processes-'));
const children: ChildProcess[] = [];
const supervised: SupervisedChild[] = [];

function run(script: string, stdio: 'pipe' | 'ipc' = 'pipe', env: NodeJS.ProcessEnv = {}): ChildProcess {
  const child = spawn(process.execPath, ['--input-type=module', '-e', script], {
    stdio: ['ignore', 'pipe', 'pipe', ...(stdio === 'ipc' ? (['ipc'] as const) : [])],
    env: { ...process.env, ...env },
  });
  children.push(child);
  return child;
}

/** Says that something hangs, not that it is slow. */
const HANGS_MS = 60_000;

const exitOf = (child: ChildProcess): Promise<number | string | null> =>
  new Promise((done) => child.once('exit', (code, signal) => done(code ?? signal)));

async function until(what: string, check: () => boolean, deadlineMs = HANGS_MS): Promise<void> {
  const end = performance.now() + deadlineMs;
  while (!check()) {
    if (performance.now() > end) throw new Error(`waited ${deadlineMs} ms for: ${what}`);
    await sleep(20);
  }
}

beforeAll(() => execFileSync(process.execPath, [join(root, '../../node_modules/typescript-native/bin/tsc'), '-b', root]), 60_000);
afterEach(async () => {
  await Promise.all(supervised.splice(0).map((child) => child.stop()));
  for (const child of children.splice(0)) await endProcess(child, { signal: 'SIGKILL' });
});
afterAll(() => rmSync(temp, { recursive: true, force: true }));

describe('the ready line', () => {
  it('is found between other output', async () => {
    const child = run(
      `import { announceReady } from ${dist}; console.log('noise'); announceReady({ role: 'ps', id: 'p1', port: 7 }); setTimeout(() => {}, 60000)`,
    );
    expect(await waitForReady(child, HANGS_MS)).toEqual({ role: 'ps', id: 'p1', port: 7 });
  });

  it('fails when the process ends first, or not in time', async () => {
    await expect(waitForReady(run('process.exit(78)'), HANGS_MS, 'ps')).rejects.toMatchObject({
      code: 'START_FAILED',
      childExitCode: 78,
      message: expect.stringContaining('ps ended'),
    });
    await expect(waitForReady(run('setTimeout(() => {}, 60000)'), 300, 'ps')).rejects.toMatchObject({ code: 'START_TIMEOUT' });
  });
});

describe('shutdown', () => {
  const waiting = `import { announceReady, onShutdown } from ${dist};
    onShutdown(async (reason) => { console.error('ends'); await new Promise((r) => setTimeout(r, Number(process.env.TAKES))); console.error('ended by ' + reason); }, { deadlineMs: Number(process.env.DEADLINE ?? 500) });
    announceReady({ role: 'x', id: '1' }); setInterval(() => {}, 1000);
    if (process.env.TWICE) for (let i = 0; i < 2; i++) process.emit('SIGINT', 'SIGINT');`;

  it('runs the handler on SIGTERM and exits 0', async () => {
    const child = run(waiting, 'pipe', { TAKES: '50', DEADLINE: '60000' });
    await waitForReady(child, HANGS_MS);
    child.kill('SIGTERM');
    expect(await exitOf(child)).toBe(0);
  });

  it('exits with 70 when the handler passes its deadline, and at once on a second signal', async () => {
    const slow = run(waiting, 'pipe', { TAKES: '60000' });
    await waitForReady(slow, HANGS_MS);
    slow.kill('SIGTERM');
    expect(await exitOf(slow)).toBe(70);
    const twice = run(waiting, 'pipe', { TAKES: '60000', DEADLINE: '60000' });
    await waitForReady(twice, HANGS_MS);
    const hasBegun = new Promise((done) => twice.stderr!.once('data', done));
    twice.kill('SIGINT');
    await hasBegun;
    await sleep(400); // longer than what comes from the terminal and from npm is apart
    twice.kill('SIGINT');
    expect(await exitOf(twice)).toBe(130);
  });

  it('stays when a terminal closes that it does not use, as under nohup', async () => {
    const child = run(waiting, 'pipe', { TAKES: '50', DEADLINE: '60000' });
    await waitForReady(child, HANGS_MS);
    child.kill('SIGHUP');
    await sleep(200);
    expect(isAlive(child.pid!)).toBe(true);
    child.kill('SIGTERM');
    expect(await exitOf(child)).toBe(0);
  });

  it('takes the Ctrl-C that comes from the terminal and from npm as one', async () => {
    const child = run(waiting, 'pipe', { TAKES: '400', DEADLINE: '60000', TWICE: 'yes' });
    expect(await exitOf(child)).toBe(0);
  });

  it('ends the process when its launcher is SIGKILLed, with PACELINE_PARENT_PID or an IPC channel', async () => {
    for (const stdio of [`['ignore', 'pipe', 'inherit']`, `['ignore', 'pipe', 'inherit', 'ipc']`]) {
      const watch = stdio.includes('ipc') ? '' : ', PACELINE_PARENT_PID: String(process.pid)';
      const launcher = run(`import { spawn } from 'node:child_process'; import { waitForReady } from ${dist};
        const child = spawn(process.execPath, ['--input-type=module', '-e', ${JSON.stringify(waiting)}], { stdio: ${stdio}, detached: true, env: { ...process.env, TAKES: '0'${watch} } });
        await waitForReady(child, ${HANGS_MS}); process.stdout.write('PACELINE_READY ' + JSON.stringify({ role: 'launcher', id: String(child.pid) }) + '\\n');`);
      const pid = Number((await waitForReady(launcher, HANGS_MS)).id);
      expect(isAlive(pid)).toBe(true);
      launcher.kill('SIGKILL');
      await until('the orphan to end', () => !isAlive(pid));
    }
  });
});

describe('the orphan guard', () => {
  it('ends processes that watch nothing, and removes folders, when the launcher is SIGKILLed', async () => {
    const folder = join(temp, 'with blanks and "quotes"');
    mkdirSync(folder);
    const launcher = run(`import { spawn } from 'node:child_process'; import { guardProcess, guardDirectory } from ${dist};
      const stays = spawn('sleep', ['300'], { detached: true, stdio: 'ignore' }); const released = spawn('sleep', ['300'], { detached: true, stdio: 'ignore' });
      guardDirectory(${JSON.stringify(folder)}); guardProcess(stays.pid); guardProcess(released.pid)();
      process.stdout.write('PACELINE_READY ' + JSON.stringify({ role: 'launcher', id: stays.pid + ' ' + released.pid }) + '\\n'); setInterval(() => {}, 1000);`);
    const [stays, released] = (await waitForReady(launcher, HANGS_MS)).id.split(' ').map(Number) as [number, number];
    await sleep(100);
    launcher.kill('SIGKILL');
    await until('the guarded process to end', () => !isAlive(stays));
    await until('the guarded folder to go', () => !existsSync(folder));
    expect(isAlive(released)).toBe(true);
    await endProcess(released);
  });
});

describe('supervision', () => {
  const ready = `import { announceReady, onShutdown } from ${dist}; onShutdown(() => {}); announceReady({ role: 'x', id: String(process.pid) }); setInterval(() => {}, 1000);`;
  const start = (name: string, script: string, restarts: number, events: SupervisorEvent[] = []): SupervisedChild => {
    const child = superviseChild({
      name,
      command: process.execPath,
      args: ['--input-type=module', '-e', script],
      env: process.env,
      logFile: join(temp, `${name}.log`),
      restart: { firstDelayMs: 10, maxDelayMs: 40, settledMs: 60_000, restarts, windowMs: 60_000 },
      onEvent: (event) => events.push(event),
    });
    supervised.push(child);
    return child;
  };

  it('starts a process again at once when it is asked to, while one runs and while it waits, and spends no budget', async () => {
    const events: SupervisorEvent[] = [];
    const child = start('restarted', ready, 0, events);
    const first = (await child.ready).id;
    await child.restart();
    await until('the next one to be ready', () => child.state() === 'READY' && child.info()!.id !== first);
    expect([child.restarts(), events.map(({ state }) => state)]).toEqual([0, ['STARTING', 'READY', 'STARTING', 'READY']]);
    const waiting = start('waits', 'process.exit(3)', 3);
    await until('it to have ended', () => waiting.restarts() > 0);
    await waiting.restart();
    await expect(waiting.ready).rejects.toMatchObject({ code: 'START_FAILED' });
  });

  it('starts a killed process again and leaves nothing after stop', async () => {
    const events: SupervisorEvent[] = [];
    const child = start('worker', ready, 5, events);
    const first = Number((await child.ready).id);
    process.kill(first, 'SIGKILL');
    await until('another process to be ready', () => child.state() === 'READY' && child.pid() !== first);
    expect(child.restarts()).toBe(1);
    const second = child.pid()!;
    await child.stop();
    expect(isAlive(second)).toBe(false);
    expect(events.map((event) => event.state)).toEqual(['STARTING', 'READY', 'BACKOFF', 'STARTING', 'READY', 'STOPPING', 'STOPPED']);
    expect(events[2]!.message).toBe('ended by SIGKILL; starting again in 10 ms');
  });

  it('gives up when the budget is used, with the last lines of its log', async () => {
    const child = start('ps', `console.error('cannot bind'); process.exit(1)`, 2);
    await expect(child.ready).rejects.toThrow(/2 restarts in 60 s are used up\n[^]*cannot bind/);
    expect(child.state()).toBe('FAILED');
    expect(child.restarts()).toBe(2);
    expect(readFileSync(child.logFile, 'utf8').match(/cannot bind/g)).toHaveLength(3);
  });

  it('starts a process that ends by its own plan again, at once and out of no budget for crashes, but not ever faster', async () => {
    const events: SupervisorEvent[] = [];
    const outgrown = ready.replace('setInterval(() => {}, 1000)', 'setTimeout(() => process.exit(71), 20)');
    const child = start('worker', outgrown, 2, events);
    await until('five starts', () => child.restarts() >= 5, 20_000);
    expect(child.state()).not.toBe('FAILED');
    const pauses = events.filter(({ state }) => state === 'BACKOFF').map(({ message }) => message.replace(/.*; /, ''));
    expect(pauses.slice(0, 4)).toEqual([10, 10, 40, 40].map((ms) => `starting again in ${ms} ms`));
  });

  it('kills without asking first, also what has been asked and takes its time', async () => {
    const stays = ready.replace('onShutdown(() => {})', "process.on('SIGTERM', () => console.error('asked'))");
    const [asked, running] = [start('asked', stays, 3), start('running', stays, 3)];
    await Promise.all([asked.ready, running.ready]);
    const stopped = asked.stop();
    const log = (name: string): string => readFileSync(join(temp, `${name}.log`), 'utf8');
    await until('it to be asked', () => log('asked') !== '');
    await Promise.all([asked.kill(), running.kill(), stopped]);
    expect([asked.state(), running.state(), running.pid(), log('running')]).toEqual(['STOPPED', 'STOPPED', undefined, '']);
  });

  it('takes a log that cannot be opened for a start that failed, and goes on whatever its listener throws', async () => {
    writeFileSync(join(temp, 'no-folder'), '');
    const told = vi.spyOn(process, 'emitWarning').mockReturnValue();
    const child = start('no-folder/ps', ready, 2, {
      push: () => {
        throw new Error('no room to tell it');
      },
    } as unknown as SupervisorEvent[]);
    await expect(child.ready).rejects.toThrow(/could not be started: E[^]*; 2 restarts in 60 s are used up/);
    expect([child.state(), child.restarts(), told.mock.lastCall]).toEqual([
      'FAILED',
      2,
      [expect.objectContaining({ message: 'no room to tell it' })],
    ]);
    told.mockRestore();
  });

  it('takes the same code from a process that was never ready for a crash', async () => {
    const child = start('worker', 'process.exit(71)', 2);
    expect((await child.failed).message).toMatch(/2 restarts in 60 s are used up/);
  });

  it('does not try a mistake in the configuration again', async () => {
    const child = start('api', 'process.exit(78)', 5);
    expect((await child.failed).message).toMatch(/code 78; this is a mistake in its configuration/);
    expect(child.restarts()).toBe(0);
  });
});
