/** What a framed connection stands on: a socket, or a pipe in memory. */
import type { TransportKind } from '../connection.js';

export interface ByteStream {
  readonly kind: TransportKind;
  /** For logs: path or address of the peer. */
  readonly remote: string;
  /** Writes the parts in order; `done` is called once, in a later turn, when they may be reused. One write at a time. */
  write(parts: readonly Uint8Array[], done: () => void): void;
  /** Calls `act` once, when what has come by now is read. A stream that does not have it is written to at once. */
  afterReads?(act: () => void): void;
  /** Starts or stops reading. A new stream does not read. */
  setReading(on: boolean): void;
  /** Nothing more is written; what was written still leaves. */
  end(): void;
  /** At once: after the call no region is read or written any more. The consumer's `streamClosed` follows in a later turn. */
  destroy(): void;
}

/** What a stream calls. */
export interface ByteConsumer {
  /** Where the next bytes go, for streams that read in place. */
  destination(): Uint8Array;
  /** This many bytes were written to the last destination. */
  filled(count: number): void;
  /** Bytes that lie elsewhere. */
  fed(bytes: Uint8Array): void;
  /** The peer writes no more. */
  streamEnded(): void;
  /** The stream is gone. Called once. */
  streamClosed(cause: Error | undefined): void;
}
