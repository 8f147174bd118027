/**
 * Collects the committed weights from all shards, chunk by chunk in layout order with a bounded window of pulls, hashes them
 * and writes the safetensors file. It runs at the coordinator after evaluation; nothing moves any more by then. A file that cannot
 * be written (the disk is full or away) is therefore begun again later, and no round has to be redone for it.
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
/** Pauses before the file is begun again double from the first to the longest; together they are as long as somebody needs to make room. */
const FIRST_PAUSE_MS = 1_000;
const LONGEST_PAUSE_MS = 30_000;
const PAUSES_TOGETHER_MS = 1_800_000;

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
  /** The file could not be written, and is begun again after a pause. */
  delayed(why: string): void;
}

/** The shards still hold everything: the file can be written later. */
class UnwrittenError extends Error {}

/** A disk that is full, away or slow; what is forbidden or wrong stays so. */
const PASSING = [
  'DISK_FULL',
  'STORE_UNAVAILABLE',
  'ENOSPC',
  'EDQUOT',
  'EIO',
  'ESTALE',
  'ETIMEDOUT',
  'EAGAIN',
  'EBUSY',
  'EMFILE',
  'ENFILE',
  'ENODEV',
  'ENXIO',
  'ECONNRESET',
];
const mayPass = (error: unknown): boolean => {
  const { code, cause } = error as NodeJS.ErrnoException & { readonly cause?: unknown };
  return PASSING.includes(code ?? '') || (cause instanceof Error && mayPass(cause));
};

async function written<T>(writing: Promise<T>): Promise<T> {
  try {
    return await writing;
  } catch (error) {
    throw mayPass(error) ? new UnwrittenError((error as Error).message, { cause: error }) : error;
  }
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

  /** SHA-256 over trainable section, then state section, little-endian float32, in layout order. @throws Error past a deadline, and when the attempt ends meanwhile */
  async collect(): Promise<string> {
    const { clock, isOver, delayed } = this.options;
    let pausedMs = 0;
    for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS)) {
      try {
        return await this.collectOnce();
      } catch (error) {
        if (!(error instanceof UnwrittenError) || pausedMs >= PAUSES_TOGETHER_MS) throw error;
        delayed(error.message);
      }
      await new Promise<void>((resolve) => clock.after(pauseMs, resolve));
      pausedMs += pauseMs;
      if (isOver()) throw new Error('the attempt ended before the weights were written');
    }
  }

  private async collectOnce(): Promise<string> {
    const { layout, file, files, metadata } = this.options;
    // What was asked for before and has not come yet comes twice; the second is not taken.
    this.arrived.clear();
    this.outstanding.clear();
    const digest = createWeightsDigest();
    const tensors = layout.variables.map(({ path, shape }) => ({ name: path, shape }));
    const writer = file === null ? undefined : await written(files.create(file, tensors, metadata));
    try {
      let asked = 0;
      for (const { index } of layout.chunks) {
        while (!this.options.stored && asked < layout.chunks.length && asked < index + WINDOW_CHUNKS) this.ask(asked++);
        const bytes = this.options.stored ? await this.options.stored.tensor(parametersName(index)) : await this.take(index);
        digest.update(new Float32Array(bytes.buffer as ArrayBuffer, bytes.byteOffset, bytes.byteLength / 4));
        if (writer) await written(writer.append(bytes));
      }
      if (writer) await written(writer.finish());
    } catch (error) {
      await writer?.abort().catch(() => undefined); // what went wrong before says more
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
