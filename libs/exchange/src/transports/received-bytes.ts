/**
 * Whether something comes over a connection. A peer on a slow link is not silent while the bytes of a long frame arrive, and one whose gradient
 * arrives makes progress, whatever waits behind it in its queue.
 */
import type { Connection } from '../connection.js';

export class ReceivedBytes {
  private bytes: number;
  private dataBytes: number;

  constructor(private readonly connection: Pick<Connection, 'receivedBytes' | 'receivedDataBytes'>) {
    this.bytes = connection.receivedBytes;
    this.dataBytes = connection.receivedDataBytes;
  }

  /** Bytes have come since this was asked before. */
  haveCome(): boolean {
    const { receivedBytes } = this.connection;
    const isNew = receivedBytes !== this.bytes;
    this.bytes = receivedBytes;
    return isNew;
  }

  /** The same for payloads of gradients and parameters. */
  haveDataCome(): boolean {
    const { receivedDataBytes } = this.connection;
    const isNew = receivedDataBytes !== this.dataBytes;
    this.dataBytes = receivedDataBytes;
    return isNew;
  }
}
