/** The transports of libs/exchange for members: TCP at the address of the cluster, and beside it a Unix socket for members of the same host. */
import { createHash } from 'node:crypto';
import { lstatSync, mkdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect, listen, type Connection } from '@paceline/exchange';
import type { MemberAddress } from './cluster-spec.js';
import { ClusterError } from './errors.js';
import type { Transport } from './join.js';

export interface SocketTransportOptions {
  readonly members: readonly MemberAddress[];
  readonly self: number;
  /** UUID of the group: part of the names of its sockets. */
  readonly group: string;
  /** `auto`: the Unix socket where both members see it, else TCP. */
  readonly kind: 'auto' | 'tcp' | 'unix';
  /** Where this member listens, if not at its address in the cluster: `0.0.0.0` for all interfaces. */
  readonly listenHost?: string | undefined;
  /** Where Unix sockets are. Default: a folder of this user alone. */
  readonly folder?: string;
  /** Whether what is sent carries checksums. Default: over TCP. */
  readonly checksum?: boolean;
}

const CONNECT_DEADLINE_MS = 5_000;
const MOST_QUEUED_BYTES = 2 ** 31 - 1;

/** @throws ClusterError where Unix sockets are asked for and there is no safe place for them */
export function socketTransport({ members, self, group, kind, listenHost, folder, checksum }: SocketTransportOptions): Transport {
  const place = kind === 'tcp' ? undefined : (folder ?? privateFolder(kind));
  const unixPath = (member: number): string | null => {
    const name = createHash('sha256').update(`${group} ${member}`).digest('hex').slice(0, 20);
    return place === undefined ? null : join(place, `${name}.sock`);
  };
  const options = { maxQueuedBytes: MOST_QUEUED_BYTES, ...(checksum === undefined ? {} : { checksum }) };
  return {
    listen: async (onConnection: (connection: Connection) => void) => {
      const { host, port } = members[self]!;
      const path = unixPath(self) ?? undefined;
      const tcp = { host: listenHost ?? host, port };
      try {
        return await listen({ ...(kind === 'unix' ? {} : tcp), unixPath: path }, onConnection, options);
      } catch (error) {
        // The path may be too long, or in a file system without sockets. Where it is another member's, others would find that one.
        if (kind !== 'auto' || path === undefined || (error as { code?: string }).code === 'PATH_IN_USE') throw error;
        return listen(tcp, onConnection, options);
      }
    },
    connect: async (member) => {
      const { host, port } = members[member]!;
      const address = { host, port, unixPath: unixPath(member) };
      const dial = (): Promise<Connection> => connect(address, { ...options, transport: kind, deadlineMs: CONNECT_DEADLINE_MS });
      const connection = await dial();
      // A member opens its Unix socket before its port: where the path was not there yet and the port is, the path is there now.
      if (kind !== 'auto' || connection.kind === 'unix' || address.unixPath === null || !exists(address.unixPath)) return connection;
      connection.close();
      return dial();
    },
  };
}

function exists(path: string): boolean {
  try {
    return lstatSync(path, { throwIfNoEntry: false }) !== undefined;
  } catch {
    return false; // not ours to see
  }
}

/** Nobody else can put a socket there, or knock at one. @returns undefined where there is none and TCP will do */
export function privateFolder(kind: 'auto' | 'unix', parent = tmpdir()): string | undefined {
  const uid = process.getuid?.(); // a user of a container often has no name, and no entry that userInfo could read
  const folder = join(parent, `paceline-${uid}`);
  let why: string;
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    const found = lstatSync(folder);
    if (found.isDirectory() && found.uid === uid && (found.mode & 0o077) === 0) return folder;
    why = 'it is not a folder that its user alone may enter';
  } catch (error) {
    why = (error as Error).message;
  }
  if (kind === 'auto') return undefined;
  throw new ClusterError(`transport: Unix sockets of members lie in ${folder}, and ${why}: remove it, or use transport tcp`);
}
