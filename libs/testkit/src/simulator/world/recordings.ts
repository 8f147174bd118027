/**
 * Connections that come back from the dead: somewhere between two hosts the bytes of a connection were kept, and after its end they are
 * sent again, on a new connection: its HELLO, and the newest frames that it had sent. Who sends them takes whatever is answered, and
 * never says anything of its own.
 */
import type { ByteConsumer } from '@paceline/exchange';
import type { SimStream } from './stream.js';
import type { World } from './world.js';

interface ReplayNetwork {
  readonly world: World;
  readonly weather: { readonly bytesPerMs: number };
  isListening(address: string): boolean;
  openRaw(host: string, address: string, consumer: ByteConsumer): SimStream;
  latency(): number;
}

const CONNECTIONS_KEPT = 30;
const WRITES_KEPT = 6;

interface Recording {
  readonly address: string;
  readonly host: string;
  readonly stream: SimStream;
  /** The first one, which has the HELLO, and the newest ones. Each is made of whole frames. */
  readonly writes: Uint8Array[];
}

export class Recordings {
  private readonly kept: Recording[] = [];

  /** Returns what takes each write of a connection that a host has opened to an address. */
  begin(address: string, host: string, stream: SimStream): (bytes: Uint8Array) => void {
    const writes: Uint8Array[] = [];
    this.kept.push({ address, host, stream, writes });
    if (this.kept.length > CONNECTIONS_KEPT) this.kept.shift();
    return (bytes) => {
      // A copy: the one that travels may be cut or lose bits.
      writes.push(Uint8Array.from(bytes));
      if (writes.length > WRITES_KEPT) writes.splice(1, 1);
    };
  }

  /** One that is over and whose address is still listened at: sent again. Returns false when there is none. */
  replay(network: ReplayNetwork): boolean {
    const over = this.kept.filter(({ stream, writes, address }) => !stream.isOpen && writes.length > 0 && network.isListening(address));
    if (over.length === 0) return false;
    const { random } = network.world;
    const { address, host, writes } = random.pick(over);
    const stream = network.openRaw(host, address, IGNORES);
    stream.setReading(true);
    let delayMs = 0;
    for (const bytes of writes) {
      // HELLO first: what comes before it is accepted closes the connection.
      network.world.schedule(
        delayMs,
        `${host} replays ${bytes.length} to ${address}`,
        () => stream.isOpen && stream.write([bytes], () => undefined),
      );
      delayMs += 20 + network.latency() + bytes.length / network.weather.bytesPerMs;
    }
    return true;
  }
}

const scratch = new Uint8Array(1 << 16);
const IGNORES: ByteConsumer = {
  destination: () => scratch,
  filled: () => undefined,
  fed: () => undefined,
  streamEnded: () => undefined,
  streamClosed: () => undefined,
};
