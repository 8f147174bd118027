/** So many at once, so many waiting in line, and a limit on the wait: what keeps one kind of work from taking all of something. */
export interface TurnLimits {
  readonly atOnce: number;
  readonly waiting: number;
  readonly waitMs: number;
}

export class Turns {
  private running = 0;
  private readonly line: { begin: () => void; timer: NodeJS.Timeout }[] = [];

  /** @param refusal what is thrown when the line is full, or the wait too long */
  constructor(
    private readonly limits: TurnLimits,
    private readonly refusal: () => Error,
  ) {}

  get isIdle(): boolean {
    return this.running === 0 && this.line.length === 0;
  }

  async run<T>(work: () => Promise<T>): Promise<T> {
    if (this.running >= this.limits.atOnce) await this.turn();
    else this.running++;
    try {
      return await work();
    } finally {
      // Whoever is next takes the place over.
      const next = this.line.shift();
      if (next) next.begin();
      else this.running--;
    }
  }

  private turn(): Promise<void> {
    if (this.line.length >= this.limits.waiting) throw this.refusal();
    return new Promise((resolve, reject) => {
      const entry = {
        begin: () => {
          clearTimeout(entry.timer);
          resolve();
        },
        timer: setTimeout(() => {
          this.line.splice(this.line.indexOf(entry), 1);
          reject(this.refusal());
        }, this.limits.waitMs),
      };
      this.line.push(entry);
    });
  }
}
