/**
 * Turns: so much of one kind is done at once, of one team and in all; some more may wait, and the rest is refused, so that one kind of work or one team
 * does not take all of something. Next is the team that has fewest turns; among equals they alternate, and within a team whoever came first is first.
 */
import { Fault } from './fault.js';

export interface TurnLimits {
  readonly atOnce?: number;
  readonly atOnceOfTeam?: number;
  /** By default nobody waits. */
  readonly waiting?: number;
  readonly waitingOfTeam?: number;
  readonly waitMs?: number;
}

type Release = () => void;
const NO_LIMIT = Number.POSITIVE_INFINITY;

export class Turns {
  private running = 0;
  private readonly runningOfTeam = new Map<string, number>();
  private waiting = 0;
  /** In the order in which the teams are served next. */
  private readonly lines = new Map<string, (() => void)[]>();

  /** @param refusal what is thrown when too much is under way; it is told whether that is the team's own */
  constructor(
    private readonly limits: TurnLimits,
    private readonly refusal: (isOwn: boolean) => Error,
  ) {}

  /** A turn at once. @returns what gives it back; more than once is fine @throws the refusal */
  hold(teamId: string): Release {
    if (!this.hasRoom(teamId)) throw this.refusal(!this.hasRoomOf(teamId));
    return this.begin(teamId);
  }

  /** @throws the refusal when too many wait, or it waited for too long: nothing was done */
  async run<T>(teamId: string, work: () => Promise<T>): Promise<T> {
    const release = this.hasRoom(teamId) ? this.begin(teamId) : await this.turn(teamId);
    try {
      return await work();
    } finally {
      release();
    }
  }

  private hasRoom(teamId: string): boolean {
    return this.running < (this.limits.atOnce ?? NO_LIMIT) && this.hasRoomOf(teamId);
  }

  private hasRoomOf(teamId: string): boolean {
    return (this.runningOfTeam.get(teamId) ?? 0) < (this.limits.atOnceOfTeam ?? NO_LIMIT);
  }

  private begin(teamId: string): Release {
    this.running++;
    this.runningOfTeam.set(teamId, (this.runningOfTeam.get(teamId) ?? 0) + 1);
    let isHeld = true;
    return () => {
      if (!isHeld) return;
      isHeld = false;
      this.running--;
      const left = this.runningOfTeam.get(teamId)! - 1;
      if (left > 0) this.runningOfTeam.set(teamId, left);
      else this.runningOfTeam.delete(teamId);
      this.serveNext();
    };
  }

  private async turn(teamId: string): Promise<Release> {
    const { waiting = 0, waitingOfTeam = NO_LIMIT, waitMs = 0 } = this.limits;
    const line = this.lines.get(teamId) ?? [];
    if (this.waiting >= waiting || line.length >= waitingOfTeam) throw this.refusal(!this.hasRoomOf(teamId));
    return new Promise((resolve, reject) => {
      const serve = (): void => {
        clearTimeout(timer);
        this.waiting--;
        resolve(this.begin(teamId));
      };
      const timer = setTimeout(() => {
        line.splice(line.indexOf(serve), 1);
        if (line.length === 0) this.lines.delete(teamId);
        this.waiting--;
        reject(this.refusal(!this.hasRoomOf(teamId)));
      }, waitMs);
      line.push(serve);
      this.waiting++;
      this.lines.set(teamId, line);
    });
  }

  /** The team that is served goes to the end of the line. */
  private serveNext(): void {
    const waiting = [...this.lines].filter(([teamId]) => this.hasRoom(teamId));
    if (waiting.length === 0) return;
    const turnsOf = ([teamId]: (typeof waiting)[number]): number => this.runningOfTeam.get(teamId) ?? 0;
    const [teamId, line] = waiting.reduce((fewest, each) => (turnsOf(each) < turnsOf(fewest) ? each : fewest));
    this.lines.delete(teamId);
    const serve = line.shift()!;
    if (line.length > 0) this.lines.set(teamId, line);
    serve();
  }
}

/** Turns whose refusal says what is under way: `Vocabularies of other datasets are being made.` */
export const waitingTurns = (limits: TurnLimits, what: string, retryAfterSeconds = 5): Turns =>
  new Turns(limits, () => new Fault('TOO_BUSY', `${what} Nothing was done; try again shortly.`, retryAfterSeconds));

/** @param what is refused at once when too much of it is under way, in the plural */
export const heldTurns = (ofATeam: number, inAll: number, what: string, retryAfterSeconds: number): Turns =>
  new Turns({ atOnce: inAll, atOnceOfTeam: ofATeam }, (isOwn) => {
    const under = isOwn ? `${ofATeam} ${what} of the team are under way; at most ${ofATeam}` : `${inAll} ${what} are under way; no more`;
    return new Fault('TOO_BUSY', `${under} at once are taken. Try again shortly.`, retryAfterSeconds);
  });

export const uploadTurns = (): Turns => heldTurns(8, 64, 'uploads', 1);
