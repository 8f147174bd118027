/** How much of one kind is done at once, of one team and in all: each holds memory, and an open file. Who comes too much is refused at once. */
import { Fault } from './fault.js';

export interface HeldTurnLimits {
  readonly ofATeam: number;
  readonly inAll: number;
  /** For messages, in the plural. */
  readonly what: string;
  readonly retryAfterSeconds: number;
}

export class HeldTurns {
  private count = 0;
  private readonly byTeam = new Map<string, number>();

  constructor(private readonly limits: HeldTurnLimits) {}

  /** @returns what gives it back; more than once is fine @throws Fault TOO_BUSY */
  hold(teamId: string): () => void {
    const { ofATeam, inAll, what, retryAfterSeconds } = this.limits;
    const own = this.byTeam.get(teamId) ?? 0;
    if (own >= ofATeam)
      throw new Fault('TOO_BUSY', `${own} ${what} of the team are under way; at most ${ofATeam} at once are taken.`, retryAfterSeconds);
    if (this.count >= inAll)
      throw new Fault('TOO_BUSY', `${inAll} ${what} are under way; no more at once are taken. Try again shortly.`, retryAfterSeconds);
    this.count++;
    this.byTeam.set(teamId, own + 1);
    let isHeld = true;
    return () => {
      if (!isHeld) return;
      isHeld = false;
      this.count--;
      const left = this.byTeam.get(teamId)! - 1;
      if (left > 0) this.byTeam.set(teamId, left);
      else this.byTeam.delete(teamId);
    };
  }

  /** @throws Fault TOO_BUSY before anything of the work was done */
  async take<T>(teamId: string, work: () => Promise<T>): Promise<T> {
    const release = this.hold(teamId);
    try {
      return await work();
    } finally {
      release();
    }
  }
}

export const UPLOAD_TURNS: HeldTurnLimits = { ofATeam: 8, inAll: 64, what: 'uploads', retryAfterSeconds: 1 };
