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
import type { Attempt } from '../attempt/attempt.js';
import type { Succession } from '../attempt/succession.js';
import type { AttemptTable, SuccessionPhase } from '../attempt/work-plan.js';
import { ReportedDoneSet } from './done-set.js';

type Standing = MessageOf<'standing'>;

/** The work items that are taken over. */
export interface SucceededItems {
  readonly table: AttemptTable;
  /** All servers have said which work items they are done with, by index. */
  takeUp(told: ReadonlyMap<number, ReportedDoneSet>): void;
}

export class ItemSuccession implements SuccessionPhase {
  private phase: 'ASKING' | 'FENCING' | 'DONE' = 'ASKING';
  private readonly standings = new Map<number, Standing>();

  constructor(
    private readonly attempt: Attempt,
    private readonly items: SucceededItems,
    private readonly succession: Succession,
  ) {}

  get isAsking(): boolean {
    return this.phase !== 'DONE';
  }

  get isDone(): boolean {
    return this.phase === 'DONE';
  }

  get waitingFor(): string | null {
    if (this.phase === 'DONE') return null;
    const missing = this.attempt.servers.indices.filter((index) => !this.standings.has(index));
    return `parameter server ${missing.join(', ')} to report which work items are done after the takeover`;
  }

  forget(server: number): void {
    this.standings.delete(server);
  }

  /** A server says where it stands, while all are asked. */
  stands(index: number, standing: Standing): void {
    const { attempt } = this;
    if (this.phase === 'ASKING') return this.isLast(index, standing) ? this.fence() : undefined;
    if (standing.marks?.since === attempt.since) return this.isLast(index, standing) ? this.done() : undefined;
    // It has joined since: a standby, perhaps, in another view.
    if (standing.view >= attempt.view) attempt.view = standing.view + 1;
    attempt.servers.connectionOf(index)?.sendMessage(attempt.viewMessage(), attempt.numbers());
  }

  private isLast(server: number, standing: Standing): boolean {
    this.standings.set(server, standing);
    return this.standings.size === this.attempt.options.servers;
  }

  /** All have said where they stood: asked once more, behind the fence. */
  private fence(): void {
    const { attempt } = this;
    const views = [...this.standings.values()].map(({ view }) => view);
    this.phase = 'FENCING';
    this.standings.clear();
    attempt.view = Math.max(this.succession.view, ...views) + 1;
    attempt.since = attempt.term;
    attempt.servers.send(attempt.viewMessage(), attempt.numbers());
  }

  private done(): void {
    this.items.table.take('succeeded');
    this.phase = 'DONE';
    this.items.takeUp(
      new Map([...this.standings].flatMap(([server, { marks }]) => (marks ? [[server, new ReportedDoneSet(marks)] as const] : []))),
    );
  }
}
