/** Turns that are fair: a few work at once, and of those that wait the teams take turns, whoever of a team came first before its others. */
import { Fault } from './fault.js';

export interface TeamTurnLimits {
  readonly atOnce: number;
  readonly waiting: number;
  readonly waitingOfTeam: number;
  readonly waitMs: number;
}

const RETRY_AFTER_SECONDS = 5;

export class TeamTurns {
  private running = 0;
  private waiting = 0;
  /** In the order in which the teams are served next. */
  private readonly lines = new Map<string, (() => void)[]>();

  /** @param what is under way, for the refusal: `Vocabularies of other datasets are being made.` */
  constructor(
    private readonly limits: TeamTurnLimits,
    private readonly what: string,
  ) {}

  /** @throws Fault TOO_BUSY when too many wait, or it waited for too long: nothing was done */
  async run<T>(teamId: string, work: () => Promise<T>): Promise<T> {
    if (this.running >= this.limits.atOnce) await this.turn(teamId);
    else this.running++;
    try {
      return await work();
    } finally {
      this.next();
    }
  }

  private turn(teamId: string): Promise<void> {
    const line = this.lines.get(teamId) ?? [];
    if (this.waiting >= this.limits.waiting || line.length >= this.limits.waitingOfTeam) throw this.busy();
    return new Promise((resolve, reject) => {
      const begin = (): void => {
        clearTimeout(timer);
        this.waiting--;
        resolve();
      };
      const timer = setTimeout(() => {
        line.splice(line.indexOf(begin), 1);
        if (line.length === 0) this.lines.delete(teamId);
        this.waiting--;
        reject(this.busy());
      }, this.limits.waitMs);
      line.push(begin);
      this.waiting++;
      this.lines.set(teamId, line);
    });
  }

  /** Whoever is next takes the place over; its team goes to the end of the line. */
  private next(): void {
    const [first] = this.lines;
    if (!first) return void this.running--;
    const [teamId, line] = first;
    this.lines.delete(teamId);
    const begin = line.shift()!;
    if (line.length > 0) this.lines.set(teamId, line);
    begin();
  }

  private busy(): Fault {
    return new Fault('TOO_BUSY', `${this.what} Nothing was done; try again shortly.`, RETRY_AFTER_SECONDS);
  }
}
