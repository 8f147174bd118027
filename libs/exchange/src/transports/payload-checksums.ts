/**
 * Checksums of chunks that are being sent. A server sends one chunk to every worker: its checksum is taken once, because the
 * contract of `sendData` keeps the bytes unchanged until the last send has flushed. After that the next send takes it anew.
 *
 * It is taken when the first of them is handed to its socket: the operating system then copies what lies in the cache.
 */
import { checksumOf } from '@paceline/kernels';

interface Entry {
  checksum: number | undefined;
  sends: number;
}

export class PayloadChecksums {
  private readonly entries = new WeakMap<Uint8Array, Entry>();

  /** `payload` waits to be sent, and stays as it is until `release` has been called as often. */
  hold(payload: Uint8Array): void {
    const entry = this.entries.get(payload);
    if (entry) entry.sends++;
    else this.entries.set(payload, { checksum: undefined, sends: 1 });
  }

  /** The checksum of a payload that is held. */
  take(payload: Uint8Array): number {
    const entry = this.entries.get(payload);
    if (!entry) throw new Error('the checksum of a payload that nobody holds was taken');
    return (entry.checksum ??= checksumOf(payload));
  }

  release(payload: Uint8Array): void {
    const entry = this.entries.get(payload);
    if (entry && --entry.sends === 0) this.entries.delete(payload);
  }
}

/** One for the process: what is shared is which bytes are unchanged, not a connection's state. */
export const sendingChecksums = new PayloadChecksums();
