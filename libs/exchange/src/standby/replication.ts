/**
 * The primary's side of a standby (docs/protocol.md §13.2): what changes the shard goes to the standby, and nobody is told of it before its word. In
 * mode sync that is every reduced chunk, and REDUCED(k) waits (../sync/round-replication.ts); in the others the update of every work item, and APPLIED
 * and the answers to fetches wait (../async/async-replication.ts).
 *
 *   WAITING ── standby connects ──> PAIRED ── chunk reduced → forward → acknowledged ──> REDUCED(k) may go to the coordinator
 *      │ not within its deadline       │ link breaks
 *      └───────────> ASKING <──────────┘    the arbiter is asked to drop the standby, again and again until it answers
 *                      ├── dropped ──> ALONE      what waited goes on; the loss of this server ends the attempt, as without a standby
 *                      ├── deposed ──> DEPOSED    the standby was promoted: this server stops and changes nothing any more
 *                      └── unanswered ──> DEPOSED    nobody answers: the standby may have been promoted, so it stops as if it was (arbiter-request.ts)
 *
 * A process that has to end leaves its place to a standby that follows (PAIRED ── left ──> DEPOSED), which finds the link closed and asks to be promoted.
 *
 * A shard without chunks forwards nothing: its standby acknowledges each COMMIT, so that it is never more than one round behind either.
 * Between the broken link and the answer nothing is committed, because the coordinator lacks this shard's REDUCED: whichever side wins,
 * it has everything that was committed. The machine takes its clock and its arbiter as arguments; `tick` runs its deadlines.
 */
import { ProtocolError, type Message, type MessageOf } from '@paceline/protocol';
import type { Connection, FrameNumbers } from '../connection.js';
import { ReceivedBytes } from '../transports/received-bytes.js';
import { ArbiterRequest, type ArbiterRequestOptions } from './arbiter-request.js';
import type { CoordinatorPort } from '../attempt/shard-ports.js';
import { StateTable, type StateRows } from '../attempt/state-table.js';

export type ReplicationState = 'WAITING' | 'PAIRED' | 'ASKING' | 'ALONE' | 'DEPOSED';

export const REPLICATION_ROWS = {
  paired: {
    from: ['WAITING'],
    event: 'the standby connects',
    does: 'join the coordinator and tell it that the loss of this server is covered; from here on REDUCED(k), or what follows from a work item, waits for the standby',
    next: ['PAIRED'],
  },
  refused: {
    from: 'any',
    event: 'a standby connects where none is waited for, or a second one',
    does: 'refuse it: SEAT_TAKEN',
    next: '–',
  },
  forwarded: {
    from: ['PAIRED'],
    event: 'a chunk is reduced, or a work item applied or left out',
    does: 'send its gradient to the standby',
    next: '–',
  },
  kept: { from: ['ASKING', 'ALONE'], event: 'a chunk is reduced, or a work item applied', does: 'nothing: no standby reads it', next: '–' },
  acknowledged: {
    from: ['PAIRED'],
    event: 'the standby has applied a chunk or a work item, or, where the shard has no chunks, has COMMIT(k-1)',
    does: 'when it was the last one of the round send REDUCED(k); send what waited for the work item',
    next: '–',
  },
  broken: {
    from: ['WAITING', 'PAIRED'],
    event:
      'the standby does not come within its deadline, is silent, has been sent everything and acknowledges nothing for 10 s, or its link closes',
    does: 'ask the arbiter to drop it; hold REDUCED(k), or what follows from work items, until it answers',
    next: ['ASKING'],
  },
  dropped: {
    from: ['ASKING'],
    event: 'the arbiter has dropped the standby',
    does: 'tell the coordinator; send what waited; go on alone',
    next: ['ALONE'],
  },
  concluded: {
    from: ['PAIRED', 'ASKING'],
    event: 'the coordinator beside the shard has come to the end of the attempt',
    does: 'send END to the standby; all others are told when the standby has answered END, or the arbiter has dropped it',
    next: '–',
  },
  deposed: {
    from: ['WAITING', 'PAIRED', 'ASKING'],
    event: 'the arbiter has promoted the standby',
    does: 'stop: close all connections',
    next: ['DEPOSED'],
  },
  unanswered: {
    from: ['ASKING'],
    event: 'the arbiter has not answered for 330 s, and no END waits here that has a deadline of its own',
    does: 'stop: close all connections without END, because the standby may lead; this server is free for another attempt',
    next: ['DEPOSED'],
  },
  left: {
    from: ['PAIRED'],
    event: 'this process has to end, and that of the standby does not',
    does: 'stop: close all connections, so that the standby takes over and all others look for it',
    next: ['DEPOSED'],
  },
} as const satisfies StateRows<ReplicationState>;

