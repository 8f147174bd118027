/**
 * Requests and answers over one connection between two tasks, both ways. Each is a small body and parts of bytes:
 *
 *     REQUEST  the message says the name, the body and the lengths of the parts; the parts follow in frames
 *     WORK     the handler of the other side, which may itself ask others
 *     ANSWER   the same way, or an error
 *
 * Several requests may be under way at once. They are handled when all of their parts are here, in the order in which that is so. A request ends with its
 * answer, with the connection, or when nothing has come or left for its deadline.
 */
import type { CancelTimer, Clock } from '@paceline/exchange';
import { FrameType, ProtocolError, type FrameHeader, type Message, type MessageOf } from '@paceline/protocol';
import type { Link } from '../link.js';
import { PIECE_LENGTH } from '../parts.js';

export interface Content {
  /** Becomes JSON. */
  readonly body?: unknown;
  /** They must not change before the answer is here; those of an answer, before they have left. */
  readonly parts?: readonly Uint8Array[];
}

export interface Received {
  readonly body: unknown;
  readonly parts: readonly Uint8Array[];
}

/** @throws TaskError whose code the other side is told */
export type Handler = (name: string, received: Received) => Promise<Content>;

/** What a request has failed with: at the other task, or because that is gone. */
export class TaskError extends Error {
  override readonly name = 'TaskError';
  constructor(
    readonly code: string,
    message: string,
  ) {
    super(message);
  }
}

/** The connection has ended, or nothing came in time. */
export const GONE = 'GONE';

export interface PeerOptions {
  readonly link: Link;
  /** The name of the other task, for people. */
  readonly name: string;
  readonly clock: Clock;
  readonly handler: Handler;
  readonly onGone?: (why: string) => void;
}

export interface RequestOptions {
  readonly deadlineMs: number;
  /** Where the parts of the answer go. Default: memory of their own. */
  readonly into?: readonly Uint8Array[];
}

const PIECE_BYTES = PIECE_LENGTH * 4;
const MOST_PENDING = 256;
const LOOK_MS = 1_000;
const MOST_BYTES = 2 ** 31;
const [OF_REQUEST, OF_ANSWER] = [0, 1];

interface Incoming {
  readonly message: MessageOf<'request'> | MessageOf<'answer'>;
  readonly parts: readonly Uint8Array[];
  readonly pieces: readonly Uint8Array[];
  missing: number;
}

interface Asked {
  readonly into: readonly Uint8Array[] | undefined;
  readonly resolve: (received: Received) => void;
  readonly reject: (error: Error) => void;
  cancel: CancelTimer;
}

const piecesOf = (parts: readonly Uint8Array[]): Uint8Array[] =>
  parts.flatMap((part) =>
    Array.from({ length: Math.ceil(part.length / PIECE_BYTES) }, (_, i) => part.subarray(i * PIECE_BYTES, (i + 1) * PIECE_BYTES)),
  );

export class Peer {
  private readonly incoming = new Map<string, Incoming>();
  private readonly asked = new Map<number, Asked>();
  private handling = 0;
  private number = 0;
  private gone: string | undefined;
  /** Bytes of parts. */
  readonly counters = { sentBytes: 0, receivedBytes: 0 };

  constructor(private readonly options: PeerOptions) {
    options.link.take({
      message: (message) => this.heard(message),
      payloadFor: (header) => this.destination(header),
      data: (header) => this.received(header),
      closed: (why) => this.closed(why),
    });
  }

  get isOpen(): boolean {
    return this.gone === undefined;
  }

  get name(): string {
    return this.options.name;
  }

  /** @throws TaskError */
  request(name: string, content: Content, { deadlineMs, into }: RequestOptions): Promise<Received> {
    if (this.gone !== undefined) return Promise.reject(new TaskError(GONE, this.gone));
    if (this.asked.size >= MOST_PENDING)
      return Promise.reject(new TaskError('SLOW_CONSUMER', `${MOST_PENDING} requests to ${this.name} are not answered yet`));
    const number = (this.number = (this.number + 1) % 2 ** 32);
    return new Promise((resolve, reject) => {
      const asked: Asked = { into, resolve, reject, cancel: () => undefined };
      this.asked.set(number, asked);
      this.watch(number, asked, name, deadlineMs);
      const { body, parts } = told(content);
      this.tell({ type: 'request', number, name, body, parts: parts.map(({ length }) => length) });
      this.send(number, OF_REQUEST, parts);
    });
  }

  close(reason: string): void {
    this.closed(reason);
    this.options.link.connection.close();
  }

  private tell(message: Message): void {
    this.options.link.connection.sendMessage(message, { attempt: 1, term: 0, view: 0, round: 0 });
  }

