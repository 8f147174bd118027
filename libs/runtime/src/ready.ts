/**
 * How a process tells whoever started it that it can be used: one line on stdout, `PACELINE_READY {json}`.
 * Nothing else is written to stdout by the services, so a launcher needs no port scan and no log parsing.
 */
import { writeSync } from 'node:fs';
import type { ChildProcess } from 'node:child_process';
import { UserError } from './user-error.js';

const PREFIX = 'PACELINE_READY ';
const MAX_LINE_CHARACTERS = 64 * 1024;

export interface ReadyInfo {
  readonly role: string;
  readonly id: string;
  readonly [key: string]: unknown;
}

let announced = false;

/** Prints the ready line. @throws Error when called twice: a process becomes ready once */
export function announceReady(info: ReadyInfo): void {
  if (announced) throw new Error('announceReady was called twice');
  announced = true;
  const line = `${PREFIX}${JSON.stringify(info)}\n`;
  // Synchronous: a process that exits right afterwards has still said it.
  try {
    writeSync(1, line);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EPIPE') throw error;
  }
}

/** Code START_FAILED (the process ended first, exit 70 or its own) or START_TIMEOUT (exit 75). */
export class StartError extends UserError {
  override readonly name = 'StartError';
  /** Exit code of the process, null while it lives or when a signal ended it. */
  readonly childExitCode: number | null;

  constructor(code: 'START_FAILED' | 'START_TIMEOUT', message: string, childExitCode: number | null) {
    super(code, message, { exit: code === 'START_TIMEOUT' ? 'temporary' : 'unavailable' });
    this.childExitCode = childExitCode;
  }
}

/**
 * Waits for the ready line of a child whose stdout is a pipe; later output is drained and dropped.
 * @throws StartError when the child ends first or the deadline passes; the child is left to the caller
 */
export function waitForReady(child: ChildProcess, deadlineMs: number, name = `process ${child.pid ?? '?'}`): Promise<ReadyInfo> {
  const { stdout } = child;
  if (!stdout) throw new Error('waitForReady needs a child with stdout: "pipe"');
  return new Promise((resolve, reject) => {
    let pending = '';
    const settle = (act: () => void): void => {
      clearTimeout(timer);
      stdout.off('data', onData);
      child.off('exit', onExit);
      child.off('error', onError);
      stdout.resume();
      act();
    };
    const onData = (chunk: Buffer): void => {
      pending += chunk.toString('utf8');
      for (let end = pending.indexOf('\n'); end >= 0; end = pending.indexOf('\n')) {
        const line = pending.slice(0, end);
        pending = pending.slice(end + 1);
        if (!line.startsWith(PREFIX)) continue;
        const info = parseReady(line);
        return settle(() => (info ? resolve(info) : reject(new StartError('START_FAILED', `${name} printed a broken ready line`, null))));
      }
      if (pending.length > MAX_LINE_CHARACTERS) pending = pending.slice(-MAX_LINE_CHARACTERS);
    };
    const onExit = (code: number | null, signal: NodeJS.Signals | null): void =>
      settle(() => reject(new StartError('START_FAILED', `${name} ended before it was ready (${signal ?? `exit code ${code}`})`, code)));
    const onError = (error: Error): void =>
      settle(() => reject(new StartError('START_FAILED', `${name} could not be started: ${error.message}`, null)));
    const timer = setTimeout(
      () => settle(() => reject(new StartError('START_TIMEOUT', `${name} was not ready after ${deadlineMs} ms`, null))),
      deadlineMs,
    );
    stdout.on('data', onData);
    child.once('exit', onExit);
    child.once('error', onError);
    if (child.exitCode !== null || child.signalCode !== null) onExit(child.exitCode, child.signalCode);
  });
}

function parseReady(line: string): ReadyInfo | undefined {
  try {
    const info: unknown = JSON.parse(line.slice(PREFIX.length));
    const { role, id } = (info ?? {}) as Record<string, unknown>;
    return typeof role === 'string' && typeof id === 'string' ? (info as ReadyInfo) : undefined;
  } catch {
    return undefined; // reported by the caller as a broken ready line
  }
}
