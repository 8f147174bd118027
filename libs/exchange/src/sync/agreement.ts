/**
 * The coordinator's side of plan `two-phase` (docs/protocol.md §9.5 and §9.6): what a round has to agree on before a shard may apply anything.
 *
 *   without backup replicas   scalars of all chunks from all shards → decision
 *   with b backup replicas    replica complete on every shard, R − b times → include (one set, for every chunk, the state and the
 *                             example count) → scalars of the sums over that set → decision
 *
 * In a ragged round R is the number of replicas that have rows, and at least one counts. Which ones are the first R − b is timing: no promise of bits with b > 0.
 */
import type { Message, MessageOf } from '@paceline/protocol';

export type ChunkScalars = MessageOf<'scalars'>['chunks'][number];
/** What the shards do with the round: leave it out, or apply it scaled. */
export type RoundDecision = Omit<MessageOf<'decision'>, 'type' | 'round'>;

export interface TwoPhaseOptions {
  readonly backupReplicas: number;
  /** Servers that own chunks; all of them when it is not said. Replicas are complete without the others. */
  readonly shards?: number;
  /**
   * Decides from the scalars of all chunks; `replicas` are those that count. libs/learning has the arithmetic. `non-finite` when some
   * gradient has NaN or infinity and the run does not want to leave the round out.
   */
  decide(round: number, replicas: readonly number[], chunks: readonly ChunkScalars[]): RoundDecision | 'non-finite';
}

export class Agreement {
  /** Replicas that count in this round: all, or the first R − b that were complete. */
  included: readonly number[] | undefined;
  decision: RoundDecision | undefined;
  private readonly scalars = new Map<number, readonly ChunkScalars[]>();
  private readonly completeOn = new Map<number, Set<number>>();
  private readonly complete: number[] = [];

  constructor(
    private readonly servers: number,
    private readonly replicas: number,
    private readonly options: TwoPhaseOptions,
    /** Whether a replica has examples in a round. One that has none is complete before anybody else, and must not take a place. */
    private readonly hasRows: (round: number, replica: number) => boolean,
  ) {
    this.reset();
  }

  /** The round is committed. */
  reset(): void {
    this.included = this.options.backupReplicas > 0 ? undefined : Array.from({ length: this.replicas }, (_, replica) => replica);
    this.decision = undefined;
    this.scalars.clear();
    this.completeOn.clear();
    this.complete.length = 0;
  }

  /** Returns what to tell the shards, if anything follows; `non-finite` when the attempt has to end. */
  hear(server: number, message: MessageOf<'replica-complete'> | MessageOf<'scalars'>): Message | 'non-finite' | undefined {
    return message.type === 'scalars' ? this.gathered(server, message) : this.replicaComplete(server, message);
  }

  /** What the shards were told about the round, for one that has not heard it. */
  said(round: number): Message[] {
    if (!this.included) return [];
    const include: Message[] = this.options.backupReplicas > 0 ? [{ type: 'include', round, replicas: [...this.included] }] : [];
    return this.decision ? [...include, { type: 'decision', round, ...this.decision }] : include;
  }

  /** All chunks of a shard have come from a replica. Returns what to tell the shards, when the set is fixed by it. */
  private replicaComplete(server: number, { round, replica }: MessageOf<'replica-complete'>): Message | undefined {
    if (this.included || replica >= this.replicas || !this.hasRows(round, replica)) return undefined;
    const servers = this.completeOn.get(replica) ?? new Set<number>();
    this.completeOn.set(replica, servers.add(server));
    if (servers.size < (this.options.shards ?? this.servers) || this.complete.includes(replica)) return undefined;
    this.complete.push(replica);
    let withRows = 0;
    for (let each = 0; each < this.replicas; each++) if (this.hasRows(round, each)) withRows++;
    if (this.complete.length < Math.max(1, withRows - this.options.backupReplicas)) return undefined;
    this.included = [...this.complete].sort((a, b) => a - b);
    return { type: 'include', round, replicas: [...this.included] };
  }

  /** The scalars of a shard. Returns the decision to tell, when they were the last. */
  private gathered(server: number, { round, chunks }: MessageOf<'scalars'>): Message | 'non-finite' | undefined {
    // A shard that was taken over has gathered again: it is told the same.
    if (this.decision) return { type: 'decision', round, ...this.decision };
    if (!this.included) return undefined;
    this.scalars.set(server, chunks);
    if (this.scalars.size < this.servers) return undefined;
    const decision = this.options.decide(round, this.included, [...this.scalars.values()].flat());
    if (decision === 'non-finite') return decision;
    this.decision = decision;
    return { type: 'decision', round, ...this.decision };
  }
}

/** A decision without what its message has besides. */
export const copyOf = ({ skip, examples, scale, variables }: RoundDecision): RoundDecision => ({ skip, examples, scale, variables });
