/**
 * The primary's side of a standby in mode sync: the sum of each reduced chunk follows to the standby, and REDUCED(k) waits until it has acknowledged all
 * of them.
 */
import { FrameType, ProtocolError, type Message } from '@paceline/protocol';
import { acquireRegion, type Region } from '../attempt/regions.js';
import { Replication, type ReplicationOptions } from '../standby/replication.js';
import { sendRegion } from '../transfer/chunk-frames.js';

/** What the standby of a shard without chunks acknowledges: that it is in the round. */
export const NO_CHUNK = 0;

export interface RoundReplicationOptions extends ReplicationOptions {
  readonly replicas: number;
  /** Chunks of the shard. */
  chunkIndices(): readonly number[];
}

export class RoundReplication extends Replication<RoundReplicationOptions> {
  /** Chunks of the present round that the standby has not acknowledged. */
  private readonly pending = new Set<number>();
  private heldReduced: Message | undefined;

  /** The round is reduced here, but not at the standby. */
  get holdsBack(): boolean {
    return this.heldReduced !== undefined;
  }

  /** A chunk is reduced; called before it is applied, while the gradient still is the sum. */
  reduced(round: number, chunk: number, gradient: Region, willChange: boolean): void {
    const connection = this.forwards();
    if (!connection) return;
    this.pending.add(chunk);
    // What the update writes to is copied; the socket reads it later.
    const region = willChange ? copyOf(gradient) : gradient.retain();
    const vector = { type: FrameType.gradient, round, lo: 0, hi: this.options.replicas };
    sendRegion(connection, this.options.place.numbers(), vector, chunk, region);
  }

  /** REDUCED(k) waits for the standby. */
  override tell(message: Message): void {
    if (message.type !== 'reduced') return super.tell(message);
    this.heldReduced = message;
    this.release();
  }

  /** These chunks are not forwarded, but the standby has to say that it is done with them: the round is left out, or there are none. */
  expect(chunks: readonly number[]): void {
    this.movedMs = this.options.now();
    if (this.table.state === 'PAIRED') for (const chunk of chunks) this.pending.add(chunk);
  }

  /** VIEW, DECISION and COMMIT follow: before anything that this COMMIT sets free is reduced and forwarded. */
  override order(message: Message): void {
    if (message.type === 'decision' && message.skip) this.expect(this.options.chunkIndices());
    if (message.type === 'view' || message.type === 'decision' || message.type === 'commit') this.follow(message);
    const isEmpty = this.options.chunkIndices().length === 0;
    if (message.type === 'commit' && message.round === this.options.place.numbers().round && isEmpty) this.expect([NO_CHUNK]);
  }

  protected override acknowledged(message: Message): void {
    if (message.type !== 'replicated') throw new ProtocolError('BAD_MESSAGE', `a standby does not send ${message.type}`);
    if (message.round !== this.options.place.numbers().round || !this.pending.delete(message.chunk)) return;
    this.table.take('acknowledged');
    this.movedMs = this.options.now();
    this.release();
  }

  protected override owed(): string | undefined {
    return this.pending.size > 0 ? `chunk ${[...this.pending][0]} of the round` : undefined;
  }

  protected override holdsSomething(): boolean {
    return this.holdsBack;
  }

  protected override wentAlone(): void {
    this.pending.clear();
    this.release();
  }

  protected override forgotten(): void {
    // REDUCED(k) is told by whoever has the shard now.
  }

  private release(): void {
    if (!this.heldReduced || this.table.state === 'ASKING' || this.table.state === 'DEPOSED' || this.pending.size > 0) return;
    const message = this.heldReduced;
    this.heldReduced = undefined;
    this.options.coordinator.tell(message);
  }
}

function copyOf(gradient: Region): Region {
  const copy = acquireRegion(gradient.arena, gradient.length);
  copy.floats.set(gradient.floats);
  return copy;
}
