/**
 * What a coordinator does about standbys: it waits for the one of a server that is lost, takes it in when it joins in a higher term, and,
 * where it has itself taken the place of another coordinator, begins where the servers stand. How it finds that out is the mode's:
 * round-takeovers.ts, ../async/async-takeovers.ts.
 */
import { ProtocolError, type Message, type MessageOf } from '@paceline/protocol';
import type { FrameNumbers } from '../connection.js';
import type { ServerLiveness } from '../attempt/server-liveness.js';
import type { KnownNumbers } from '../attempt/succession.js';

type Row = 'serverAway' | 'serverTakenOver' | 'standbyLink';

/** The coordinator that this belongs to: its round and view, which a takeover moves. */
export interface TakenOverCoordinator<MoreRows extends string = never> {
  readonly round: number;
  view: number;
  /** In which it came to coordinate. */
  readonly term: number;
  readonly table: { readonly state: string; take(row: Row | MoreRows): void; allows(row: Row | MoreRows): boolean };
  numbers(): FrameNumbers;
}

/** What follows from a takeover in the coordinator. */
export interface TakeoverHooks {
  event(type: string, message: string, data: Record<string, unknown>): void;
  viewMessage(): Message;
  /** A checkpoint that is being written cannot become whole any more. */
  checkpointLost(why: string): void;
  begin(): void;
  /** Tells all the present view under a higher number. */
  nextView(): void;
}

/** How far a coordinator is that has taken the place of another. */
export interface SuccessionPhase {
  /** It does not know yet where the servers stand. */
  readonly isAsking: boolean;
  readonly isDone: boolean;
  readonly waitingFor: string | null;
  forget(server: number): void;
}

export abstract class ServerTakeovers<
  Coordinator extends TakenOverCoordinator = TakenOverCoordinator,
  Hooks extends TakeoverHooks = TakeoverHooks,
> {
  constructor(
    protected readonly coordinator: Coordinator,
    /** While weights are collected a server has come again, or somebody in its place: what was asked of it went with the connection. */
    private readonly serverBack: ((index: number) => void) | undefined,
    protected readonly servers: ServerLiveness,
    protected readonly hooks: Hooks,
  ) {}

  protected abstract readonly succession: SuccessionPhase | undefined;
  /** A server has joined and says where it stands: at the start, after a break, or in the place of a primary that is gone. */
  protected abstract standing(index: number, standing: MessageOf<'standing'>): void;

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
    this.hooks.checkpointLost(`parameter server ${index} was lost`);
    return true;
  }

  hear(index: number, message: MessageOf<'standing'> | MessageOf<'standby-link'>): void {
    if (message.type !== 'standing') return this.link(index, message);
    const follower = this.servers.covered.get(index) ?? '';
    const isTakenOver = this.servers.leads(index, message.term);
    if (isTakenOver && !this.isAsking) this.takenOver(index, follower, message.term);
    const { coordinator } = this;
    // Of the coordinator before, which it had joined first: it would not hear a lower one, or an equal one with other members.
    const isNotBelow = isTakenOver ? message.view >= coordinator.view : message.view > coordinator.view;
    const isAhead = this.hasSucceeded && !this.isAsking && isNotBelow;
    if (isAhead) coordinator.view = message.view;
    if (isAhead && !this.isUnderWay && coordinator.table.state !== 'OVER') this.hooks.nextView();
    this.standing(index, message);
    if (this.coordinator.table.state === 'COLLECTING') this.serverBack?.(index);
  }

  private link(index: number, { up, id, why }: MessageOf<'standby-link'>): void {
    this.coordinator.table.take('standbyLink');
    if (up && this.servers.covered.get(index) === id) return; // said again by a server whose connection broke
    if (up && id !== null) this.servers.covered.set(index, id);
    else this.servers.covered.delete(index);
    const message = up ? `standby ${id} follows parameter server ${index}` : `parameter server ${index} goes on without a standby: ${why}`;
    this.hooks.event(up ? 'standby.ready' : 'standby.lost', message, { server: index, serverId: id, round: this.coordinator.round });
  }

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
    return isAhead;
  }

  private takenOver(index: number, serverId: string, term: number): void {
    const { coordinator } = this;
    coordinator.table.take('serverTakenOver');
    const { round } = coordinator;
    const message = `standby ${serverId} has taken over parameter server ${index} in round ${round}, term ${term}`;
    this.hooks.event('standby.promoted', message, { server: index, serverId, term, round });
  }
}
