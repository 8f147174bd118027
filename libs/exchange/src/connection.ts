/**
 * The one interface of all transports: in-process, Unix socket, TCP. A connection carries data frames in order, both ways, with messages before
 * those that wait, and says when it is closed. It knows nothing of rounds.
 */
import type { FrameHeader, Message, ProtocolError } from '@paceline/protocol';

export type TransportKind = 'memory' | 'unix' | 'tcp' | 'tls';

/** Where received bytes go and who handles them. One receiver per connection. */
export interface FrameReceiver {
  /**
   * Called when the header of a data frame (gradient, parameters) is known and checked, before its payload is read:
   * returns exactly `header.length` bytes to receive into (an arena region, or scratch for what will be dropped).
   * @throws ProtocolError to refuse: the connection is closed with that code.
   */
  payloadFor(header: FrameHeader): Uint8Array;
  /**
   * One of several chunks that have come in one frame is as payloadFor takes it. All of them are asked about before the first is handed over, and
   * nothing is kept of it. Left out: they are checked one by one, by payloadFor.
   * @throws ProtocolError as payloadFor
   */
  check?(header: FrameHeader): void;
  /** A whole data frame has come; `payload` is what payloadFor returned. */
  data(header: FrameHeader, payload: Uint8Array): void;
  /** A control message has come, already schema-checked. */
  message(message: Message, header: FrameHeader): void;
  /** Called once, whatever the cause; a partial frame has been dropped (`payload` of an unfinished data frame is given back). */
  closed(reason: ConnectionClosed): void;
}

export interface ConnectionClosed {
  /** The local or remote protocol error that ended it, if there was one. */
  readonly error?: ProtocolError | undefined;
  readonly description: string;
  /** The region that payloadFor had handed out for a frame that never became whole. */
  readonly unfinished?: { header: FrameHeader; payload: Uint8Array } | undefined;
}

/** The numbers that order a frame (docs/protocol.md §2); zero where a message does not need one. */
export interface FrameNumbers {
  attempt: number;
  term: number;
  view: number;
  round: number;
}

/** Where a message goes in the queue of its connection. */
export type MessagePlace = 'first' | 'behind data';

export interface Connection {
  readonly kind: TransportKind;
  /** For logs: path or address of the peer. */
  readonly remote: string;
  /** Bytes handed to `send` and not yet taken by the operating system. */
  readonly queuedBytes: number;
  /** Bytes handed to the operating system so far, headers included. */
  readonly sentBytes: number;
  /** By how many bytes what was sent is shorter than it would be with each chunk in a frame of its own. */
  readonly savedSentBytes: number;
  /** The same of what has come. */
  readonly savedReceivedBytes: number;
  /** Bytes received so far, headers included. It moves while a large frame is on its way: a peer on a slow link is not silent. */
  readonly receivedBytes: number;
  /** The bytes of data payloads among them, also of one that is not whole yet. */
  readonly receivedDataBytes: number;
  readonly isOpen: boolean;
  /** What HELLO has to repeat, on a connection that this side has accepted. Others have none. */
  readonly challenge: string | undefined;
  setReceiver(receiver: FrameReceiver): void;
  /**
   * A message leaves before all data frames that have not begun to leave, and after the messages before it. `'behind data'`: after everything that
   * was sent before it, where the receiver relies on that.
   */
  sendMessage(message: Message, numbers: FrameNumbers, place?: MessagePlace): void;
  /**
   * Sends a data frame. Small encoded chunks that wait one behind the other leave in one frame, and come out of it as if each had come alone. `payload` must not change before `onFlushed` (called exactly once: when the bytes have left, or when the connection closed).
   * Sending on a closed connection only calls `onFlushed`.
   */
  sendData(header: Omit<FrameHeader, 'length' | 'payloadChecksum' | 'flags'>, payload: Uint8Array, onFlushed?: () => void): void;
  /** Closes at once; with an error, a `refused` message is sent first as far as the socket takes it. */
  close(error?: ProtocolError): void;
}

export interface Listener {
  readonly address: string;
  close(): Promise<void>;
}
