/**
 * Which connections still say something. Both sides of a connection speak at least every second, so whoever sends no byte for
 * `silentAfterMs` is behind a dead link, or stopped: the connection is closed, and opened again by the side that needs it. Bytes count, not
 * frames: a chunk on a slow link takes longer than that.
 *
 * A process that was itself stopped finds its sockets full of what it did not read: after a gap between two ticks everybody
 * counts as heard again.
 */
import { ProtocolError } from '@paceline/protocol';
import type { Clock } from '../clock.js';
import type { Connection } from '../connection.js';
import { ReceivedBytes } from './received-bytes.js';

export interface PeerTimeoutsOptions {
  readonly silentAfterMs: number;
  /** How often `tick` is called. */
  readonly tickMs: number;
}

export class PeerTimeouts {
  private readonly watched = new Map<Connection, { readonly received: ReceivedBytes; heardMs: number }>();
  private lastTickMs: number;

  constructor(
    private readonly clock: Pick<Clock, 'now'>,
    private readonly options: PeerTimeoutsOptions,
  ) {
    this.lastTickMs = clock.now();
  }

  /** The connection was opened. */
  watch(connection: Connection): void {
    this.watched.set(connection, { received: new ReceivedBytes(connection), heardMs: this.clock.now() });
  }

  forget(connection: Connection): void {
    this.watched.delete(connection);
  }

  /** Those that are watched. */
  connections(): Connection[] {
    return [...this.watched.keys()];
  }

  /** Closes what is silent. Call it every `tickMs`. */
  tick(): void {
    const now = this.clock.now();
    const wasStopped = now - this.lastTickMs > 3 * this.options.tickMs + 1_000;
    this.lastTickMs = now;
    for (const [connection, peer] of this.watched) {
      if (peer.received.haveCome() || wasStopped) peer.heardMs = now;
      else if (now - peer.heardMs > this.options.silentAfterMs)
        connection.close(new ProtocolError('SILENT_PEER', `nothing heard for ${Math.round(now - peer.heardMs)} ms`));
    }
  }
}
