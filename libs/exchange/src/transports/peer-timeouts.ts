/**
 * Which connections still say something. Both sides of a connection speak at least every second, so whoever says nothing for
 * `silentAfterMs` is behind a dead link, or stopped: the connection is closed, and opened again by the side that needs it.
 *
 * A process that was itself stopped finds its sockets full of what it did not read: after a gap between two ticks everybody
 * counts as heard again.
 */
import { ProtocolError } from '@paceline/protocol';
import type { Clock } from '../clock.js';
import type { Connection } from '../connection.js';

export interface PeerTimeoutsOptions {
  readonly silentAfterMs: number;
  /** How often `tick` is called. */
  readonly tickMs: number;
}

export class PeerTimeouts {
  private readonly heardMs = new Map<Connection, number>();
  private lastTickMs: number;

  constructor(
    private readonly clock: Pick<Clock, 'now'>,
    private readonly options: PeerTimeoutsOptions,
  ) {
    this.lastTickMs = clock.now();
  }

  /** Something has come on the connection, or it was opened. */
  heard(connection: Connection): void {
    this.heardMs.set(connection, this.clock.now());
  }

  forget(connection: Connection): void {
    this.heardMs.delete(connection);
  }

  /** Those that are watched. */
  connections(): Connection[] {
    return [...this.heardMs.keys()];
  }

  /** Closes what is silent. Call it every `tickMs`. */
  tick(): void {
    const now = this.clock.now();
    const wasStopped = now - this.lastTickMs > 3 * this.options.tickMs + 1_000;
    this.lastTickMs = now;
    for (const [connection, heardMs] of this.heardMs) {
      if (wasStopped) this.heardMs.set(connection, now);
      else if (now - heardMs > this.options.silentAfterMs)
        connection.close(new ProtocolError('SILENT_PEER', `nothing heard for ${Math.round(now - heardMs)} ms`));
    }
  }
}
