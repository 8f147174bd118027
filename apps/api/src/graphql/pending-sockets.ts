/**
 * WebSockets that have not shown a key yet, and which of them goes when there are too many: one, by chance, of the address that has the most. So a
 * flood from one host pushes out its own sockets and nobody else's. The data plane does the same with connections that have not said
 * hello, and has the reason why the choice is by chance (libs/exchange/src/transports/pending-connections.ts).
 */
export class PendingSockets<S> {
  private readonly bySource = new Map<string, S[]>();
  private readonly sources = new Map<S, string>();

  /** @param random uniform in [0, 1) */
  constructor(
    private readonly limits: { readonly inAll: number; readonly perSource: number },
    private readonly random: () => number = Math.random,
  ) {}

  get size(): number {
    return this.sources.size;
  }

  /** @returns the one that has to go for it */
  add(socket: S, source: string): S | undefined {
    const own = this.bySource.get(source) ?? [];
    let crowd: S[] | undefined;
    if (own.length >= this.limits.perSource) crowd = own;
    else if (this.size >= this.limits.inAll)
      crowd = [...this.bySource.values()].reduce((most, group) => (group.length > most.length ? group : most));
    const victim = crowd?.[Math.floor(this.random() * crowd.length)];
    if (victim !== undefined) this.delete(victim);
    this.sources.set(socket, source);
    const group = this.bySource.get(source);
    if (group) group.push(socket);
    else this.bySource.set(source, [socket]);
    return victim;
  }

  delete(socket: S): void {
    const source = this.sources.get(socket);
    if (source === undefined) return;
    this.sources.delete(socket);
    const group = this.bySource.get(source)!;
    if (group.length === 1) this.bySource.delete(source);
    else group.splice(group.indexOf(socket), 1);
  }
}
