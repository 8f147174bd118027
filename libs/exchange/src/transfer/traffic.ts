/**
 * Bytes on the sockets of a worker, in all its connections of one seat. What was saved by a codec is counted frame by frame, so that the same frames can
 * be compared with what they would have been without one. What stays in the process, between a worker and a shard of its own, passes no socket.
 */
import type { TrafficBytes } from '@paceline/protocol';
import type { Connection } from '../connection.js';

type Counted = Pick<Connection, 'sentBytes' | 'receivedBytes' | 'remote'>;

const isSocket = ({ remote }: Pick<Connection, 'remote'>): boolean => remote !== 'memory';

export class WorkerTraffic {
  private toServersBytes = 0;
  private toWorkersBytes = 0;
  private savedToServersBytes = 0;
  private savedToWorkersBytes = 0;

  /** A connection is gone; what passed over it stays counted. */
  ended(connection: Counted): void {
    if (!isSocket(connection)) return;
    this.toServersBytes += connection.sentBytes;
    this.toWorkersBytes += connection.receivedBytes;
  }

  /** @param savedBytes by which a payload is shorter than its float32 elements */
  sent(connection: Pick<Connection, 'remote'>, savedBytes: number): void {
    if (isSocket(connection)) this.savedToServersBytes += savedBytes;
  }

  received(connection: Pick<Connection, 'remote'> | undefined, savedBytes: number): void {
    if (connection && isSocket(connection)) this.savedToWorkersBytes += savedBytes;
  }

  /** @param open the connections that are there */
  counts(open: readonly (Counted | undefined)[]): TrafficBytes {
    let [toServersBytes, toWorkersBytes] = [this.toServersBytes, this.toWorkersBytes];
    for (const connection of open) {
      if (!connection || !isSocket(connection)) continue;
      toServersBytes += connection.sentBytes;
      toWorkersBytes += connection.receivedBytes;
    }
    const denseToServersBytes = toServersBytes + this.savedToServersBytes;
    return { toServersBytes, toWorkersBytes, denseToServersBytes, denseToWorkersBytes: toWorkersBytes + this.savedToWorkersBytes };
  }
}
