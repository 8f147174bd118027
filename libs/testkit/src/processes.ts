/** Worker and parameter-server processes of a test: started from the build, ended by pid whatever happens. */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { createWriteStream } from 'node:fs';
import path from 'node:path';
import { endProcess, waitForReady, type ReadyInfo } from '@paceline/runtime';
import { patient } from './patience.js';

const APPS = new URL('../../../apps/', import.meta.url);
const READY_DEADLINE_MS = patient(60_000);

export interface TestProcess {
  readonly app: 'api' | 'ps' | 'worker';
  readonly child: ChildProcess;
  readonly ready: ReadyInfo;
  readonly logFile: string;
  /** Ends it with a signal and waits until it is gone. */
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
      async kill(signal) {
        if (child.exitCode !== null || child.signalCode !== null) return;
        const gone = once(child, 'exit');
        child.kill(signal);
        await gone;
      },
    };
  } catch (error) {
    await endProcess(child, { deadlineMs: 0 });
    throw error;
  }
}
