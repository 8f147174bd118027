/**
 * Parameters into the engine of a compute thread, chunk by chunk as they come, so that little is left to copy when a generation is whole.
 *
 *     step k is over, nothing to do ── a chunk of k+1 is whole ──> loaded
 *     step k+1 ──> the chunks that the engine does not have as they lie there now ──> all of the engine is k+1
 *
 * The engine may hold chunks of two generations between two steps, and never in one: each chunk is known by the stamp with which it was loaded (arrivals.ts), so
 * whatever has become of a generation meanwhile, a step or an evaluation first loads what differs from it.
 */
import type { Engine } from '@paceline/engine';
import type { Layout } from '@paceline/learning';
import type { ArrivedChunks } from './arrivals.js';

interface ParameterLoadsOptions {
  readonly engine: Pick<Engine, 'load' | 'loadPart'>;
  readonly layout: Pick<Layout, 'chunks'>;
  /** Generations by their number mod 2. */
  readonly vectors: readonly Float32Array[];
  readonly arrived: Pick<ArrivedChunks, 'holds' | 'stamp'>;
}

export class ParameterLoads {
  /** The stamp of each chunk in the engine; 0 where it is not known. */
  private readonly loaded: Int32Array;
  /** From which chunk on `loadAhead` looks. */
  private next = 0;
  private ahead = -1;

  constructor(private readonly options: ParameterLoadsOptions) {
    this.loaded = new Int32Array(options.layout.chunks.length);
  }

  /** The engine was given something else. */
  forget(): void {
    this.loaded.fill(0);
  }

  /**
   * All of the engine is this generation afterwards.
   * @returns false where another one has begun to take its place: then its round is over, and what is loaded is of no use
   */
  load(generation: number): boolean {
    const { engine, layout, arrived, vectors } = this.options;
    const { chunks } = layout;
    const vector = vectors[generation & 1]!;
    const stamps = chunks.map(({ index }) => arrived.stamp(generation, index));
    const isLoaded = (i: number): boolean => stamps[i] !== 0 && stamps[i] === this.loaded[i];
    if (!engine.loadPart || !chunks.some((_, i) => isLoaded(i))) {
      engine.load(vector);
      this.loaded.set(stamps);
      return arrived.holds(generation);
    }
    for (let first = 0; first < chunks.length; first++) {
      if (isLoaded(first)) continue;
      let end = first;
      while (end < chunks.length && !isLoaded(end)) end++;
      const last = chunks[end - 1]!;
      const { offset } = chunks[first]!;
      engine.loadPart(offset, vector.subarray(offset, last.offset + last.length));
      for (; first < end; first++) this.loaded[first] = stamps[first]!;
    }
    return arrived.holds(generation);
  }

  /** Loads a chunk of this generation, if one is there that the engine does not have. @returns whether it has */
  loadAhead(generation: number): boolean {
    const { engine, layout, arrived, vectors } = this.options;
    const { chunks } = layout;
    if (!engine.loadPart || !arrived.holds(generation)) return false;
    if (generation !== this.ahead) [this.ahead, this.next] = [generation, 0];
    for (let looks = 0; looks < chunks.length; looks++) {
      const i = this.next;
      this.next = (this.next + 1) % chunks.length;
      const { index, offset, length } = chunks[i]!;
      const stamp = arrived.stamp(generation, index);
      if (stamp === 0 || stamp === this.loaded[i]) continue;
      engine.loadPart(offset, vectors[generation & 1]!.subarray(offset, offset + length));
      this.loaded[i] = stamp;
      return true;
    }
    return false;
  }
}