/** The place of a primary with a standby: ShardPlace. */
export interface PrimaryPlace {
  numbers(): FrameNumbers;
  /** Asks the arbiter to drop the standby. Called again every `askEveryMs` until `answered`, for `askAtMostMs`. */
  askToDrop(): void;
  /** The standby is there, or is not waited for any more: the shard may join the coordinator. Called once. */
  ready(): void;
  /** Another server has this shard now, or will ask for it, or may have it. Called once. */
  deposed(why: string): void;
}

export interface ReplicationOptions extends ArbiterRequestOptions {
  readonly place: PrimaryPlace;
  /** What comes before this shard has joined it is kept there. */
  readonly coordinator: CoordinatorPort;
  readonly waitMs?: number;
  readonly silentMs?: number;
  readonly acknowledgeMs?: number;
}

export abstract class Replication<Options extends ReplicationOptions = ReplicationOptions> {
  readonly table = new StateTable<ReplicationState, typeof REPLICATION_ROWS>('replication', REPLICATION_ROWS, 'WAITING');
  protected standby: { readonly id: string; readonly connection: Connection; readonly received: ReceivedBytes } | undefined;
  private standbyId: string | undefined;
  private sinceMs: number;
  private heardMs: number;
  /** When the standby was last sent something to acknowledge, or has acknowledged something. */
  protected movedMs = 0;
  private readonly request: ArbiterRequest;
  private isReady = false;
  /** The process of the standby has to end too. */
  private isLosing = false;
  private lastTickMs: number;
  private why = '';
  /** What waits until the standby does not take over any more. */
  private final: (() => void) | undefined;

  constructor(protected readonly options: Options) {
    this.sinceMs = this.heardMs = this.lastTickMs = options.now();
    this.request = new ArbiterRequest(options, () => options.place.askToDrop());
  }

  /** What the standby owes, in words, or undefined when it has acknowledged everything. */
  protected abstract owed(): string | undefined;
  /** An acknowledgement of the standby. @throws ProtocolError BAD_MESSAGE */
  protected abstract acknowledged(message: Message): void;
  /** Nothing is acknowledged any more: this server goes on alone, and what waited may go. */
  protected abstract wentAlone(): void;
  /** Another server has the shard: what waited is nobody's any more. */
  protected abstract forgotten(): void;
  /** Something is held back until the standby has it. */
  protected abstract holdsSomething(): boolean;
  /** What the coordinator says, before the shard hears it. */
  abstract order(message: Message): void;

  /** What the shard waits for, or null. */
  waitingFor(): string | null {
    if (this.table.state === 'WAITING') return 'its standby to connect';
    if (this.table.state === 'ASKING') return `the arbiter to drop its standby (${this.why})`;
    return this.holdsSomething() ? `its standby to acknowledge ${this.owed() ?? 'what it was sent'}` : null;
  }

  /**
   * For a coordinator that has not heard it: whether the loss of this server is covered. While the arbiter is asked it is, because
   * the standby may win.
   */
  get standbyLink(): MessageOf<'standby-link'> | undefined {
    const { state } = this.table;
    if ((state === 'PAIRED' || state === 'ASKING') && this.standbyId !== undefined)
      return { type: 'standby-link', up: true, id: this.standbyId, why: 'it follows' };
    return state === 'ALONE' ? { type: 'standby-link', up: false, id: null, why: this.why.slice(0, 300) } : undefined;
  }

  /** The standby has shown its token. @throws ProtocolError SEAT_TAKEN */
  join(id: string, connection: Connection): void {
    if (this.table.state !== 'WAITING') {
      this.table.take('refused');
      throw new ProtocolError('SEAT_TAKEN', 'no standby is waited for');
    }
    this.table.take('paired', 'PAIRED');
    this.standby = { id, connection, received: new ReceivedBytes(connection) };
    this.standbyId = id;
    this.heardMs = this.options.now();
    this.ready();
    this.options.coordinator.tell({ type: 'standby-link', up: true, id, why: 'it follows' });
    connection.sendMessage({ type: 'heartbeat', progress: 0 }, this.options.place.numbers());
  }

  message(connection: Connection, message: Message): void {
    if (this.standby?.connection !== connection || this.table.state !== 'PAIRED') return;
    this.heardMs = this.options.now();
    if (message.type === 'heartbeat') return;
    if (message.type === 'end') return this.runFinalAction();
    if (message.type === 'stopping') this.isLosing = true;
    else this.acknowledged(message);
  }

  closed(connection: Connection, why: string): void {
    if (this.standby?.connection === connection && this.table.state === 'PAIRED') this.breakOff(`its link closed: ${why}`);
  }

  /** Everything that the shard tells the coordinator goes through here. */
  tell(message: Message): void {
    this.options.coordinator.tell(message);
  }

  /** Something goes to the standby, as far as one reads it. */
  protected forwards(): Connection | undefined {
    if (this.table.state !== 'PAIRED' || !this.standby) {
      this.table.take('kept');
      return undefined;
    }
    this.table.take('forwarded');
    this.movedMs = this.options.now();
    return this.standby.connection;
  }

