/**
 * The primary's side of a standby in modes async and ssp (docs/protocol.md §13.2): the update of every work item follows to the standby in the order in which
 * the shard has applied them, and what tells anybody of it waits for the standby's word: APPLIED, and parameters that have it in them.
 *
 *   apply → mark → UPDATE(sequence) and the gradient as it went into the optimizer ──> the standby applies the same ──> UPDATED(sequence) → what waited goes
 *
 * Acknowledgements are cumulative. What waits is kept in one queue behind the last update that it may show; it is bounded by the work items that
 * workers hold, because a work item is held until it is counted.
 */
import { FrameType, ProtocolError, type Message } from '@paceline/protocol';
import type { Region } from '../attempt/regions.js';
import { sendRegion } from '../transfer/chunk-frames.js';
import { Replication } from '../standby/replication.js';
import type { AppliedItem } from './async-shard-table.js';

interface Held {
  /** Updates that the standby must have. */
  readonly sequence: number;
  act(): void;
  cancel(): void;
}

export class AsyncReplication extends Replication {
  /** Things done with work items that were forwarded, and of them those that the standby has. */
  private sent = 0;
  private has = 0;
  private held: Held[] = [];

  /** The shard has done something with a work item, in this order. The gradients are those that went into the optimizer. */
  applied({ item, staleness, isDropped }: AppliedItem, chunks: readonly { readonly index: number; readonly gradient: Region }[]): void {
    const connection = this.forwards();
    if (!connection) return;
    const numbers = this.options.place.numbers();
    const { round, replica } = item;
    // Behind the gradient of the one before.
    connection.sendMessage({ type: 'update', sequence: ++this.sent, round, replica, staleness, isDropped }, numbers, 'behind data');
    const vector = { type: FrameType.gradient, round, lo: replica, hi: replica + 1 };
    for (const { index, gradient } of chunks) sendRegion(connection, numbers, vector, index, gradient.retain());
  }

  /** Acts when the standby has everything that is applied now; at once where it has, or where there is none any more. */
  whenReplicated(act: () => void, cancel: () => void = () => undefined): void {
    const { state } = this.table;
    if (state === 'DEPOSED') return cancel();
    const mayGo = state === 'ALONE' || (state === 'PAIRED' && this.has === this.sent && this.held.length === 0);
    if (mayGo) act();
    else this.held.push({ sequence: this.sent, act, cancel });
  }

  /** The standby has to know of members: it may have to take gradients from them. */
  override order(message: Message): void {
    if (message.type === 'view') this.follow(message);
  }

  protected override acknowledged(message: Message): void {
    if (message.type !== 'updated') throw new ProtocolError('BAD_MESSAGE', `a standby does not send ${message.type}`);
    if (message.sequence <= this.has || message.sequence > this.sent) return;
    this.table.take('acknowledged');
    this.movedMs = this.options.now();
    this.has = message.sequence;
    this.release(() => this.has);
  }

  protected override owed(): string | undefined {
    return this.has < this.sent ? `update ${this.has + 1} of ${this.sent}` : undefined;
  }

  protected override holdsSomething(): boolean {
    return this.held.length > 0;
  }

  protected override wentAlone(): void {
    this.has = this.sent;
    this.release(() => Infinity);
  }

  protected override forgotten(): void {
    for (const { cancel } of this.held.splice(0)) cancel();
  }

  private release(upTo: () => number): void {
    while (this.held.length > 0 && this.held[0]!.sequence <= upTo()) this.held.shift()!.act();
  }
}
