/**
 * Processes that the api starts for heavy work on what teams have brought: forked for one piece of it, fed, listened to, and ended at their
 * deadline or when the api stops. They get no address of a database and no secret of the api.
 */
import { fork, type ChildProcess, type Serializable } from 'node:child_process';
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

export interface ChildWork<Message, Result> {
  /** Its module, below the folder of the sources. */
  readonly entry: string;
  readonly begin: Serializable;
  readonly heapMegabytes: number;
  readonly deadlineMs: number;
  /** For people. */
  readonly said: { readonly tooLong: string; readonly tooMuchMemory: string };
  onMessage(message: Message, child: Listened<Result>): void;
}

/** What a message of the process may lead to. */
interface Listened<Result> {
  done(result: Result): void;
  fail(message: string, isOfUser: boolean): void;
  send(message: Serializable): void;
}

/** The work in a process came to nothing. */
export class WorkFailedError extends Error {
  override readonly name = 'WorkFailedError';
  constructor(
    message: string,
    /** Its words are for the person who asked. */
    readonly isOfUser: boolean,
  ) {
    super(message);
  }
}

/** @throws WorkFailedError */
export function runInProcess<Message, Result>(work: ChildWork<Message, Result>, signal: AbortSignal): Promise<Result> {
  const child = forked(builtEntry(work.entry), work.heapMegabytes);
  return new Promise((resolve, reject) => {
    const end = (act: () => void): void => {
      clearTimeout(timer);
      signal.removeEventListener('abort', abort);
      child.removeAllListeners('message');
      child.kill('SIGKILL');
      act();
    };
    const fail = (message: string, isOfUser: boolean): void => end(() => reject(new WorkFailedError(message, isOfUser)));
    const abort = (): void => fail('the api was stopped', false);
    const timer = setTimeout(() => fail(work.said.tooLong, true), work.deadlineMs);
    const send = (message: Serializable): void => void (child.connected && child.send(message));
    const listened: Listened<Result> = { done: (result) => end(() => resolve(result)), fail, send };
    child.on('message', (message) => work.onMessage(message as Message, listened));
    child.once('error', (error) => fail(error.message, false));
    child.once('exit', (code, killedBy) => {
      const isMemory = endedForMemory(code, killedBy);
      fail(isMemory ? work.said.tooMuchMemory : `its process ended (${killedBy ?? `status ${code}`})`, isMemory);
    });
    signal.addEventListener('abort', abort, { once: true });
    if (signal.aborted) return abort();
    send(work.begin);
  });
}

/** @param file its module, compiled */
export function forked(file: string, heapMegabytes: number): ChildProcess {
  return fork(file, {
    execArgv: [`--max-old-space-size=${heapMegabytes}`],
    env: childEnvironment(),
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    serialization: 'advanced',
  });
}

/** V8 aborts a process whose heap is full. */
export const endedForMemory = (code: number | null, killedBy: NodeJS.Signals | null): boolean => killedBy === 'SIGABRT' || code === 134;

/** The store may need credentials. */
function childEnvironment(): NodeJS.ProcessEnv {
  const passed = /^(PATH|HOME|TMPDIR|LANG|LC_ALL|TZ|NODE_ENV|NODE_EXTRA_CA_CERTS|NODE_OPTIONS|HTTPS?_PROXY|NO_PROXY|AWS_.*)$/;
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => passed.test(name)));
}

/** Processes run JavaScript: when the api is run from its sources (tests), the built file is taken. @param name below the folder of the sources */
function builtEntry(name: string): string {
  const beside = new URL(`./${name}`, import.meta.url);
  return fileURLToPath(existsSync(beside) ? beside : new URL(`../dist/${name}`, import.meta.url));
}
