/**
 * Modes async and ssp: how a coordinator begins in the place of one that is gone (docs/protocol.md §14.2). It asks before it says anything.
 *
 *   ASKING    every server joins and says which work items it is done with; workers are told NOT_PRIMARY meanwhile
 *      │  all are there
 *   FENCING   VIEW with `since`: from here on no server applies what was fetched for work items of the coordinator before; each says
 *      │      again which ones are done, and its standby has them
 *   DONE      a work item that is done at all shards counts; all others are issued again, or dropped where one of them was told to
 *
 * Workers have let everything go with the connection that broke, and begin anew.
 */
import type { MessageOf } from '@paceline/protocol';
import { ServerTakeovers, type SuccessionPhase, type TakenOverCoordinator, type TakeoverHooks } from '../standby/server-takeovers.js';
import type { ServerLiveness } from '../attempt/server-liveness.js';
import type { Succession } from '../attempt/succession.js';
import { ReportedDoneSet } from './done-set.js';

type Standing = MessageOf<'standing'>;

export class AsyncSuccession implements SuccessionPhase {
  private phase: 'ASKING' | 'FENCING' | 'DONE' = 'ASKING';
  private readonly standings = new Map<number, Standing>();

  constructor(
    readonly succession: Succession,
    private readonly servers: number,
  ) {}

  get isAsking(): boolean {
    return this.phase !== 'DONE';
  }

  get isDone(): boolean {
    return this.phase === 'DONE';
  }

  get isFencing(): boolean {
    return this.phase === 'FENCING';
  }

  get waitingFor(): string | null {
    if (this.phase === 'DONE') return null;
    const missing = Array.from({ length: this.servers }, (_, index) => index).filter((index) => !this.standings.has(index));
    return `parameter server ${missing.join(', ')} to say which work items are done after the takeover`;
  }

  forget(server: number): void {
    this.standings.delete(server);
  }

  /** True when it was the last one. */
  stands(server: number, standing: Standing): boolean {
    this.standings.set(server, standing);
    return this.standings.size === this.servers;
  }

  /** All have said where they stood: asked once more, behind the fence. @returns the view to ask in */
  fence(): number {
    const views = [...this.standings.values()].map(({ view }) => view);
    this.phase = 'FENCING';
    this.standings.clear();
    return Math.max(this.succession.view, ...views) + 1;
  }

  resolve(): ReadonlyMap<number, ReportedDoneSet> {
    this.phase = 'DONE';
    return new Map([...this.standings].flatMap(([server, { marks }]) => (marks ? [[server, new ReportedDoneSet(marks)] as const] : [])));
  }
}

export interface AsyncTakeoverHooks extends TakeoverHooks {
  /** A server says which work items it is done with, and this coordinator has begun: what it was told of them may have got lost. */
  marksTold(index: number, marks: ReportedDoneSet): void;
  /** This coordinator knows where everybody stands. */
  succeed(marks: ReadonlyMap<number, ReportedDoneSet>, succession: Succession): void;
}

export class AsyncTakeovers extends ServerTakeovers<TakenOverCoordinator<'succeeded'>, AsyncTakeoverHooks> {
  protected override readonly succession: AsyncSuccession | undefined;
  /** The arbiter's term in which this coordinator has taken over, once it has: what workers fetch for its work items is in that term. */
  since: number | undefined;

  constructor(
    coordinator: TakenOverCoordinator<'succeeded'>,
    { succession, servers: count, serverBack }: AsyncTakeoverOptions,
    servers: ServerLiveness,
    hooks: AsyncTakeoverHooks,
  ) {
    super(coordinator, serverBack, servers, hooks);
    this.succession = succession && new AsyncSuccession(succession, count);
  }

  protected override standing(index: number, standing: Standing): void {
    const { succession } = this;
    if (succession?.isAsking) return this.asked(succession, index, standing);
    if (standing.marks) this.hooks.marksTold(index, new ReportedDoneSet(standing.marks));
  }

  private asked(succession: AsyncSuccession, index: number, standing: Standing): void {
    const { coordinator, hooks } = this;
    if (!succession.isFencing) {
      if (!succession.stands(index, standing)) return;
      coordinator.view = succession.fence();
      this.since = coordinator.term;
      return this.servers.send(hooks.viewMessage(), coordinator.numbers());
    }
    if (standing.marks?.since === this.since) {
      if (!succession.stands(index, standing)) return;
      coordinator.table.take('succeeded');
      return hooks.succeed(succession.resolve(), succession.succession);
    }
    // It has joined since: a standby, perhaps, in another view.
    if (standing.view >= coordinator.view) coordinator.view = standing.view + 1;
    this.servers.connectionOf(index)?.sendMessage(hooks.viewMessage(), coordinator.numbers());
  }
}

export interface AsyncTakeoverOptions {
  readonly succession?: Succession;
  /** How many there are. */
  readonly servers: number;
  serverBack?(index: number): void;
}
