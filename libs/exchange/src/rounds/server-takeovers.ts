/**
 * What a coordinator does about standbys: it waits for the one of a server that is lost, takes it in when it joins in a higher term, and,
 * where it has itself taken the place of another coordinator, begins where the servers stand (takeover.ts).
 */
import { ProtocolError, type Message, type MessageOf } from '@paceline/protocol';
import type { CoordinatorOptions, CoordinatorState } from './coordinator-table.js';
import type { Membership } from './membership.js';
import type { RoundLedger } from './round-ledger.js';
import type { ServerWatch } from './server-watch.js';
import { Takeover, type KnownNumbers, type Resolution } from './takeover.js';

type Row = 'serverAway' | 'serverTakenOver' | 'standbyLink' | 'succeeded' | 'regathered' | 'committedElsewhere';

/** The coordinator that this belongs to: its numbers, which a takeover moves, and what follows from one. */
export interface TakenOverCoordinator {
  round: number;
  view: number;
  term: number;
  readonly table: { readonly state: CoordinatorState; take(row: Row): void; allows(row: Row): boolean };
  numbers(): { attempt: number; term: number; view: number; round: number };
}

export interface TakeoverHooks {
  event(type: string, message: string, data: Record<string, unknown>): void;
  viewMessage(): Message;
  /** A checkpoint that is being written cannot become whole any more. */
  cutLost(why: string): void;
  /** Servers that are REDUCED in the present round. */
  readonly reduced: Set<number>;
  decided(decision: Resolution['decision']): void;
  tryCommit(): void;
  /** The present round is committed, whatever is known of it. */
  moveOn(): void;
  begin(): void;
}

export class ServerTakeovers {
  private readonly succession: Takeover | undefined;

  constructor(
    private readonly coordinator: TakenOverCoordinator,
    private readonly options: CoordinatorOptions,
    private readonly servers: ServerWatch,
    private readonly members: Membership,
    private readonly ledger: RoundLedger,
    private readonly hooks: TakeoverHooks,
  ) {
    const { succession } = options;
    this.succession = succession && new Takeover(succession, options.servers, options.now, options.graceMs);
  }

  /** This coordinator has taken the place of another, which has begun the run. */
  get hasSucceeded(): boolean {
    return this.succession !== undefined;
  }

  /** It does not know yet where the servers stand. */
  get isAsking(): boolean {
    return this.succession?.isAsking ?? false;
  }

  /** Nobody is given anything before the workers are back. */
  get isUnderWay(): boolean {
    return this.succession !== undefined && !this.succession.isDone;
  }

  waitingFor(): string | null {
    const awaited = this.servers.missing.filter((index) => this.servers.isAwaited(index));
    if (awaited.length > 0) return `the standby of parameter server ${awaited.join(', ')} to take over`;
    if (this.servers.missing.length > 0) return `parameter server ${this.servers.missing.join(', ')} to connect to the coordinator`;
    return this.succession?.waitingFor ?? null;
  }

  // ---- servers ----

  /** A server is lost. False when nobody will come in its place. */
  covers(index: number, why: string): boolean {
    if (!this.servers.covered.has(index) && !this.isAsking) return false;
    const { round, table } = this.coordinator;
    this.succession?.forget(index);
    table.take('serverAway');
    const data = { server: index, round };
    const next = this.servers.covered.has(index) ? 'its standby takes over' : 'it may come again';
    this.hooks.event('standby.lost', `parameter server ${index} was lost in round ${round}: ${why}; ${next}`, data);
    this.hooks.cutLost(`parameter server ${index} was lost`);
    return true;
  }

  hear(index: number, message: MessageOf<'standing'> | MessageOf<'standby-link'>): void {
    if (message.type === 'standing') this.standing(index, message);
    else this.link(index, message);
  }

  private link(index: number, { up, id, why }: MessageOf<'standby-link'>): void {
    this.coordinator.table.take('standbyLink');
    if (up && this.servers.covered.get(index) === id) return; // said again by a server whose connection broke
    if (up && id !== null) this.servers.covered.set(index, id);
    else this.servers.covered.delete(index);
    const message = up ? `standby ${id} follows parameter server ${index}` : `parameter server ${index} goes on without a standby: ${why}`;
    this.hooks.event(up ? 'standby.ready' : 'standby.lost', message, { server: index, serverId: id, round: this.coordinator.round });
  }

