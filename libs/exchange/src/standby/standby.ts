/**
 * The standby's side (docs/protocol.md §13): a shard without links that its primary keeps in step, until it is dropped, promoted, or the run ends.
 *
 *   FOLLOWING ── reduced chunk, or update of a work item → apply once, acknowledge; COMMIT, VIEW in the primary's order
 *      │ the link closes or is silent
 *   ASKING ── the arbiter is asked to be promoted, again and again until it answers
 *      ├── promoted ──> PROMOTED    the shard goes on as primary, in the new term, at the round where it stands
 *      ├── refused ───> OVER        the primary has gone on alone, or the attempt is over
 *      └── unanswered ─> OVER       nobody answers (arbiter-request.ts)
 *
 * What it has at the break holds everything that was committed: REDUCED(k) of its primary waited for it. Chunks that the primary had
 * applied and not forwarded are gathered again; workers keep their gradients until COMMIT.
 */
import { FrameType, ProtocolError, checkAttempt, type FrameHeader, type Message } from '@paceline/protocol';
import type { Connection, FrameNumbers } from '../connection.js';
import { ReceivedBytes } from '../transports/received-bytes.js';
import { RegionReceiver, checkChunk } from '../transfer/chunk-frames.js';
import type { OwnedChunk } from '../transfer/chunks.js';
import { ArbiterRequest, type ArbiterRequestOptions } from './arbiter-request.js';
import type { Region } from '../attempt/regions.js';
import { StateTable, type StateRows } from '../attempt/state-table.js';

export type StandbyState = 'FOLLOWING' | 'ASKING' | 'PROMOTED' | 'OVER';

export const STANDBY_ROWS = {
  chunk: {
    from: ['FOLLOWING'],
    event: 'a reduced chunk of round k, or one of an update',
    does: 'apply it once, an update when it is whole; acknowledge',
    next: '–',
  },
  chunkRepeated: { from: ['FOLLOWING'], event: 'a reduced chunk that is applied', does: 'acknowledge it again', next: '–' },
  order: {
    from: ['FOLLOWING'],
    event: 'VIEW, DECISION, COMMIT or UPDATE from the primary',
    does: 'follow it; where the shard has no chunks acknowledge COMMIT',
    next: '–',
  },
  staleTerm: { from: 'any', event: 'a frame of an older term', does: 'refuse it: STALE_TERM', next: '–' },
  late: { from: ['ASKING', 'PROMOTED', 'OVER'], event: 'a frame of the former primary', does: 'drop it', next: '–' },
  broken: {
    from: ['FOLLOWING'],
    event: 'the primary cannot be reached, is silent, or its link closes',
    does: 'ask the arbiter to be promoted',
    next: ['ASKING'],
  },
  promoted: {
    from: ['ASKING'],
    event: 'the arbiter grants it, with the new term',
    does: 'join the coordinator as the shard (index 0: become the coordinator); publish what is applied of round k again',
    next: ['PROMOTED'],
  },
  refused: {
    from: ['FOLLOWING', 'ASKING'],
    event: 'the arbiter has dropped this standby',
    does: 'let everything go',
    next: ['OVER'],
  },
  unanswered: {
    from: ['ASKING'],
    event: 'the arbiter has not answered for 330 s',
    does: 'release everything; this server is free for another attempt',
    next: ['OVER'],
  },
  end: { from: 'any', event: 'END', does: 'answer END; release everything', next: ['OVER'] },
} as const satisfies StateRows<StandbyState>;

/** What a shard does as long as it only follows its primary. */
export interface Follower {
  readonly round: number;
  readonly view: number;
  readonly term: number;
  /** A chunk of the shard, by its index in the layout. */
  chunkAt(index: number): OwnedChunk | undefined;
  /** False when the gradient of this chunk is applied already. @throws ProtocolError when it does not come next */
  wantsReplica(header: FrameHeader): boolean;
  /** A whole gradient has come; undefined when it was not wanted. @param acknowledge called when it is applied, where that is to be acknowledged */
  applyReplica(header: FrameHeader, gradient: Region | undefined, acknowledge: (message: Message) => void): void;
  /** @returns what to acknowledge; undefined when a primary does not send such a message @throws ProtocolError */
  followOrder(message: Message): readonly Message[] | undefined;
  /** It is the primary now, in this term. */
  promote(term: number): void;
}

/** The place of a standby: ShardPlace. */
export interface StandbyPlace {
  /** Asks the arbiter to be promoted, in the term that this standby follows. Called again every `askEveryMs` until it answers, for `askAtMostMs`. */
  askToPromote(): void;
  /** Called once, with the shard in the new term. */
  promoted(): void;
  /** Called once: nothing is left for this server to do. */
  standbyOver(why: string): void;
}

export interface StandbyOptions extends ArbiterRequestOptions {
  readonly attempt: number;
  readonly shard: Follower;
  readonly place: StandbyPlace;
  readonly silentMs?: number;
}

export class Standby {
  readonly table = new StateTable<StandbyState, typeof STANDBY_ROWS>('standby', STANDBY_ROWS, 'FOLLOWING');
  private connection: Connection | undefined;
  private readonly gradients = new RegionReceiver();
  private heardMs: number;
  private received: ReceivedBytes | undefined;
  private lastTickMs: number;
  private readonly request: ArbiterRequest;
  private why = '';

