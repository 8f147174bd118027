/** Whether what the page shows is live: every poll and subscription reports here, and the header shows the sum. */
export type ConnectionState = 'live' | 'lost';

export class Connection {
  readonly #lost = new Set<string>();
  readonly #listeners = new Set<() => void>();

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

  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  };

  readonly state = (): ConnectionState => (this.#lost.size > 0 ? 'lost' : 'live');
}
