/**
 * Connections that have not said hello, and which of them goes when there are too many: one, by chance, of the source that has the most. A
 * flood from one host pushes out its own connections and nobody else's, however slow the others' links are. Behind one source, or in a flood from
 * everywhere, the choice by chance leaves each the same part of the time: the oldest first would push out whoever needs longer for a trip than the
 * flood needs to fill the room, every time.
 */
import { isIPv6 } from 'node:net';

export class PendingConnections<C> {
  private readonly bySource = new Map<string, C[]>();
  private readonly sources = new Map<C, string>();

  /** @param random uniform in [0, 1) */
  constructor(private readonly random: () => number) {}

  get size(): number {
    return this.sources.size;
  }

  [Symbol.iterator](): Iterator<C> {
    return this.sources.keys();
  }

  add(connection: C, source: string): void {
    this.sources.set(connection, source);
    const group = this.bySource.get(source);
    if (group) group.push(connection);
    else this.bySource.set(source, [connection]);
  }

  delete(connection: C): void {
    const source = this.sources.get(connection);
    if (source === undefined) return;
    this.sources.delete(connection);
    const group = this.bySource.get(source)!;
    if (group.length === 1) this.bySource.delete(source);
    else group.splice(group.indexOf(connection), 1);
  }

  /** Undefined when there are none. */
  victim(): C | undefined {
    let largest: C[][] = [];
    for (const group of this.bySource.values()) {
      const most = largest[0]?.length ?? 0;
      if (group.length > most) largest = [group];
      else if (group.length === most) largest.push(group);
    }
    const group = this.oneOf(largest);
    return group && this.oneOf(group);
  }

  private oneOf<T>(list: readonly T[]): T | undefined {
    return list[Math.floor(this.random() * list.length)];
  }
}

/** The source whose connections count together: an IPv4 address, the /64 of an IPv6 address (a host has all of it), or the Unix socket. */
export function sourceOf(remoteAddress: string | undefined): string {
  if (remoteAddress === undefined) return '';
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(remoteAddress);
  if (mapped) return mapped[1]!;
  if (!isIPv6(remoteAddress)) return remoteAddress;
  const [front = '', back] = remoteAddress.split('%')[0]!.toLowerCase().split('::');
  const [before, after] = [front, back ?? ''].map((part) => part.split(':').filter((group) => group !== ''));
  const zeros = back === undefined ? 0 : 8 - before!.length - after!.length;
  return [...before!, ...Array<string>(zeros).fill('0'), ...after!].slice(0, 4).join(':');
}
