/**
 * Bytes on the sockets of a worker, in all its connections of one seat. What was saved by a codec is counted chunk by chunk, and by connections where several chunks leave in one frame, so that they can be compared
 * with those of the same run without one. There replicas are added up before they are sent: a frame that has nothing to stand for has cost what it is
 * long. What stays in the process, between a worker and a shard of its own, passes no socket.
 */
import type { TrafficBytes } from '@paceline/protocol';
import type { Connection } from '../connection.js';

type Counted = Pick<Connection, 'sentBytes' | 'receivedBytes' | 'savedSentBytes' | 'savedReceivedBytes' | 'remote'>;

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
    this.savedToServersBytes += connection.savedSentBytes;
    this.savedToWorkersBytes += connection.savedReceivedBytes;
  }

  /** @param savedBytes by which a payload is shorter than its float32 elements; below 0: by which it is longer than what would be sent in its place */
  sent(connection: Pick<Connection, 'remote'>, savedBytes: number): void {
    if (isSocket(connection)) this.savedToServersBytes += savedBytes;
  }

  received(connection: Pick<Connection, 'remote'> | undefined, savedBytes: number): void {
    if (connection && isSocket(connection)) this.savedToWorkersBytes += savedBytes;
  }

  /** @param open the connections that are there */
  counts(open: readonly (Counted | undefined)[]): TrafficBytes {
    let [toServersBytes, toWorkersBytes] = [this.toServersBytes, this.toWorkersBytes];
    let [savedToServersBytes, savedToWorkersBytes] = [this.savedToServersBytes, this.savedToWorkersBytes];
    for (const connection of open) {
      if (!connection || !isSocket(connection)) continue;
      toServersBytes += connection.sentBytes;
      toWorkersBytes += connection.receivedBytes;
      savedToServersBytes += connection.savedSentBytes;
      savedToWorkersBytes += connection.savedReceivedBytes;
    }
    // A frame in the queue is in what is saved, and not yet in what is sent.
    const denseToServersBytes = Math.max(0, toServersBytes + savedToServersBytes);
    return { toServersBytes, toWorkersBytes, denseToServersBytes, denseToWorkersBytes: toWorkersBytes + savedToWorkersBytes };
  }
}
