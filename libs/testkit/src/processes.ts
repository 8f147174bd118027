/** Worker and parameter-server processes of a test: started from the build, ended by pid whatever happens. */
import { spawn, type ChildProcess } from 'node:child_process';
import { createWriteStream, readFileSync } from 'node:fs';
import path from 'node:path';
import { endProcess, waitForReady, type ReadyInfo } from '@paceline/runtime';
import { patient } from './patience.js';

const APPS = new URL('../../../apps/', import.meta.url);
const READY_DEADLINE_MS = patient(60_000);
/** Longer than any process takes for what it still has in hand when it is told to end. */
const END_DEADLINE_MS = patient(20_000);

export interface TestProcess {
  readonly app: 'api' | 'ps' | 'worker';
  readonly child: ChildProcess;
  readonly ready: ReadyInfo;
  readonly logFile: string;
  /** Ends it with a signal and waits until it is gone. @throws Error when it had to be killed because the signal did not end it in time */
  kill(signal: NodeJS.Signals): Promise<void>;
}

let number = 0;

/** What is planted into a process reaches the packages that it loads, which those of a bundle are not. */
function mainOf(app: TestProcess['app'], env: Readonly<Record<string, string>>): string {
  const isPlanted = env['NODE_OPTIONS']?.includes('--import') ?? false;
  return new URL(`${app}/dist/${isPlanted ? 'main.js' : 'bundle/main.js'}`, APPS).pathname;
}

/** Starts the built process of an app with exactly `env` (plus PATH and HOME) and waits for its ready line. */
export async function startProcess(app: TestProcess['app'], env: Readonly<Record<string, string>>, folder: string): Promise<TestProcess> {
  const logFile = path.join(folder, `${app}-${++number}.log`);
  const child = spawn(process.execPath, [mainOf(app, env)], {
    env: { PATH: process.env['PATH'] ?? '', HOME: process.env['HOME'] ?? '', PACELINE_PARENT_PID: String(process.pid), ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  child.stderr!.pipe(createWriteStream(logFile));
  try {
    const ready = await waitForReady(child, READY_DEADLINE_MS, app);
    return {
      app,
      child,
      ready,
      logFile,
      kill: (signal) => endInTime({ app, child, logFile }, signal),
    };
  } catch (error) {
    await endProcess(child, { deadlineMs: 0 });
    throw error;
  }
}

/** @throws Error with the end of its log when the signal did not end it in time: it is killed then */
export async function endInTime(
  { app, child, logFile }: Pick<TestProcess, 'child' | 'logFile'> & { readonly app: string },
  signal: NodeJS.Signals,
  deadlineMs = END_DEADLINE_MS,
): Promise<void> {
  if (await endProcess(child, { signal, deadlineMs })) return;
  const log = readFileSync(logFile, 'utf8').slice(-2_000);
  throw new Error(
    `${app} (process ${child.pid}) did not end within ${deadlineMs} ms of ${signal} and was killed; its log ends with:\n${log}`,
  );
}
