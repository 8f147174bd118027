/** What has come of the present round, and what it lacks. */
import type { Attempt } from '../attempt/attempt.js';
import type { CoordinatorOptions } from '../attempt/attempt-options.js';
import type { Contribution } from '../attempt/ledger-state.js';
import type { CoordinatedMember as Member } from '../attempt/membership.js';
import { some } from '../attempt/stall.js';
import type { PresentWork } from '../attempt/work-plan.js';
import { Agreement } from './agreement.js';

export class RoundGathering implements PresentWork {
  readonly contributions = new Map<number, Contribution>();
  /** Servers that are REDUCED. */
  readonly reduced = new Set<number>();
  /** Replicas that a shard lacks, by server: what it answered when it was asked again. */
  readonly missing = new Map<number, readonly number[]>();
  /** Plan two-phase. */
  readonly agreement: Agreement | undefined;

  constructor(
    private readonly attempt: Attempt,
    { servers, replicas, twoPhase, schedule }: CoordinatorOptions,
  ) {
    const hasRows = (round: number, replica: number): boolean => schedule.replicaExamples(round, replica) > 0;
    if (twoPhase) this.agreement = new Agreement(servers, replicas, twoPhase, hasRows);
  }

  /** Contributions in the order of the replicas, whoever came first (sums of floats depend on it), once all that COMMIT needs is there. */
  whole(): readonly Contribution[] | undefined {
    const included = this.agreement ? this.agreement.included : this.attempt.members.replicas;
    if (this.reduced.size < this.attempt.options.servers) return undefined;
    if (!included?.every((replica) => this.contributions.has(replica))) return undefined;
    return included.map((replica) => this.contributions.get(replica)!);
  }

  /** The round is committed. */
  reset(): void {
    this.agreement?.reset();
    this.missing.clear();
    this.contributions.clear();
    this.reduced.clear();
  }

  lacks(): string {
    const untold = this.untold();
    if (untold.length > 0) return `the contribution of replica ${some(untold)}, held by ${this.holdersOf(untold)}`;
    const each = this.undone().map((index) => {
      const missing = this.missing.get(index) ?? [];
      const what = missing.length > 0 ? `gather replica ${some(missing)}, held by ${this.holdersOf(missing)}` : 'be done with the round';
      return `parameter server ${index} to ${what}`;
    });
    return each.length > 0 ? some(each, 4) : 'its commit';
  }

  undelivered(): Member[] {
    const missing = new Set([...this.untold(), ...[...this.missing.values()].flat()]);
    return this.attempt.members.live().filter(({ replicas }) => replicas.some((replica) => missing.has(replica)));
  }

  /** In an evaluation any shard may hold back the parameters that are measured. */
  mayAwaitArbiter(): boolean {
    const { isTraining, servers } = this.attempt;
    return (isTraining ? this.undone() : servers.indices).some((index) => servers.covered.has(index));
  }

  private undone(): number[] {
    return this.attempt.servers.indices.filter((index) => !this.reduced.has(index));
  }

  /** Replicas that count, and whose contribution has not come. */
  private untold(): number[] {
    return (this.agreement?.included ?? this.attempt.members.replicas).filter((replica) => !this.contributions.has(replica));
  }

  private holdersOf(replicas: readonly number[]): string {
    const holders = this.attempt.members.live().filter((member) => member.replicas.some((replica) => replicas.includes(replica)));
    return some(holders.map(({ id }) => `worker ${id}`)) || 'nobody';
  }
}
