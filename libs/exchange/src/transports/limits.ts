/** The bounds of a connection, each with its default; what is reached is refused with a typed error. */
import { processClock, type Clock } from '../clock.js';
import { createCounters, type TransportCounters } from './counters.js';
import type { Link } from './link.js';
import type { TlsSettings } from './tls/identity.js';

export interface ConnectionOptions {
  /** Bytes that `send` may hold before the peer counts as a slow consumer. Default 256 MiB; servers and workers set 2 GiB. */
  readonly maxQueuedBytes?: number;
  /** Whether sent payloads carry a checksum. Default: on over TCP without TLS, off elsewhere. A received one is always checked. */
  readonly checksum?: boolean;
  /** Read payloads straight into the receiver's regions (default), or by 'data' events with one more copy. */
  readonly directReads?: boolean;
  /** After a close, how long the last messages may take to leave before the socket is destroyed. Default 1,000 ms. */
  readonly lingerMs?: number;
  /** Where frames, bytes and refusals are counted; several connections may share one. */
  readonly counters?: TransportCounters;
  /** Times the linger, and says what a later turn is. Default: that of the process. */
  readonly clock?: Clock;
  /** A slow link, in front of the sockets of all connections that are given it. */
  readonly link?: Link | undefined;
  /** TCP connections are encrypted, and both ends show certificates. Unix sockets stay as they are. */
  readonly tls?: TlsSettings | undefined;
}

export type ResolvedOptions = Required<Omit<ConnectionOptions, 'checksum' | 'link' | 'tls'>> &
  Pick<ConnectionOptions, 'link' | 'tls'> & { readonly checksum: boolean | undefined };

export const DEFAULT_MAX_QUEUED_BYTES = 256 << 20;
export const DEFAULT_LINGER_MS = 1000;
/** A closing connection reads and drops at most this much, so that its last message is not lost to a TCP reset. */
export const MAX_DRAINED_BYTES = 4 << 20;
/** A hello carries an access token of at most 4 KiB and some names. */
export const MAX_HELLO_BYTES = 16 << 10;
export const KEEP_ALIVE_DELAY_MS = 10_000;

export function resolveOptions(options: ConnectionOptions): ResolvedOptions {
  return {
    maxQueuedBytes: options.maxQueuedBytes ?? DEFAULT_MAX_QUEUED_BYTES,
    checksum: options.checksum,
    directReads: options.link ? false : (options.directReads ?? true),
    lingerMs: options.lingerMs ?? DEFAULT_LINGER_MS,
    counters: options.counters ?? createCounters(),
    clock: options.clock ?? processClock,
    link: options.link,
    tls: options.tls,
  };
}
