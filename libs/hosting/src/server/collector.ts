/**
 * Collects the committed weights from all shards, chunk by chunk in layout order with a bounded window of pulls, hashes them
 * and writes the safetensors file. It runs at the coordinator after evaluation; nothing moves any more by then.
 */
import { FrameType, ProtocolError, type FrameHeader } from '@paceline/protocol';
import { checkChunk, type Clock, type Connection, type Coordinator } from '@paceline/exchange';
import { createWeightsDigest, type Layout } from '@paceline/learning';
import type { CheckpointReader } from '@paceline/storage';
import type { WeightsFiles } from './server-context.js';
import { parametersName } from './snapshot.js';

const WINDOW_CHUNKS = 8;
/** How often it looks at its deadline. */
const LOOK_MS = 1_000;

export interface CollectorOptions {
  readonly layout: Layout;
  readonly clock: Clock;
  readonly files: WeightsFiles;
  readonly generation: number;
  /** A checkpoint that has the weights; without it they are asked of the servers. */
  readonly stored?: Pick<CheckpointReader, 'tensor'> | undefined;
  /** Owner of each chunk. */
  readonly serverOfChunk: ReadonlyMap<number, number>;
  /** The present connection to each server: another one after a reconnect or takeover. */
  readonly servers: ReadonlyMap<number, Connection>;
  /** Its numbers go into each PULL. */
  readonly machine: Pick<Coordinator, 'numbers'>;
  /** Where the file goes, or null to hash only. */
  readonly file: string | null;
  readonly metadata: Readonly<Record<string, string>>;
  /** For a chunk of a server that is connected. */
  readonly deadlineMs: number;
  /** The attempt has ended: nobody wants the weights any more. */
  isOver(): boolean;
}

export class WeightsCollector {
  private readonly arrived = new Map<number, Uint8Array>();
  /** Asked for and not there. */
  private readonly outstanding = new Set<number>();
  private wake: (() => void) | undefined;

  constructor(private readonly options: CollectorOptions) {}

  /** @throws ProtocolError for chunks that were not asked for */
  payloadFor(header: FrameHeader): Uint8Array {
    const chunk = this.options.layout.chunks[header.chunk];
    checkChunk(header, FrameType.parameters, this.options.machine.numbers().attempt, chunk);
    if (header.round !== this.options.generation) throw new ProtocolError('UNKNOWN_CHUNK', `chunk ${header.chunk} of ${header.round}`);
    return new Uint8Array(header.length); // its own buffer, 4-byte aligned
  }

  data(header: FrameHeader, payload: Uint8Array): void {
    if (!this.outstanding.delete(header.chunk)) return;
    this.arrived.set(header.chunk, payload);
    this.wake?.();
  }

  /** SHA-256 over trainable section, then state section, little-endian float32, in layout order. @throws Error past the deadline, and when the attempt ends meanwhile */
  async collect(): Promise<string> {
    const { layout, file } = this.options;
    const digest = createWeightsDigest();
    const writer =
      file === null
        ? undefined
        : await this.options.files.create(
            file,
            layout.variables.map(({ path, shape }) => ({ name: path, shape })),
            this.options.metadata,
          );
    try {
      let asked = 0;
      for (const { index } of layout.chunks) {
        while (!this.options.stored && asked < layout.chunks.length && asked < index + WINDOW_CHUNKS) this.ask(asked++);
        const bytes = this.options.stored ? await this.options.stored.tensor(parametersName(index)) : await this.take(index);
        digest.update(new Float32Array(bytes.buffer as ArrayBuffer, bytes.byteOffset, bytes.byteLength / 4));
        await writer?.append(bytes);
      }
      await writer?.finish();
    } catch (error) {
      await writer?.abort();
      throw error;
    }
    return digest.hex();
  }

  /** Asks again for chunks of a server that has reconnected, or whose shard another server has taken over. */
  askAgain(server: number): void {
    for (const chunk of this.outstanding) if (this.ownerOf(chunk) === server) this.ask(chunk);
  }

  private ownerOf(chunk: number): number {
    return this.options.serverOfChunk.get(chunk)!;
  }

  private connectionTo(server: number): Connection {
    return this.options.servers.get(server)!;
  }

  private ask(chunk: number): void {
    this.outstanding.add(chunk);
    const { machine, generation } = this.options;
    this.connectionTo(this.ownerOf(chunk)).sendMessage({ type: 'pull', generation, chunk }, machine.numbers());
  }

  /**
   * The deadline counts only while this process runs and the server is connected. After a standstill the chunk may be in the socket. The
   * coordinator itself waits for a server that is gone, and ends the attempt when no other server takes its place.
   */
  private async take(chunk: number): Promise<Uint8Array> {
    const { clock, deadlineMs } = this.options;
    let waitedMs = 0;
    for (;;) {
      const bytes = this.arrived.get(chunk);
      if (bytes) {
        this.arrived.delete(chunk);
        return bytes;
      }
      const server = this.ownerOf(chunk);
      if (this.options.isOver()) throw new Error(`the attempt ended before chunk ${chunk} came from parameter server ${server}`);
      if (waitedMs >= deadlineMs) throw new Error(`chunk ${chunk} did not come from parameter server ${server} within ${deadlineMs} ms`);
      const beforeMs = clock.now();
      await new Promise<void>((resolve) => {
        // What is left of the deadline may be too little for the clock to move.
        const cancel = clock.after(Math.max(1, Math.min(LOOK_MS, deadlineMs - waitedMs)), resolve);
        this.wake = () => {
          cancel();
          resolve();
        };
      });
      waitedMs = this.connectionTo(server).isOpen ? waitedMs + Math.min(LOOK_MS, clock.now() - beforeMs) : 0;
    }
  }
}
