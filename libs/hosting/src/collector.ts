/**
 * Collects the committed weights from all shards, chunk by chunk in layout order with a bounded window of pulls, hashes them
 * and writes the safetensors file. It runs at the coordinator after evaluation; nothing moves any more by then.
 */
import { FrameType, ProtocolError, type FrameHeader } from '@paceline/protocol';
import type { Clock, Connection, FrameNumbers } from '@paceline/exchange';
import { createWeightsDigest, type Layout } from '@paceline/learning';
import type { WeightsFiles } from './server-context.js';

const WINDOW_CHUNKS = 8;

export interface CollectorOptions {
  readonly layout: Layout;
  readonly clock: Clock;
  readonly files: WeightsFiles;
  readonly generation: number;
  /** Owner of each chunk. */
  serverOf(chunk: number): number;
  connectionTo(server: number): Connection;
  numbers(): FrameNumbers;
  /** Where the file goes, or null to hash only. */
  readonly file: string | null;
  readonly metadata: Readonly<Record<string, string>>;
  readonly deadlineMs: number;
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
    if (header.type !== FrameType.parameters || !chunk || header.round !== this.options.generation)
      throw new ProtocolError('UNKNOWN_CHUNK', `chunk ${header.chunk}`);
    if (header.length !== chunk.length * 4) throw new ProtocolError('WRONG_LENGTH');
    return new Uint8Array(header.length); // its own buffer, 4-byte aligned
  }

  data(header: FrameHeader, payload: Uint8Array): void {
    if (!this.outstanding.delete(header.chunk)) return;
    this.arrived.set(header.chunk, payload);
    this.wake?.();
  }

  /** SHA-256 over trainable section, then state section, little-endian float32, in layout order. @throws Error past the deadline */
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
        while (asked < layout.chunks.length && asked < index + WINDOW_CHUNKS) this.ask(asked++);
        const bytes = await this.take(index);
        digest.update(new Float32Array(bytes.buffer as ArrayBuffer));
        await writer?.append(bytes);
      }
      await writer?.finish();
    } catch (error) {
      await writer?.abort();
      throw error;
    }
    return digest.hex();
  }

  /** Another server has taken over the shard: what the one before still owed. */
  askAgain(server: number): void {
    for (const chunk of this.outstanding) if (this.options.serverOf(chunk) === server) this.ask(chunk);
  }

  private ask(chunk: number): void {
    this.outstanding.add(chunk);
    this.options
      .connectionTo(this.options.serverOf(chunk))
      .sendMessage({ type: 'pull', generation: this.options.generation, chunk }, this.options.numbers());
  }

  private async take(chunk: number): Promise<Uint8Array> {
    const { clock, deadlineMs } = this.options;
    const deadline = clock.now() + deadlineMs;
    for (;;) {
      const bytes = this.arrived.get(chunk);
      if (bytes) {
        this.arrived.delete(chunk);
        return bytes;
      }
      const left = deadline - clock.now();
      if (left <= 0)
        throw new Error(`chunk ${chunk} did not come from parameter server ${this.options.serverOf(chunk)} within ${deadlineMs} ms`);
      await new Promise<void>((resolve) => {
        const cancel = clock.after(left, resolve);
        this.wake = () => {
          cancel();
          resolve();
        };
      });
    }
  }
}
