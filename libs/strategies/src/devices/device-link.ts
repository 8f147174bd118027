/** The process of a device, as the compute thread that gives it its work has it. */
import { readFileSync } from 'node:fs';
import { TaskError, type Content, type Handler, type Peer, type Received } from '@paceline/collectives';
import type { DeviceInit } from '../threads/protocol.js';
import { tasksAt } from './device-place.js';
import { PROCESS, THREAD } from './messages.js';

/** The process has ended, is silent, or cannot compute any more. */
export class DeviceGone extends Error {
  override readonly name = 'DeviceGone';
  constructor(
    readonly device: string,
    message: string,
  ) {
    super(message);
  }
}

/** What a replica has failed with there. */
export class DeviceFailure extends Error {
  override readonly name = 'DeviceFailure';
  constructor(
    readonly replica: number | undefined,
    readonly layer: string | undefined,
    message: string,
  ) {
    super(message);
  }
}

/** An engine starts with the first model: longer than a step may take. */
export const LEAST_START_MS = 120_000;
const LOOK_MS = 250;

export class DeviceLink {
  private coming: Promise<Peer> | undefined;
  private readonly parameters = new Map<number, Uint8Array>();

  constructor(private readonly init: DeviceInit) {}

  get name(): string {
    return this.init.name;
  }

  /** What the process reads when its parameters are not those of a step. */
  serve(model: number, parameters: Uint8Array): void {
    this.parameters.set(model, parameters);
  }

  forget(model: number): void {
    this.parameters.delete(model);
  }

  /**
   * @param into where the parts of the answer go
   * @throws DeviceGone; TaskError with one of the codes that are given, which are answers of a process that goes on
   */
  async request(name: string, content: Content, options: RequestOptions = {}): Promise<Received> {
    const { into = [], answers = [], deadlineMs = this.init.deadlineMs } = options;
    try {
      const peer = await (this.coming ??= this.dialled());
      const received = await peer.request(name, content, { deadlineMs, into });
      this.init.traffic.set([peer.counters.sentBytes, peer.counters.receivedBytes]);
      return received;
    } catch (error) {
      if (error instanceof TaskError && answers.includes(error.code)) throw error;
      throw new DeviceGone(this.name, `device ${this.name} (process ${this.init.pid}): ${(error as Error).message}`);
    }
  }

  /** While a model is opened. */
  get startMs(): number {
    return Math.max(LEAST_START_MS, this.init.deadlineMs);
  }

  private async dialled(): Promise<Peer> {
    const end = new AbortController();
    const looks = setInterval(() => hasEnded(this.init.pid) && end.abort(), LOOK_MS);
    try {
      return await tasksAt(this.init, THREAD).dial(PROCESS, this.startMs, this.handler, undefined, end.signal);
    } catch (cause) {
      const why = end.signal.aborted ? 'it ended before it was ready' : `it was not ready within ${this.startMs} ms`;
      throw new Error(why, { cause });
    } finally {
      clearInterval(looks);
    }
  }

  private readonly handler: Handler = (name, { body }) => {
    const parameters = this.parameters.get((body as { readonly model: number }).model);
    if (name !== 'read' || !parameters) return Promise.reject(new TaskError('BAD_MESSAGE', `a program knows no request "${name}" for it`));
    return Promise.resolve({ parts: [parameters] });
  };
}

interface RequestOptions {
  readonly into?: readonly Uint8Array[];
  readonly answers?: readonly string[];
  readonly deadlineMs?: number;
}

/** Also of a process whose end its parent has not heard of: it blocks. */
function hasEnded(pid: number): boolean {
  try {
    process.kill(pid, 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'ESRCH';
  }
  if (process.platform !== 'linux') return false;
  try {
    return / Z /.test(readFileSync(`/proc/${pid}/stat`, 'latin1').replace(/^.*\)/s, ''));
  } catch {
    return true; // it has gone meanwhile
  }
}
