/**
 * How far a member may send ahead of a shard in mode sync, so that the memory of the shard is bounded by the window and not by how unlike the
 * members are. Places are those of the chunks of one shard, in their order.
 *
 *   base     the lowest place of the round whose chunk is not complete
 *   window   a member sends the chunk at place p only when p < base + window
 *
 * The chunk at `base` may be sent by everybody, so it becomes complete, and the base moves on. WELCOME has both, CREDIT each new base.
 */

/** What a shard grants: to all of its members the same. */
export class GrantedWindow {
  /** The base that everybody was told of the present round. */
  private told = 0;

  /** @param size places; @param chunks of the shard */
  constructor(
    readonly size: number,
    private readonly chunks: number,
  ) {
    if (!Number.isSafeInteger(size) || size < 1) throw new RangeError(`a window of ${size} chunks`);
  }

  /** Another round begins. */
  reset(): void {
    this.told = 0;
  }

  /** A new base is to be told: half of the window is used up, and the members do not know yet that they may send everything. It counts as told. */
  mustTell(base: number): boolean {
    if (this.told + this.size >= this.chunks || base < this.told + Math.max(1, this.size >> 1)) return false;
    this.told = base;
    return true;
  }
}

interface Grant {
  round: number;
  base: number;
  readonly window: number;
  /** Of that round, by place: needs no gradient any more. */
  readonly isApplied: (place: number) => boolean;
}

const NONE = (): boolean => false;

/** What a member was granted, by server. */
export class TakenCredits {
  private readonly grants: (Grant | undefined)[] = [];

  welcome(server: number, grant: Grant): void {
    this.grants[server] = grant;
  }

  /** Credits are cumulative: an older one that comes late takes nothing back. */
  credit(server: number, round: number, base: number): void {
    const grant = this.grants[server];
    if (!grant || round < grant.round) return;
    // What WELCOME has said of the chunks was said of its round.
    if (round > grant.round) this.grants[server] = { round, base, window: grant.window, isApplied: NONE };
    else grant.base = Math.max(grant.base, base);
  }

  /** Places below may be sent in this round. A shard that is in an older round takes the first window of it; one that is further on, nothing. */
  limit(server: number, round: number): number {
    const grant = this.grants[server];
    if (!grant || grant.round > round) return 0;
    return grant.window + (grant.round === round ? grant.base : 0);
  }

  /** The shard has said in WELCOME that it has applied the chunk at this place. */
  isApplied(server: number, round: number, place: number): boolean {
    const grant = this.grants[server];
    return grant !== undefined && grant.round === round && grant.isApplied(place);
  }
}
