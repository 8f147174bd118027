/**
 * How a coordinator begins in the place of one that is gone (docs/protocol.md §14.1): it asks before it says anything.
 *
 *   ASKING        every shard joins and says where it stands; workers are told NOT_PRIMARY meanwhile
 *      │  all are there: whoever has COMMIT(k) proves it for all others, which are REDUCED(k); nobody is more than one round apart
 *      │  (somebody who is, or who lacks a round that was committed, was replaced and has not heard it: the successor of its shard is waited for)
 *   REGATHERING   workers come back to the replicas that they had, and tell again what they have told in this round
 *      │  all are back, or their grace is over
 *   DONE          replicas without a worker go to the others; the round goes on
 */
import type { Succession } from '../attempt/succession.js';
import type { MessageOf } from '@paceline/protocol';

type Standing = Omit<MessageOf<'standing'>, 'type'>;

/** Where the run stands, as all servers together say. */
export interface Resolution {
  readonly round: number;
  readonly view: number;
  /** Some server lacks the last COMMIT. */
  readonly behind: boolean;
  /** Servers that are REDUCED in `round`. */
  readonly reduced: readonly number[];
  /** Plan two-phase: what was decided about it. */
  readonly decision: Standing['decision'];
  /** What validations have decided, as of the last COMMIT. */
  readonly course: Standing['course'];
}

export class Takeover {
  private phase: 'ASKING' | 'REGATHERING' | 'DONE' = 'ASKING';
  private readonly standings = new Map<number, Standing>();
  private readonly awaited: Set<string>;
  private graceUntilMs = 0;
  /** Since when all are there, and one of them is behind. */
  private behindSinceMs: number | undefined;

  constructor(
    readonly succession: Succession,
    private readonly servers: number,
    private readonly now: () => number,
    private readonly graceMs = 1_500,
  ) {
    this.awaited = new Set(succession.members.map(({ id }) => id));
  }

  get isAsking(): boolean {
    return this.phase === 'ASKING';
  }

  get isDone(): boolean {
    return this.phase === 'DONE';
  }

  get waitingFor(): string | null {
    if (this.phase === 'DONE') return null;
    if (this.phase === 'REGATHERING') return `worker ${[...this.awaited].slice(0, 4).join(', ')} to come back after the takeover`;
    const behind = this.behind();
    if (behind !== undefined && this.standings.size === this.servers)
      return `${behind}: its standby, which leads now, to report its position`;
    const missing = Array.from({ length: this.servers }, (_, index) => index).filter((index) => !this.standings.has(index));
    return `parameter server ${missing.join(', ')} to report its position after the takeover`;
  }

  forget(server: number): void {
    this.standings.delete(server);
    this.behindSinceMs = undefined;
  }

  /** True when it was the last one. */
  stands(server: number, standing: Standing): boolean {
    this.standings.set(server, standing);
    if (this.phase !== 'ASKING' || this.standings.size < this.servers) return false;
    if (this.behind() === undefined) return true;
    this.behindSinceMs ??= this.now();
    return false;
  }

  /** @throws Error when nobody has come for a server that is further behind than one can be: a broken invariant */
  checkBehind(withinMs = 300_000): void {
    if (this.phase !== 'ASKING' || this.behindSinceMs === undefined || this.now() - this.behindSinceMs <= withinMs) return;
    throw new Error(`${this.behind()}: it cannot have been committed, and nobody else leads that shard`);
  }

  /** A server that lacks more than the last COMMIT. It was replaced, has not heard it, and its place has reduced rounds without it. */
  private behind(): string | undefined {
    const all = [...this.standings];
    const round = Math.max(...all.map(([, standing]) => standing.round));
    const isNear = ({ round: own, isReduced }: Standing): boolean => own === round || (own === round - 1 && isReduced);
    const [server, standing] = all.find(([, each]) => !isNear(each)) ?? [];
    return standing && `parameter server ${server} stands in round ${standing.round}, another one in ${round}`;
  }

  /** REDUCED(k) of a server that has said before where it stands. */
  reduced(server: number, round: number): void {
    const standing = this.standings.get(server);
    if (standing?.round === round) this.standings.set(server, { ...standing, isReduced: true });
  }

  /** The round to gather: the highest that anybody is in. Servers that are `behind` lack the COMMIT before it only. */
  resolve(): Resolution {
    const all = [...this.standings];
    const round = Math.max(...all.map(([, standing]) => standing.round));
    this.phase = this.awaited.size === 0 ? 'DONE' : 'REGATHERING';
    this.graceUntilMs = this.now() + this.graceMs;
    return {
      round,
      view: Math.max(this.succession.view, ...all.map(([, standing]) => standing.view)) + 1,
      behind: all.some(([, standing]) => standing.round < round),
      decision: all.find(([, standing]) => standing.round === round && standing.decision)?.[1].decision,
      course: all.find(([, standing]) => standing.round === round && standing.course !== undefined)?.[1].course,
      reduced: all.filter(([, standing]) => standing.round === round && standing.isReduced).map(([server]) => server),
    };
  }

  /** A worker is back. True when nobody is waited for any more. */
  back(id: string): boolean {
    this.awaited.delete(id);
    return this.phase === 'REGATHERING' && this.awaited.size === 0;
  }

  get isPastGrace(): boolean {
    return this.phase === 'REGATHERING' && this.now() > this.graceUntilMs;
  }

  finish(): void {
    this.phase = 'DONE';
  }

  /** What a worker had in the round before it was cut off. */
  replicasOf(id: string): readonly number[] {
    return this.succession.members.find((member) => member.id === id)?.replicas ?? [];
  }
}