  /** VIEW, COMMIT and DECISION in the order in which the shard has them, between the sums. */
  follow(message: Message): void {
    if (this.table.state === 'PAIRED') this.standby?.connection.sendMessage(message, this.options.place.numbers(), 'behind data');
  }

  /** The arbiter's word; `isPrimary` is false when the standby has won. */
  answered({ isPrimary, hasStandby }: { readonly isPrimary: boolean; readonly hasStandby: boolean }): void {
    const { state } = this.table;
    if (state === 'DEPOSED' || state === 'ALONE') return;
    if (!isPrimary) return this.stop('deposed', 'another server has taken this shard over');
    if (hasStandby || state !== 'ASKING') return;
    this.table.take('dropped', 'ALONE');
    this.letGo();
    this.options.coordinator.tell({ type: 'standby-link', up: false, id: null, why: this.why.slice(0, 300) });
    this.ready();
    this.wentAlone();
    this.runFinalAction();
  }

  /** The attempt has ended, as the coordinator beside the shard says: acts when the standby cannot go on with it any more. */
  conclude(end: Message, act: () => void): void {
    const { state } = this.table;
    if (state === 'DEPOSED') return;
    if (state !== 'PAIRED' && state !== 'ASKING') return act();
    this.table.take('concluded');
    this.final = act;
    this.follow(end);
  }

  private runFinalAction(): void {
    const act = this.final;
    this.final = undefined;
    act?.();
  }

  /** A standby follows that could take over at once, and was not told that the attempt is over. */
  get canHandOver(): boolean {
    return this.table.state === 'PAIRED' && !this.isLosing && !this.final;
  }

  /** This process has to end. What it has told anybody the standby has; from here on it tells nobody anything. False when it cannot. */
  handOver(): boolean {
    if (!this.canHandOver) return false;
    this.stop('left', 'this server ends, and its standby takes over: connect again');
    return true;
  }

  heartbeat(): void {
    const numbers = this.options.place.numbers();
    if (this.table.state === 'PAIRED') this.standby?.connection.sendMessage({ type: 'heartbeat', progress: numbers.round }, numbers);
  }

  /** Deadlines. Call it every 100 ms or so. */
  tick(): void {
    const { waitMs = 15_000, silentMs = 10_000, acknowledgeMs = 10_000 } = this.options;
    const now = this.options.now();
    // After this process itself stood still, its sockets hold what came meanwhile.
    const stoodStill = now - this.lastTickMs > 1_500;
    if (this.standby?.received.haveCome()) this.heardMs = now;
    if (stoodStill) this.heardMs = this.movedMs = now;
    const isOwed = this.owed() !== undefined && this.standby?.connection.queuedBytes === 0;
    if (!isOwed) this.movedMs = now;
    this.lastTickMs = now;
    const isAsking = this.table.state === 'ASKING';
    if (this.table.state === 'WAITING' && now - this.sinceMs > waitMs) this.breakOff(`it did not connect within ${waitMs} ms`);
    if (this.table.state === 'PAIRED' && now - this.heardMs > silentMs)
      this.breakOff(`nothing heard for ${Math.round(now - this.heardMs)} ms`);
    if (this.table.state === 'PAIRED' && now - this.movedMs > acknowledgeMs)
      this.breakOff(`it has not acknowledged ${this.owed()} for ${Math.round(now - this.movedMs)} ms`);
    if (isAsking) this.askAgain(stoodStill);
  }

  private askAgain(stoodStill: boolean): void {
    this.request.tick(stoodStill);
    // An END that waits has a deadline of its own (CoordinatorHost), and what the journal says of it can still be stored; who leaves says nothing more.
    if (this.request.isUnanswered && !this.final) this.stop('unanswered', this.request.describe(`drop the standby (${this.why})`));
  }

  /** This server's part is over. With `message` the standby is told that the run is, and hangs up itself: its link is returned. */
  end(message?: Message): Connection | undefined {
    const { standby } = this;
    if (message) this.follow(message);
    if (!message || !standby) this.letGo();
    this.standby = undefined;
    this.forgotten();
    return message && standby?.connection;
  }

  private breakOff(why: string): void {
    this.table.take('broken', 'ASKING');
    this.why = why;
    this.letGo();
    this.request.begin();
  }

  /** Tells nobody anything any more. */
  private stop(row: 'deposed' | 'unanswered' | 'left', why: string): void {
    this.table.take(row, 'DEPOSED');
    this.letGo();
    this.forgotten();
    this.options.place.deposed(why);
  }

  private ready(): void {
    if (this.isReady) return;
    this.isReady = true;
    this.options.place.ready();
  }

  private letGo(): void {
    const { standby } = this;
    this.standby = undefined;
    standby?.connection.close();
  }
}
