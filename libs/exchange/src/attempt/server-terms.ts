/**
 * The terms in which the servers of each shard have spoken to a member. Whatever comes from a server, its coordinator's messages too, is in the
 * term in which it leads its shard: a former primary that goes on speaks in an older one than its successor has, and is refused.
 */
import { ProtocolError } from '@paceline/protocol';

export class ServerTerms {
  private readonly heard: number[];
  private readonly welcomed: number[];

  constructor(
    servers: number,
    private readonly refused: () => void,
  ) {
    this.heard = new Array<number>(servers).fill(0);
    this.welcomed = new Array<number>(servers).fill(0);
  }

  /** A message has come; what its coordinator says comes before WELCOME. @throws ProtocolError STALE_TERM */
  hears(server: number, term: number): void {
    this.check(server, term);
    this.heard[server] = term;
  }

  /** Checks a frame whose checksum is not verified yet, so it raises no term. @throws ProtocolError STALE_TERM */
  check(server: number, term: number): void {
    const present = this.heard[server]!;
    if (term >= present) return;
    this.refused();
    throw new ProtocolError('STALE_TERM', `parameter server ${server} speaks in term ${term}, its shard is in term ${present}`);
  }

  /** WELCOME. True when a standby has taken the shard over since the last one. @throws ProtocolError STALE_TERM */
  welcomes(server: number, term: number): boolean {
    this.hears(server, term);
    // Term 1 is the first; whoever speaks in a higher one that is news has taken over, or follows somebody who has.
    const isNews = term > Math.max(this.welcomed[server]!, 1);
    this.welcomed[server] = term;
    return isNews;
  }
}
