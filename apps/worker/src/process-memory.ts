/**
 * Whether this process still holds memory that nobody uses: looked at between two seats, when the compute thread has been ended and with it all
 * that its engine held. What remains then beyond the limit can only be given back by ending the process; its supervisor starts it again.
 * A library that an engine has loaded stays too (TensorFlow: hundreds of megabytes) and is no leak, so what remains after the first seat with an
 * engine is taken as it is; unless that seat has leaked.
 */
export interface ProcessMemoryOptions {
  readonly rssBytes: () => number;
  /** Collects the garbage of the main thread: arenas of the last seat among it. */
  readonly collect: () => void;
  /** Growth that is too much; 0: never. */
  readonly limitBytes: number;
}

export class ProcessMemory {
  /** The least that was in use between two seats, with the engines that were loaded. */
  private idleBytes: number;
  private readonly loaded = new Set<string>();

  constructor(private readonly options: ProcessMemoryOptions) {
    this.idleBytes = options.rssBytes();
  }

  /**
   * To be asked after each seat.
   * @param engine that the seat had
   * @param hasLeaked it was left for a leak
   * @returns the bytes that remain too many, undefined while they are not
   */
  outgrownBytes(engine: string, hasLeaked: boolean): number | undefined {
    const { rssBytes, collect, limitBytes } = this.options;
    let present = rssBytes();
    const isFirst = !this.loaded.has(engine);
    this.loaded.add(engine);
    if (isFirst && !hasLeaked) {
      this.idleBytes = Math.max(this.idleBytes, present);
      return undefined;
    }
    if (limitBytes > 0 && present - this.idleBytes >= limitBytes) {
      collect();
      present = rssBytes();
      if (present - this.idleBytes >= limitBytes) return present - this.idleBytes;
    }
    this.idleBytes = Math.min(this.idleBytes, present);
    return undefined;
  }
}
