/** Mode sync: a coordinator that takes over finds the present round (../standby/takeover.ts), and lets the workers come back to it. */
import { ProtocolError, type MessageOf } from '@paceline/protocol';
import type { CoordinatorParts } from '../attempt/parts.js';
import type { Succession } from '../attempt/succession.js';
import type { SuccessionPhase } from '../attempt/work-plan.js';
import { Takeover, type Resolution } from '../standby/takeover.js';
import type { COORDINATOR_ROWS, CoordinatorState } from './coordinator-table.js';
import type { StateTable } from '../attempt/state-table.js';

/** The rounds that are taken over. */
export interface SucceededRounds {
  readonly table: StateTable<CoordinatorState, typeof COORDINATOR_ROWS>;
  /** Servers that are REDUCED in the present round. */
  readonly reduced: ReadonlySet<number>;
  /** Goes on where the servers stand. */
  takeUp(resolution: Resolution): void;
  /** The present round is committed, whatever is known of it. */
  commitUnseen(): void;
}

export class RoundSuccession implements SuccessionPhase {
  private readonly takeover: Takeover;

  constructor(
    private readonly parts: CoordinatorParts,
    private readonly rounds: SucceededRounds,
    succession: Succession,
  ) {
    const { servers, now, graceMs } = parts.attempt.options;
    this.takeover = new Takeover(succession, servers, now, graceMs);
  }

  get isAsking(): boolean {
    return this.takeover.isAsking;
  }

  get isDone(): boolean {
    return this.takeover.isDone;
  }

  get waitingFor(): string | null {
    return this.takeover.waitingFor;
  }

  forget(server: number): void {
    this.takeover.forget(server);
  }

  /** A server says where it stands, while all are asked. */
  stands(index: number, standing: MessageOf<'standing'>): void {
    const { takeover, rounds } = this;
    if (!takeover.stands(index, standing)) return;
    rounds.table.take('succeeded');
    rounds.takeUp(takeover.resolve());
    if (takeover.isDone) this.regathered();
  }

  /** REDUCED while nobody knows which round is the present one. */
  keepReduced(index: number, round: number): void {
    this.takeover.reduced(index, round);
  }

  memberKnows(round: number): void {
    if (round > this.parts.attempt.round && this.rounds.table.allows('committedElsewhere')) this.commitElsewhere(round);
  }

  memberBack(id: string): void {
    const { members } = this.parts.attempt;
    const member = members.get(id);
    const taken = new Set(members.all().flatMap((other) => other.replicas));
    if (member) member.replicas = this.takeover.replicasOf(id).filter((replica) => !taken.has(replica));
    if (this.takeover.back(id)) this.regathered();
  }

  /** @throws Error when a server lacks rounds that others have committed, and nobody has taken its place */
  tick(): void {
    this.takeover.checkBehind(this.parts.attempt.options.takeoverDeadlineMs);
    if (this.takeover.isPastGrace && this.rounds.table.state === 'GATHERING') this.regathered();
  }

  /** The first view of this coordinator with members: everybody has what he had, as far as he is there. */
  private regathered(): void {
    const { attempt } = this.parts;
    this.rounds.table.take('regathered');
    this.takeover.finish();
    if (attempt.members.live().length > 0) {
      attempt.members.cover();
      attempt.nextView();
    }
    this.parts.begin();
  }

  /**
   * A worker has heard COMMIT(k) from the coordinator before; no server has. Nothing else can have happened to k.
   * @throws ProtocolError NOT_PRIMARY while a former primary stands here for the server that has reduced it
   */
  private commitElsewhere(knownRound: number): void {
    const { round, servers } = this.parts.attempt;
    if (knownRound !== round + 1) throw new Error(`a worker is in round ${knownRound}, and no server is beyond round ${round}`);
    const others = servers.indices.filter((index) => !this.rounds.reduced.has(index));
    if (others.length > 0)
      throw new ProtocolError(
        'NOT_PRIMARY',
        `round ${round} is committed; the server that leads in the place of parameter server ${others.join(', ')} has not joined yet`,
      );
    this.rounds.table.take('committedElsewhere');
    this.rounds.commitUnseen();
  }
}