  /** A server has joined and says where it stands: at the start, after a break, or in the place of a primary that is gone. */
  private standing(index: number, standing: MessageOf<'standing'>): void {
    const { coordinator, hooks } = this;
    if (this.succession?.isAsking) return this.succession.stands(index, standing) ? this.succeed(this.succession) : undefined;
    if (standing.term > coordinator.term) this.takenOver(index, standing.term);
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

  // ---- workers, after this coordinator has succeeded another ----

  /**
   * A worker's views come from the coordinator before, which may have told it more of them than any server: what it holds in such a view
   * counts as ahead of the shards, and a lower one is an old one to it. The numbers go on after the highest.
   * @returns whether they had to: all others have to be told
   * @throws ProtocolError NOT_PRIMARY while the servers are asked
   */
  memberComes(known: KnownNumbers): boolean {
    const { coordinator } = this;
    if (this.isAsking && coordinator.table.state !== 'OVER') throw new ProtocolError('NOT_PRIMARY', this.waitingFor() ?? undefined);
    if (!this.hasSucceeded || coordinator.table.state === 'OVER') return false;
    const isAhead = known.view > coordinator.view;
    if (isAhead) coordinator.view = known.view + 1;
    if (known.round > coordinator.round && coordinator.table.allows('committedElsewhere')) this.commitElsewhere(known.round);
    return isAhead;
  }

  memberBack(id: string): void {
    const { succession } = this;
    const member = this.members.get(id);
    const taken = new Set(this.members.all().flatMap((other) => other.replicas));
    if (member) member.replicas = (succession?.replicasOf(id) ?? []).filter((replica) => !taken.has(replica));
    if (succession?.back(id)) this.regathered();
  }

  tick(): void {
    if (this.succession?.isPastGrace && this.coordinator.table.state === 'GATHERING') this.regathered();
  }

  // ---- inside ----

  private takenOver(index: number, term: number): void {
    const { coordinator } = this;
    coordinator.table.take('serverTakenOver');
    coordinator.term = term;
    const serverId = this.servers.covered.get(index) ?? null;
    this.servers.covered.delete(index);
    const { round } = coordinator;
    const message = `standby ${serverId ?? ''} has taken over parameter server ${index} in round ${round}, term ${term}`;
    this.hooks.event('standby.promoted', message, { server: index, serverId, term, round });
    if (coordinator.table.state === 'COLLECTING') this.options.serverTakenOver?.(index);
  }

  private lastCommit(): Message {
    const { round, view, term } = this.coordinator;
    return { type: 'commit', round: round - 1, view, term, members: this.members.list() };
  }

  /** Every server has said where it stands. */
  private succeed(succession: Takeover): void {
    const { coordinator, hooks } = this;
    coordinator.table.take('succeeded');
    const { behind, reduced, decision, ...numbers } = succession.resolve();
    Object.assign(coordinator, numbers);
    for (const server of reduced) hooks.reduced.add(server);
    hooks.decided(decision);
    this.ledger.succeed(numbers.round, succession.succession.ledgerFrom);
    const message = `the standby of parameter server 0 coordinates from round ${numbers.round} on, term ${numbers.term}`;
    hooks.event('standby.promoted', message, { server: 0, ...numbers });
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

  /** A worker has heard COMMIT(k) from the coordinator before; no server has. Nothing else can have happened to k. */
  private commitElsewhere(knownRound: number): void {
    const { coordinator, hooks } = this;
    const { round } = coordinator;
    if (knownRound !== round + 1 || hooks.reduced.size < this.options.servers)
      throw new Error(`a worker is in round ${knownRound}, but only ${hooks.reduced.size} server(s) have reduced round ${round}`);
    coordinator.table.take('committedElsewhere');
    this.ledger.commitUnseen(round);
    hooks.moveOn();
  }
}
