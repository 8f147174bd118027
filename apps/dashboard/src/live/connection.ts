/**
 * Whether what the page shows is live: every poll and subscription reports here, and the header shows the sum. A channel is lost when its
 * request failed, or has no answer for SILENT_AFTER_MS: an api that hangs says as little as one that is gone.
 */
import type { SocketState } from '@paceline/client';

export type ConnectionState = 'live' | 'lost';

/** Longer than a slow answer of a busy api, and short enough that nobody reads old figures as new ones. */
export const SILENT_AFTER_MS = 3_000;

/** The channel of the WebSocket that all subscriptions share. */
const SOCKET = 'socket';

export class Connection {
  readonly #lost = new Set<string>();
  readonly #listeners = new Set<() => void>();
  #following = 0;
  #heardAtMs: number;

  /** @param now a clock that never goes back */
  constructor(private readonly now: () => number = () => performance.now()) {
    this.#heardAtMs = now();
  }

  report(channel: string, state: ConnectionState): void {
    const before = this.#lost.size;
    if (state === 'lost') this.#lost.add(channel);
    else this.#lost.delete(channel);
    if (this.#lost.size !== before) for (const listener of this.#listeners) listener();
  }

  /** A channel that has ended says nothing about the connection. */
  forget(channel: string): void {
    this.report(channel, 'live');
  }

  /** The socket is opened again only by a subscription: while nobody wants one, a socket that broke is no outage. */
  reportSocket(state: SocketState): void {
    this.report(SOCKET, state === 'lost' && this.#following > 0 ? 'lost' : 'live');
  }

  /** @param followed a subscription with all its waits between attempts: settles when nobody wants it any more */
  async whileFollowing(followed: Promise<void>): Promise<void> {
    this.#following++;
    try {
      await followed;
    } finally {
      this.#following--;
      if (this.#following === 0) this.forget(SOCKET);
    }
  }

  /** Gives the answer; reports a silence that lasts too long. What became of the request is for the caller to report. */
  async watched<T>(channel: string, answer: Promise<T>, signal: AbortSignal): Promise<T> {
    const timer = setTimeout(() => void (signal.aborted || this.report(channel, 'lost')), SILENT_AFTER_MS);
    try {
      const answered = await answer;
      this.#heardAtMs = this.now();
      return answered;
    } finally {
      clearTimeout(timer);
    }
  }

  /** How long ago the last answer came. */
  silentForMs(): number {
    return this.now() - this.#heardAtMs;
  }

  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  };

  readonly state = (): ConnectionState => (this.#lost.size > 0 ? 'lost' : 'live');
}
