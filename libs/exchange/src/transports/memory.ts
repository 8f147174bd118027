/**
 * A pair of connections inside one process. Frames go through the same framing as on sockets, in later turns of the event
 * loop, and are copied once into the receiver's region.
 */
import type { Connection } from '../connection.js';
import type { ByteConsumer, ByteStream } from './byte-stream.js';
import { FramedConnection } from './framed-connection.js';
import { resolveOptions, type ConnectionOptions } from './limits.js';

type Delivery = { readonly parts: readonly Uint8Array[]; readonly done: () => void } | 'end';

class MemoryPipe implements ByteStream {
  readonly kind = 'memory';
  readonly remote = 'memory';
  peer!: MemoryPipe;
  private readonly inbox: Delivery[] = [];
  private reading = false;
  private scheduled = false;
  private open = true;
  private sentEnd = false;

  constructor(private readonly consumer: ByteConsumer) {}

  write(parts: readonly Uint8Array[], done: () => void): void {
    this.peer.receive({ parts, done });
  }

  setReading(on: boolean): void {
    this.reading = on;
    this.schedule();
  }

  end(): void {
    if (this.sentEnd) return;
    this.sentEnd = true;
    this.peer.receive('end');
  }

  destroy(): void {
    if (!this.open) return;
    this.open = false;
    this.end();
    for (const delivery of this.inbox.splice(0)) if (delivery !== 'end') setImmediate(delivery.done);
    setImmediate(() => this.consumer.streamClosed(undefined));
  }

  private receive(delivery: Delivery): void {
    if (this.open) {
      this.inbox.push(delivery);
      this.schedule();
    } else if (delivery !== 'end') {
      setImmediate(delivery.done);
    }
  }

  private schedule(): void {
    if (this.scheduled || !this.reading || this.inbox.length === 0) return;
    this.scheduled = true;
    setImmediate(() => {
      this.scheduled = false;
      const delivery = this.reading ? this.inbox.shift() : undefined;
      if (delivery === 'end') this.consumer.streamEnded();
      else if (delivery) this.deliver(delivery.parts, delivery.done);
      this.schedule();
    });
  }

  private deliver(parts: readonly Uint8Array[], done: () => void): void {
    try {
      for (const part of parts) this.consumer.fed(part);
    } finally {
      done();
    }
  }
}

/** Two ends of one connection in this process. */
export function memoryPair(options: ConnectionOptions = {}): [Connection, Connection] {
  const ends = [new FramedConnection(resolveOptions(options)), new FramedConnection(resolveOptions(options))] as const;
  const pipes = [new MemoryPipe(ends[0]), new MemoryPipe(ends[1])] as const;
  pipes[0].peer = pipes[1];
  pipes[1].peer = pipes[0];
  ends[0].attach(pipes[0]);
  ends[1].attach(pipes[1]);
  return [ends[0], ends[1]];
}
