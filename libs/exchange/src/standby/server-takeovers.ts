/**
 * What a coordinator does about standbys: it waits for the one of a server that is lost, takes it in when it joins in a higher term, and,
 * where it has itself taken the place of another coordinator, begins where the servers stand. How it finds that out is the plan's:
 * ../sync/round-succession.ts, ../async/item-succession.ts.
 */
import { ProtocolError, type MessageOf } from '@paceline/protocol';
import type { Attempt } from '../attempt/attempt.js';
import type { Stops } from '../attempt/stops.js';
import type { KnownNumbers } from '../attempt/succession.js';
import type { Coordinated, SuccessionPhase } from '../attempt/work-plan.js';

export class ServerTakeovers {
  constructor(
    private readonly attempt: Attempt,
    private readonly stops: Stops,
    private readonly coordinator: Coordinated,
  ) {}

  private get succession(): SuccessionPhase | undefined {
    return this.coordinator.plan.succession;
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
    const { servers } = this.attempt;
    const awaited = servers.missing.filter((index) => servers.isAwaited(index));
    if (awaited.length > 0) return `the standby of parameter server ${awaited.join(', ')} to take over`;
    if (servers.missing.length > 0) return `parameter server ${servers.missing.join(', ')} to connect to the coordinator`;
    return this.succession?.waitingFor ?? null;
  }

  // ---- servers ----

  /** A server is lost. False when nobody will come in its place. */
  covers(index: number, why: string): boolean {
    const { attempt } = this;
    const isCovered = attempt.servers.covered.has(index);
    if (!isCovered && !this.isAsking) return false;
    const { round, table } = attempt;
    this.succession?.forget(index);
    table.take('serverAway');
    const next = isCovered ? 'its standby takes over' : 'it may come again';
    const message = `parameter server ${index} was lost in round ${round}: ${why}; ${next}`;
    attempt.event('standby.lost', message, { server: index, round });
    this.stops.partLost(`parameter server ${index} was lost`);
    return true;
  }

  /** It says where it stands: at the start, after a break, or in the place of a primary that is gone. */
  stands(index: number, message: MessageOf<'standing'>): void {
    const { attempt } = this;
    const follower = attempt.servers.covered.get(index) ?? '';
    const isTakenOver = attempt.servers.leads(index, message.term);
    if (isTakenOver && !this.isAsking) this.takenOver(index, follower, message.term);
    // The server may hold a higher view of the previous coordinator and would ignore a lower one, or an equal one with other members.
    const isNotBelow = isTakenOver ? message.view >= attempt.view : message.view > attempt.view;
    const isAhead = this.hasSucceeded && !this.isAsking && isNotBelow;
    if (isAhead) attempt.view = message.view;
    if (isAhead && !this.isUnderWay && !attempt.isOver) attempt.nextView();
    this.coordinator.plan.serverStands(index, message);
    // Before the first round: the worker that held the shard is not waited for any more.
    if (isTakenOver && attempt.isTraining) this.coordinator.begin();
    if (attempt.table.state === 'COLLECTING') attempt.options.surroundings.serverBack(index);
  }

  /** Its standby follows, or is gone. */
  link(index: number, { up, id, why }: MessageOf<'standby-link'>): void {
    const { table, servers, round } = this.attempt;
    table.take('standbyLink');
    if (up && servers.covered.get(index) === id) return; // said again by a server whose connection broke
    if (up && id !== null) servers.covered.set(index, id);
    else servers.covered.delete(index);
    const message = up ? `standby ${id} follows parameter server ${index}` : `parameter server ${index} goes on without a standby: ${why}`;
    this.attempt.event(up ? 'standby.ready' : 'standby.lost', message, { server: index, serverId: id, round });
  }

  private takenOver(index: number, serverId: string, term: number): void {
    const { table, round } = this.attempt;
    table.take('serverTakenOver');
    const message = `standby ${serverId} has taken over parameter server ${index} in round ${round}, term ${term}`;
    this.attempt.event('standby.promoted', message, { server: index, serverId, term, round });
  }

  // ---- members ----

  /**
   * A worker's views come from the coordinator before, which may have told it more of them than any server: what it holds in such a view
   * counts as ahead of the shards, and a lower one is an old one to it. The numbers go on after the highest.
   * @returns whether they had to: all others have to be told
   * @throws ProtocolError NOT_PRIMARY while the servers are asked
   */
  memberComes(known: KnownNumbers): boolean {
    const { attempt, succession } = this;
    if (!succession || attempt.isOver) return false;
    if (succession.isAsking) throw new ProtocolError('NOT_PRIMARY', this.waitingFor() ?? undefined);
    const isAhead = known.view > attempt.view;
    if (isAhead) attempt.view = known.view + 1;
    succession.memberKnows?.(known.round);
    return isAhead;
  }
}