  constructor(private readonly options: StandbyOptions) {
    this.heardMs = this.lastTickMs = options.now();
    this.request = new ArbiterRequest(options, () => options.place.askToPromote());
  }

  waitingFor(): string | null {
    return this.table.state === 'ASKING' ? `the arbiter to promote it (${this.why})` : null;
  }

  /** The link to the primary is open; HELLO is sent by the caller. */
  linked(connection: Connection): void {
    this.connection = connection;
    this.received = new ReceivedBytes(connection);
    this.heardMs = this.options.now();
  }

  /** @throws ProtocolError for what a primary does not send */
  payloadFor(header: FrameHeader): Uint8Array {
    const shard = this.options.shard;
    const chunk = shard.chunkAt(header.chunk);
    checkChunk(header, FrameType.gradient, this.options.attempt, chunk);
    this.checkTerm(header);
    const isWanted = this.table.state === 'FOLLOWING' && shard.wantsReplica(header);
    return this.gradients.receive(header, isWanted ? chunk : undefined);
  }

  data(header: FrameHeader): void {
    const region = this.gradients.received();
    if (this.table.state !== 'FOLLOWING') {
      region?.release();
      return this.table.take('late');
    }
    this.table.take(region ? 'chunk' : 'chunkRepeated');
    const { connection } = this;
    this.options.shard.applyReplica(header, region, (acknowledgement) => {
      // Another primary has not sent it.
      if (connection && this.connection === connection) connection.sendMessage(acknowledgement, this.numbers());
    });
  }

  message(message: Message, header: FrameHeader): void {
    if (message.type === 'refused') return;
    checkAttempt(header, this.options.attempt);
    this.checkTerm(header);
    if (this.table.state !== 'FOLLOWING') return this.table.take('late');
    if (message.type === 'heartbeat') return;
    if (message.type === 'end') {
      this.connection?.sendMessage(message, this.numbers());
      return this.end('the run is over');
    }
    const acknowledgements = this.options.shard.followOrder(message);
    if (!acknowledgements) throw new ProtocolError('BAD_MESSAGE', `a primary does not send ${message.type} to its standby`);
    this.table.take('order');
    for (const each of acknowledgements) this.connection?.sendMessage(each, this.numbers());
  }

  /** This process has to end: its primary does not leave the shard to it. */
  leaves(why: string): void {
    if (this.table.state === 'FOLLOWING') this.connection?.sendMessage({ type: 'stopping', reason: why.slice(0, 300) }, this.numbers());
  }

  closed(connection: Connection, why: string): void {
    if (this.connection === connection) this.broken(`its link closed: ${why}`);
  }

  /** The primary is gone, or was never there. */
  broken(why: string): void {
    if (this.table.state !== 'FOLLOWING') return;
    this.table.take('broken', 'ASKING');
    this.why = why;
    this.letGo();
    this.request.begin();
  }

  /** The arbiter's word. */
  answered({ isPrimary, isStandby, term }: { readonly isPrimary: boolean; readonly isStandby: boolean; readonly term: number }): void {
    const { state } = this.table;
    if (state === 'PROMOTED' || state === 'OVER' || (isStandby && !isPrimary)) return;
    if (isPrimary) {
      if (state !== 'ASKING') return;
      this.table.take('promoted', 'PROMOTED');
      this.options.shard.promote(term);
      return this.options.place.promoted();
    }
    this.leave('refused', 'the arbiter has dropped this standby');
  }

  heartbeat(): void {
    this.connection?.sendMessage({ type: 'heartbeat', progress: this.options.shard.round }, this.numbers());
  }

  /** Deadlines. Call it every 100 ms or so. */
  tick(): void {
    const { silentMs = 10_000 } = this.options;
    const now = this.options.now();
    // After this process itself stood still, its sockets hold what came meanwhile.
    const stoodStill = now - this.lastTickMs > 1_500;
    if (this.received?.haveCome() || stoodStill) this.heardMs = now;
    this.lastTickMs = now;
    const isAsking = this.table.state === 'ASKING';
    if (this.table.state === 'FOLLOWING' && now - this.heardMs > silentMs)
      this.broken(`nothing heard from the primary for ${Math.round(now - this.heardMs)} ms`);
    if (!isAsking) return;
    this.request.tick(stoodStill);
    if (this.request.isUnanswered) this.leave('unanswered', this.request.describe(`promote this standby (${this.why})`));
  }

  end(why: string): void {
    if (this.table.state === 'OVER' || this.table.state === 'PROMOTED') return;
    this.leave('end', why);
  }

  private numbers(): FrameNumbers {
    const { attempt } = this.options;
    const shard = this.options.shard;
    return { attempt, term: shard.term, view: shard.view, round: shard.round };
  }

  /** @throws ProtocolError STALE_TERM */
  private checkTerm(header: FrameHeader): void {
    if (header.term >= this.options.shard.term) return;
    this.table.take('staleTerm');
    throw new ProtocolError('STALE_TERM', `term ${header.term}, present is ${this.options.shard.term}`);
  }

  private leave(row: 'refused' | 'unanswered' | 'end', why: string): void {
    this.table.take(row, 'OVER');
    this.letGo();
    this.options.place.standbyOver(why);
  }

  private letGo(): void {
    const { connection } = this;
    this.connection = undefined;
    this.gradients.letGo();
    connection?.close();
  }
}
