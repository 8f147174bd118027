/**
 * Finds memory that this process holds for nobody. It is measured between two seats, when the compute thread has ended with everything that its engine
 * held. Memory beyond the limit that remains then can only be given back by ending the process; its supervisor starts it again.
 * A library that an engine has loaded stays too and is no leak: its code (TensorFlow: 300 MB) is not counted where the system can tell it apart, and the
 * memory after the first seat in which an engine started is the baseline, unless that seat has leaked.
 */
import { existsSync, readFileSync } from 'node:fs';

export interface ProcessMemoryOptions {
  /** Resident, and of this process alone. */
  readonly ownBytes: () => number;
  /** Collects the garbage of the main thread: arenas of the last seat among it. */
  readonly collect: () => void;
  /** Growth that is too much; 0: never. */
  readonly limitBytes: number;
}

export class ProcessMemory {
  /** The least that was in use between two seats, with the engines that were loaded. */
  private idleBytes: number;
  private readonly loaded = new Set<string>();
  /** Engines that started since the last question: any, and one that never did before. */
  private started = { any: false, isNew: false };

  constructor(private readonly options: ProcessMemoryOptions) {
    this.idleBytes = options.ownBytes();
  }

  /** An engine runs, with all that it loads; a seat may try several. */
  engineStarted(engine: string): void {
    this.started = { any: true, isNew: this.started.isNew || !this.loaded.has(engine) };
    this.loaded.add(engine);
  }

  /**
   * To be asked after each seat; one in which no engine started says nothing.
   * @param hasLeaked it was left for a leak
   * @returns the bytes that remain too many, undefined while they are not
   */
  outgrownBytes(hasLeaked: boolean): number | undefined {
    const { ownBytes, collect, limitBytes } = this.options;
    const { any, isNew } = this.started;
    this.started = { any: false, isNew: false };
    if (!any) return undefined;
    if (isNew && !hasLeaked) {
      collect(); // what the seat has left behind is no part of the engine
      this.idleBytes = Math.max(this.idleBytes, ownBytes());
      return undefined;
    }
    let present = ownBytes();
    if (limitBytes > 0 && present - this.idleBytes >= limitBytes) {
      collect();
      present = ownBytes();
      if (present - this.idleBytes >= limitBytes) return present - this.idleBytes;
    }
    this.idleBytes = Math.min(this.idleBytes, present);
    return undefined;
  }
}

const STATUS = '/proc/self/status';

/** Resident memory without pages of files such as libraries; outside of Linux those are included. */
export function ownBytes(): number {
  const kilobytes = existsSync(STATUS) ? /^RssAnon:\s+(\d+) kB$/m.exec(readFileSync(STATUS, 'latin1'))?.[1] : undefined;
  return kilobytes === undefined ? process.memoryUsage.rss() : Number(kilobytes) * 1024;
}
