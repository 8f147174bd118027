/** The members behind one DNS name: a headless service, the tasks of a Docker service, or several A records. Each member is the address that it has itself. */
import { promises as dns } from 'node:dns';
import { isIP, isIPv6 } from 'node:net';
import { networkInterfaces } from 'node:os';
import { processClock, type Clock } from '@paceline/exchange';
import { ClusterSpec, type ClusterResolver, type Resolved } from './cluster-spec.js';
import { ClusterError } from './errors.js';

export interface DnsOptions {
  readonly name: string;
  /** How many addresses of the family the name has when all processes are there. */
  readonly members: number;
  /** The addresses that count, where members have one of each family. By default IPv4, and IPv6 while the name has no IPv4 address. */
  readonly family?: 4 | 6;
  /** The same for all members. */
  readonly port: number;
  /** For the name to have all addresses; 300,000 ms by default. */
  readonly deadlineMs?: number;
  readonly lookUp?: (name: string) => Promise<readonly string[]> | readonly string[];
  /** Addresses of this machine; by default those of its network interfaces. */
  readonly ownAddresses?: readonly string[];
  readonly clock?: Clock;
}

const DEADLINE_MS = 300_000;
const RETRY_MS = 1_000;
/** For one look-up, also where the deadline is nearer. */
const LEAST_LOOKUP_MS = 1_000;

export class DnsClusterResolver implements ClusterResolver {
  private constructor(private readonly resolved: Resolved) {}

  /**
   * Looks the name up until it has the addresses of all members.
   * @throws ClusterError when it has not within the deadline, or when none of them is of this machine
   */
  static async lookUp(options: DnsOptions): Promise<DnsClusterResolver> {
    const { name, members, port, deadlineMs = DEADLINE_MS, ownAddresses = interfaceAddresses(), clock = processClock } = options;
    const { lookUp = defaultLookUp } = options;
    if (!Number.isInteger(members) || members < 1)
      throw new ClusterError(`members must be the number of processes behind ${name}, not ${String(members)}`);
    if (options.family !== undefined && ![4, 6].includes(options.family))
      throw new ClusterError(`family must be 4 or 6, not ${String(options.family)}`);
    const sinceMs = clock.now();
    for (;;) {
      const found = await answered(async () => lookUp(name), clock, Math.max(LEAST_LOOKUP_MS, sinceMs + deadlineMs - clock.now())).then(
        (addresses): readonly string[] => [...new Set(ofFamily(addresses, options.family))].sort(), // every member takes the same order
        (error: unknown) => (error instanceof Error ? error : new Error(String(error))),
      );
      if (!(found instanceof Error) && found.length === members) return new DnsClusterResolver(placed(name, found, port, ownAddresses));
      if (clock.now() - sinceMs >= deadlineMs) throw late(options, deadlineMs, found);
      await new Promise<void>((resolve) => void clock.after(RETRY_MS, resolve));
    }
  }

  resolve(): Resolved {
    return this.resolved;
  }
}

/** A name server that says nothing does not hold the deadline up. What it says later is heard by nobody. */
async function answered<T>(ask: () => Promise<T>, clock: Clock, withinMs: number): Promise<T> {
  const asked = ask();
  let cancel: (() => void) | undefined;
  const late = new Promise<never>((_, reject) => {
    cancel = clock.after(withinMs, () => reject(new Error(`the look-up took longer than ${Math.round(withinMs)} ms`)));
  });
  asked.catch(() => undefined); // what comes after the deadline has no reader
  try {
    return await Promise.race([asked, late]);
  } finally {
    cancel?.();
  }
}

/** With both families a name has two addresses of each member, and perhaps as many as members when half of them are there. */
function ofFamily(addresses: readonly string[], family: 4 | 6 | undefined): readonly string[] {
  const wanted = family ?? (addresses.some((address) => isIP(address) === 4) ? 4 : 6);
  return addresses.filter((address) => isIP(address) === wanted);
}

function placed(name: string, addresses: readonly string[], port: number, own: readonly string[]): Resolved {
  const index = addresses.findIndex((address) => own.includes(address));
  if (index < 0)
    throw new ClusterError(
      `none of the addresses of ${name} (${addresses.join(', ')}) is of this machine (${own.join(', ')}): give ownAddresses, or a resolver that knows the task`,
    );
  const worker = addresses.map((address) => `${isIPv6(address) ? `[${address}]` : address}:${port}`);
  return { cluster: new ClusterSpec({ worker }), task: { type: 'worker', index } };
}

function late({ name, members }: DnsOptions, deadlineMs: number, found: readonly string[] | Error): ClusterError {
  const what = found instanceof Error ? found.message : `it has ${found.length} (${found.join(', ')})`;
  return new ClusterError(
    `waited ${deadlineMs} ms for ${name} to have ${members} addresses of one family, and ${what}: start all processes, and give members as many as there are`,
  );
}

const defaultLookUp = async (name: string): Promise<string[]> => (await dns.lookup(name, { all: true })).map(({ address }) => address);

const interfaceAddresses = (): string[] =>
  Object.values(networkInterfaces()).flatMap((entries) => (entries ?? []).map(({ address }) => address));