  private send(number: number, view: number, parts: readonly Uint8Array[]): void {
    const fields = { type: FrameType.parameters, codec: 0, attempt: 1, term: 0, view, round: number, nodeLo: 0, nodeHi: 0 };
    for (const [chunk, piece] of piecesOf(parts).entries()) {
      this.counters.sentBytes += piece.length;
      this.options.link.connection.sendData({ ...fields, chunk }, piece);
    }
  }

  /** Gives a request up when nothing has come or left for the deadline. */
  private watch(number: number, asked: Asked, name: string, deadlineMs: number): void {
    const { clock, link } = this.options;
    const moved = (): number => link.connection.receivedBytes + link.connection.sentBytes;
    // Counted in looks: the time for which this process was stopped is no wait.
    const lookMs = Math.min(LOOK_MS, deadlineMs);
    let [before, waitedMs] = [moved(), 0];
    const look = (): void => {
      const now = moved();
      waitedMs = now === before ? waitedMs + lookMs : 0;
      before = now;
      if (waitedMs < deadlineMs) {
        asked.cancel = clock.after(lookMs, look);
        return;
      }
      this.asked.delete(number);
      asked.reject(
        new TaskError(GONE, `waited ${deadlineMs} ms for ${this.name} to answer "${name}". Set deadlineMs where a step may take longer`),
      );
    };
    asked.cancel = clock.after(lookMs, look);
  }

  private heard(message: Message): void {
    if (message.type !== 'request' && message.type !== 'answer') {
      if (message.type === 'refused') return;
      throw new ProtocolError('BAD_MESSAGE', `a task of a cluster says no ${message.type}`);
    }
    if (message.parts.reduce((sum, length) => sum + length, 0) > MOST_BYTES)
      throw new ProtocolError('WRONG_LENGTH', `parts of more than ${MOST_BYTES} bytes`);
    if (this.incoming.size + this.handling >= MOST_PENDING) throw new ProtocolError('BAD_MESSAGE', 'too many requests at once');
    const into = message.type === 'answer' ? this.asked.get(message.number)?.into : undefined;
    const parts = message.parts.map((length, i) => (into?.[i]?.length === length ? into[i] : new Uint8Array(length)));
    const pieces = piecesOf(parts);
    const incoming = { message, parts, pieces, missing: pieces.length };
    if (pieces.length === 0) return this.arrived(incoming);
    this.incoming.set(keyOf(message.number, message.type === 'request' ? OF_REQUEST : OF_ANSWER), incoming);
    return undefined;
  }

  private destination({ round, view, chunk, length, type }: FrameHeader): Uint8Array {
    const piece = this.incoming.get(keyOf(round, view))?.pieces[chunk];
    if (!piece || type !== FrameType.parameters)
      throw new ProtocolError('UNKNOWN_CHUNK', `piece ${chunk} of request ${round}, which has no such piece`);
    if (piece.length !== length) throw new ProtocolError('WRONG_LENGTH', `${length} bytes for a piece of ${piece.length}`);
    return piece;
  }

  private received({ round, view, length }: FrameHeader): void {
    const incoming = this.incoming.get(keyOf(round, view))!;
    this.counters.receivedBytes += length;
    if (--incoming.missing > 0) return;
    this.incoming.delete(keyOf(round, view));
    this.arrived(incoming);
  }

  private arrived({ message, parts }: Incoming): void {
    let body: unknown;
    try {
      body = JSON.parse(message.body);
    } catch {
      throw new ProtocolError('BAD_MESSAGE', 'the body is not JSON');
    }
    if (message.type === 'request') return void this.handle(message, { body, parts });
    const asked = this.asked.get(message.number);
    if (!asked) return undefined; // it was given up
    this.asked.delete(message.number);
    asked.cancel();
    if (message.error) asked.reject(new TaskError(message.error.code, message.error.message));
    else asked.resolve({ body, parts });
    return undefined;
  }

  private async handle({ number, name }: MessageOf<'request'>, received: Received): Promise<void> {
    this.handling++;
    try {
      const { body, parts } = told(await this.options.handler(name, received));
      this.tell({ type: 'answer', number, body, parts: parts.map(({ length }) => length) });
      this.send(number, OF_ANSWER, parts);
    } catch (error) {
      const { message } = error instanceof Error ? error : new Error(String(error));
      const code = error instanceof TaskError ? error.code : 'INTERNAL';
      this.tell({ type: 'answer', number, body: 'null', parts: [], error: { code, message: message.slice(0, 2000) } });
    } finally {
      this.handling--;
    }
  }

  private closed(why: string): void {
    if (this.gone !== undefined) return;
    this.gone = `the connection to ${this.name} has ended (${why})`;
    this.incoming.clear();
    for (const { cancel, reject } of this.asked.values()) {
      cancel();
      reject(new TaskError(GONE, this.gone));
    }
    this.asked.clear();
    this.options.onGone?.(this.gone);
  }
}

const keyOf = (number: number, view: number): string => `${number} ${view}`;

const told = ({ body = null, parts = [] }: Content) => ({ body: JSON.stringify(body), parts });
