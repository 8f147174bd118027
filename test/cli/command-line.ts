/** Runs the built `paceline` in a home of its own, and knows every process that came of it. */
import { spawn, type ChildProcess } from 'node:child_process';
import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { isAlive } from '@paceline/runtime';
import { expect } from 'vitest';
import { patient } from '@paceline/testkit';

const ROOT = join(import.meta.dirname, '../..');
const PROGRAM = join(ROOT, 'apps/cli/bin/paceline.mjs');

export interface Finished {
  /** Exit code, or the signal that ended it. */
  readonly exit: number | NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface Running {
  readonly child: ChildProcess;
  readonly finished: Promise<Finished>;
  stdout(): string;
  stderr(): string;
}

export interface Home {
  readonly folder: string;
  start(args: readonly string[], env?: NodeJS.ProcessEnv): Running;
  run(args: readonly string[], env?: NodeJS.ProcessEnv): Promise<Finished>;
  /** What a command that must succeed answers with `--json`. */
  json<T>(...args: readonly string[]): Promise<T>;
  /** A file of the repository as a program, e.g. `tools/demo.mjs`. */
  startTool(tool: string, args: readonly string[], env?: NodeJS.ProcessEnv): Running;
  /** Ends what still runs, by pid, and removes the folder. */
  dispose(): Promise<void>;
}

export function createHome(): Home {
  const folder = mkdtempSync(join(tmpdir(), 'paceline-cli-'));
  chmodSync(folder, 0o711); // PostgreSQL's user must pass through when the tests run as root
  const started: Running[] = [];
  const launch = (file: string, args: readonly string[], env: NodeJS.ProcessEnv = {}): Running => {
    const { PATH, HOME } = process.env;
    const child = spawn(process.execPath, [file, ...args], {
      cwd: folder,
      env: { PATH, HOME, LANG: 'C.UTF-8', PACELINE_HOME: folder, TMPDIR: folder, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let stdout = '';
    let stderr = '';
    child.stdout.on('data', (chunk: Buffer) => (stdout += chunk.toString()));
    child.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()));
    const finished = new Promise<Finished>((done) => child.once('close', (code, signal) => done({ exit: code ?? signal, stdout, stderr })));
    const running = { child, finished, stdout: () => stdout, stderr: () => stderr };
    started.push(running);
    return running;
  };
  return {
    folder,
    start: (args, env) => launch(PROGRAM, args, env),
    run: (args, env) => launch(PROGRAM, args, env).finished,
    async json<T>(...args: readonly string[]) {
      const { exit, stdout, stderr } = await launch(PROGRAM, [...args, '--json']).finished;
      expect(exit, stderr).toBe(0);
      return JSON.parse(stdout) as T;
    },
    startTool: (tool, args, env) => launch(join(ROOT, tool), args, env),
    async dispose() {
      for (const { child, finished } of started) {
        if (child.exitCode !== null || child.signalCode !== null) continue;
        child.kill('SIGTERM');
        const ended = await Promise.race([finished, sleep(30_000, undefined, { ref: false })]);
        if (!ended) child.kill('SIGKILL');
      }
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** Asks again and again; what a command has to be started for is asked less often, or the asking would take the processor from what is waited for. */
export async function until<T>(what: string, check: () => T | Promise<T>, deadlineMs = 30_000): Promise<NonNullable<T>> {
  const end = performance.now() + patient(deadlineMs);
  for (;;) {
    const from = performance.now();
    const value = await check();
    if (value) return value;
    if (performance.now() > end) throw new Error(`waited ${deadlineMs} ms for: ${what}`);
    await sleep(Math.min(1_000, Math.max(50, 3 * (performance.now() - from))));
  }
}

/** Every process that descends from `pid`, itself included. Those in sessions of their own are found too, as long as their parents live. */
export function familyOf(pid: number): number[] {
  const children = new Map<number, number[]>();
  for (const entry of readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
    const parent = parentOf(entry);
    if (parent !== undefined) children.set(parent, [...(children.get(parent) ?? []), Number(entry)]);
  }
  const family = [pid];
  for (let at = 0; at < family.length; at++) family.push(...(children.get(family[at]!) ?? []));
  return family;
}

function parentOf(pid: string): number | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1]);
  } catch {
    return undefined; // it ended while we looked
  }
}

export async function allGone(pids: readonly number[], deadlineMs = 20_000): Promise<void> {
  const left = (): string[] => pids.filter((pid) => isAlive(pid)).map((pid) => `${pid} ${commandOf(pid)}`);
  const end = performance.now() + patient(deadlineMs);
  while (left().length > 0) {
    if (performance.now() > end) throw new Error(`still running after ${deadlineMs} ms:\n${left().join('\n')}`);
    await sleep(50);
  }
}

export function commandOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ');
  } catch {
    return 'gone';
  }
}
