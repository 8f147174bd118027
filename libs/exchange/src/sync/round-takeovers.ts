/** Mode sync: a coordinator that takes over finds the present round (takeover.ts), and who lacks its last COMMIT is told it again. */
import { ProtocolError, type Message, type MessageOf } from '@paceline/protocol';
import type { CoordinatorOptions } from '../attempt/attempt-options.js';
import type { Membership } from '../attempt/membership.js';
import type { RoundLedger } from './round-ledger.js';
import type { ServerLiveness } from '../attempt/server-liveness.js';
import { ServerTakeovers, type TakenOverCoordinator, type TakeoverHooks } from '../standby/server-takeovers.js';
import { Takeover, type Resolution } from '../standby/takeover.js';
import type { KnownNumbers } from '../attempt/succession.js';

export interface TakenOverRounds extends TakenOverCoordinator<'succeeded' | 'regathered' | 'committedElsewhere'> {
  round: number;
  readonly validations: { readonly course: string | undefined; isBest(generation: number): boolean };
}

export interface RoundTakeoverHooks extends TakeoverHooks {
  /** Servers that are REDUCED in the present round. */
  readonly reduced: Set<number>;
  decided(decision: Resolution['decision']): void;
  tryCommit(): void;
  /** The present round is committed, whatever is known of it. */
  commitUnseen(): void;
  /** What validations had decided with the last COMMIT. */
  tookCourse(course: string): void;
}

export class RoundTakeovers extends ServerTakeovers<TakenOverRounds, RoundTakeoverHooks> {
  protected override readonly succession: Takeover | undefined;

  constructor(
    coordinator: TakenOverRounds,
    private readonly options: CoordinatorOptions,
    servers: ServerLiveness,
    private readonly members: Membership,
    private readonly ledger: RoundLedger,
    hooks: RoundTakeoverHooks,
  ) {
    super(coordinator, (index) => options.serverBack?.(index), servers, hooks);
    const { succession } = options;
    this.succession = succession && new Takeover(succession, options.servers, options.now, options.graceMs);
  }

  protected override standing(index: number, standing: MessageOf<'standing'>): void {
    const { coordinator, hooks } = this;
    if (this.succession?.isAsking) return this.succession.stands(index, standing) ? this.succeed(this.succession) : undefined;
    if (standing.round === coordinator.round - 1) this.servers.connectionOf(index)?.sendMessage(this.lastCommit(), coordinator.numbers());
    if (coordinator.table.state !== 'GATHERING' || standing.round !== coordinator.round) return;
    if (standing.isReduced) hooks.reduced.add(index);
    else hooks.reduced.delete(index);
    hooks.tryCommit();
  }

  /** REDUCED while nobody knows which round is the present one. True when that is so. */
  keepsReduced(index: number, round: number): boolean {
    if (this.isAsking) this.succession?.reduced(index, round);
    return this.isAsking;
  }

  override memberComes(known: KnownNumbers): boolean {
    const { coordinator } = this;
    const isAhead = super.memberComes(known);
    const mayKnowMore = this.hasSucceeded && coordinator.table.state !== 'OVER';
    if (mayKnowMore && known.round > coordinator.round && coordinator.table.allows('committedElsewhere')) this.commitElsewhere(known.round);
    return isAhead;
  }

  memberBack(id: string): void {
    const { succession } = this;
    const member = this.members.get(id);
    const taken = new Set(this.members.all().flatMap((other) => other.replicas));
    if (member) member.replicas = (succession?.replicasOf(id) ?? []).filter((replica) => !taken.has(replica));
    if (succession?.back(id)) this.regathered();
  }

  /** @throws Error when a server lacks rounds that others have committed, and nobody has taken its place */
  tick(): void {
    this.succession?.checkBehind(this.options.takeoverDeadlineMs);
    if (this.succession?.isPastGrace && this.coordinator.table.state === 'GATHERING') this.regathered();
  }

  private lastCommit(): Message {
    const { round, view, term } = this.coordinator;
    const { validations } = this.coordinator;
    const { course } = validations;
    const commit = { type: 'commit', round: round - 1, view, term, members: this.members.list() } as const;
    return course === undefined ? commit : Object.assign(commit, { course }, validations.isBest(round) ? { best: true } : {});
  }

  /** Every server has said where it stands. */
  private succeed(succession: Takeover): void {
    const { coordinator, hooks } = this;
    coordinator.table.take('succeeded');
    const { behind, reduced, decision, course, ...numbers } = succession.resolve();
    if (course !== undefined) hooks.tookCourse(course);
    Object.assign(coordinator, numbers);
    for (const server of reduced) hooks.reduced.add(server);
    hooks.decided(decision);
    this.ledger.succeed(numbers.round, succession.succession.ledgerFrom);
    const message = `the standby of parameter server 0 coordinates from round ${numbers.round} on, term ${coordinator.term}`;
    hooks.event('standby.promoted', message, { server: 0, term: coordinator.term, ...numbers });
    if (behind) this.servers.send(this.lastCommit(), coordinator.numbers());
    this.servers.send(hooks.viewMessage(), coordinator.numbers());
    if (succession.isDone) this.regathered();
  }

  /** The first view of this coordinator with members: everybody has what he had, as far as he is there. */
  private regathered(): void {
    const { coordinator, hooks } = this;
    coordinator.table.take('regathered');
    this.succession?.finish();
    if (this.members.live().length > 0) {
      this.members.cover();
      coordinator.view++;
      this.servers.send(hooks.viewMessage(), coordinator.numbers());
      this.members.send(hooks.viewMessage(), coordinator.numbers());
    }
    hooks.begin();
  }

  /**
   * A worker has heard COMMIT(k) from the coordinator before; no server has. Nothing else can have happened to k.
   * @throws ProtocolError NOT_PRIMARY while a former primary stands here for the server that has reduced it
   */
  private commitElsewhere(knownRound: number): void {
    const { coordinator, hooks } = this;
    const { round } = coordinator;
    if (knownRound !== round + 1) throw new Error(`a worker is in round ${knownRound}, and no server is beyond round ${round}`);
    const others = this.servers.indices.filter((index) => !hooks.reduced.has(index));
    if (others.length > 0)
      throw new ProtocolError(
        'NOT_PRIMARY',
        `round ${round} is committed; who leads parameter server ${others.join(', ')} has yet to come`,
      );
    coordinator.table.take('committedElsewhere');
    hooks.commitUnseen();
  }
}
