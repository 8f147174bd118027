/** The transports of libs/exchange for members: TCP at the address of the cluster, and beside it a Unix socket for members of the same host. */
import { createHash } from 'node:crypto';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect, listen, type Connection } from '@paceline/exchange';
import type { MemberAddress } from './cluster-spec.js';
import type { Transport } from './join.js';

export interface SocketTransportOptions {
  readonly members: readonly MemberAddress[];
  readonly self: number;
  /** UUID of the group: part of the names of its sockets. */
  readonly group: string;
  /** `auto`: the Unix socket where both members see it, else TCP. */
  readonly kind: 'auto' | 'tcp' | 'unix';
  /** Where Unix sockets are. Default: the folder for temporary files. */
  readonly folder?: string;
  /** Whether what is sent carries checksums. Default: over TCP. */
  readonly checksum?: boolean;
}

const CONNECT_DEADLINE_MS = 5_000;
const MOST_QUEUED_BYTES = 2 ** 31 - 1;

export function socketTransport({ members, self, group, kind, folder = tmpdir(), checksum }: SocketTransportOptions): Transport {
  const unixPath = (member: number): string => {
    const name = createHash('sha256').update(`${group} ${member}`).digest('hex').slice(0, 20);
    return join(folder, `paceline-${name}.sock`);
  };
  const options = { maxQueuedBytes: MOST_QUEUED_BYTES, ...(checksum === undefined ? {} : { checksum }) };
  return {
    listen: (onConnection: (connection: Connection) => void) => {
      const { host, port } = members[self]!;
      const tcp = kind === 'unix' ? {} : { host, port };
      return listen({ ...tcp, ...(kind === 'tcp' ? {} : { unixPath: unixPath(self) }) }, onConnection, options);
    },
    connect: (member) => {
      const { host, port } = members[member]!;
      return connect({ host, port, unixPath: unixPath(member) }, { ...options, transport: kind, deadlineMs: CONNECT_DEADLINE_MS });
    },
  };
}
