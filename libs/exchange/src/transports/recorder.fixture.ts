import { Arena } from '@paceline/kernels';
import type { FrameHeader, Message } from '@paceline/protocol';
import type { ConnectionClosed, FrameReceiver } from '../connection.js';

export const WAIT_MS = 60_000;
const BLOCK_BYTES = 9 << 20;

/** Receives into a shared WebAssembly memory, as the apps do, and remembers what came. */
export class Recorder implements FrameReceiver {
  readonly arena = Arena.create({ initialBytes: 10 << 20, maximumBytes: 10 << 20 });
  private readonly block = this.arena.alloc(BLOCK_BYTES);
  readonly frames: { header: FrameHeader; payload: Uint8Array }[] = [];
  readonly messages: Message[] = [];
  /** Data frames and heartbeats, as they came. */
  readonly order: string[] = [];
  check?: (header: FrameHeader) => void;
  readonly handedOut: Uint8Array[] = [];
  readonly closedReasons: ConnectionClosed[] = [];
  keepCopies = true;
  private used = 0;
  private readonly waiting = new Set<() => void>();

  payloadFor(header: FrameHeader): Uint8Array {
    if (this.used + header.length > BLOCK_BYTES) this.used = 0;
    const region = this.arena.bytes(this.block + this.used, header.length);
    this.used += header.length;
    this.handedOut.push(region);
    return region;
  }
  data(header: FrameHeader, payload: Uint8Array): void {
    this.frames.push({ header, payload: this.keepCopies ? payload.slice() : payload });
    this.order.push(`chunk ${header.chunk}`);
    this.changed();
  }
  message(message: Message): void {
    this.messages.push(message);
    if (message.type === 'heartbeat') this.order.push(`heartbeat ${message.progress}`);
    this.changed();
  }
  closed(reason: ConnectionClosed): void {
    this.closedReasons.push(reason);
    this.changed();
  }
  private changed(): void {
    for (const check of this.waiting) check();
  }
  /** Resolves when `condition` holds; says what it waited for when it never does. */
  until(what: string, condition: () => boolean): Promise<void> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.waiting.delete(check);
        reject(new Error(`waited ${WAIT_MS} ms for ${what}`));
      }, WAIT_MS);
      const check = (): void => {
        if (!condition()) return;
        clearTimeout(timer);
        this.waiting.delete(check);
        resolve();
      };
      this.waiting.add(check);
      check();
    });
  }
}
