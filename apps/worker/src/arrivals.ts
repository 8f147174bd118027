/**
 * Which chunks of the two generations lie in the parameter memory, in cells that all threads of a seat see. The main thread writes them, compute threads read:
 *
 *     [ generation of slot 0 | of slot 1 | a stamp for each chunk of slot 0 | … of slot 1 ]
 *
 * A stamp is 0 while its chunk is not whole, and a new number whenever it has become whole. So who finds the stamp with which it has copied a chunk has what lies
 * there: neither another generation, nor the same one of before a takeover, nor a chunk that was written meanwhile.
 */
import type { ParameterArrivals } from '@paceline/exchange';
import type { Layout } from '@paceline/learning';

const GENERATIONS = 2;
/** A thread is told of so much at once: to wake it takes as long as to load a quarter of that. */
const TOLD_BYTES = 2 ** 20;

const cellOf = (chunks: number, generation: number, chunk: number): number => GENERATIONS + (generation & 1) * chunks + chunk;

/** The main thread's side. */
export class ArrivalCells implements ParameterArrivals {
  readonly memory: SharedArrayBuffer;
  private readonly cells: Int32Array;
  private readonly chunks: number;
  private stamp = 0;
  private untoldBytes = 0;

  /** @param ring called when so much has come that a thread may begin to load it */
  constructor(
    private readonly layout: Pick<Layout, 'chunks'>,
    private readonly ring: () => void,
  ) {
    this.chunks = layout.chunks.length;
    this.memory = new SharedArrayBuffer((GENERATIONS + GENERATIONS * this.chunks) * Int32Array.BYTES_PER_ELEMENT);
    this.cells = new Int32Array(this.memory);
    this.cells.fill(-1, 0, GENERATIONS);
  }

  opens(generation: number, kept: Iterable<number>): void {
    const stays = new Set(kept);
    for (let chunk = 0; chunk < this.chunks; chunk++) if (!stays.has(chunk)) this.gone(generation, chunk);
    Atomics.store(this.cells, generation & 1, generation);
  }

  came(generation: number, chunk: number): void {
    this.stamp = (this.stamp + 1) | 0 || 1;
    Atomics.store(this.cells, cellOf(this.chunks, generation, chunk), this.stamp);
    this.untoldBytes += this.layout.chunks[chunk]!.length * Float32Array.BYTES_PER_ELEMENT;
    if (this.untoldBytes < TOLD_BYTES) return;
    this.untoldBytes = 0;
    this.ring();
  }

  gone(generation: number, chunk: number): void {
    Atomics.store(this.cells, cellOf(this.chunks, generation, chunk), 0);
  }
}

/** What a compute thread sees of them. */
export class ArrivedChunks {
  private readonly cells: Int32Array;

  constructor(
    memory: SharedArrayBuffer,
    private readonly chunks: number,
  ) {
    this.cells = new Int32Array(memory);
    const cells = GENERATIONS + GENERATIONS * chunks;
    if (this.cells.length !== cells)
      throw new RangeError(`${this.cells.length} cells of arrivals for ${chunks} chunks, which have ${cells}`);
  }

  /** False before this generation has come, and after another one has taken its place. */
  holds(generation: number): boolean {
    return Atomics.load(this.cells, generation & 1) === generation;
  }

  /** 0 while the chunk is not whole. */
  stamp(generation: number, chunk: number): number {
    return Atomics.load(this.cells, cellOf(this.chunks, generation, chunk));
  }
}
