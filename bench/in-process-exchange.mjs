/** What benches that train in one process have in place of sockets: parameters and gradients are encoded and decoded as between servers and workers, and bytes are counted: those of a vector that one server owns. */
import { GradientEncoder, codecKey, codecOf, parameterCodecOf, parameterDeltasOf } from '@paceline/codecs';
import { wireBytes } from '@paceline/exchange';

/**
 * @typedef {object} Training
 * @property {import('@paceline/kernels').Arena} arena
 * @property {import('@paceline/spec').RunSpec} spec
 * @property {ReturnType<typeof import('@paceline/learning').createLayout>} layout
 * @property {(round: number) => number} countOf examples of a round
 * @property {number} param the exact parameters, in the arena
 * @property {number} gradient a vector in the arena; it is overwritten when parameters are published too
 * @property {((round: number, chunk: number) => boolean) | undefined} [isExchanged] whether a round exchanges a chunk; left out where each exchanges all. Without a codec
 */

/** Parameters on their way to the workers. */
class WayBack {
  bytes = 0;

  /** @param {Training} training */
  constructor({ arena, spec, layout, param, gradient, isExchanged }) {
    const weights = arena.f32(param, layout.totalLength);
    this.isExchanged = isExchanged;
    this.arena = arena;
    this.param = param;
    this.scratch = gradient;
    this.chunks = chunksOf(layout);
    this.codec = parameterCodecOf(spec.codec, spec.seed);
    this.deltas = parameterDeltasOf(spec.codec, spec.seed);
    /** What workers have. */
    this.published = this.codec || this.deltas ? new Float32Array(weights) : weights;
  }

  /** @param {number} generation */
  publish(generation) {
    // What the round before has not exchanged is carried over.
    const exchanged = this.chunks.filter(({ index }) => generation === 0 || this.isExchanged?.(generation - 1, index) !== false);
    this.bytes += wireBytes(exchanged.map((chunk) => this.#publishChunk(chunk, generation)));
  }

  /**
   * @param {Chunk} chunk
   * @param {number} generation
   * @returns {import('@paceline/exchange').ChunkSize} what is sent of it
   */
  #publishChunk({ index, offset, length, isEncoded }, generation) {
    const { arena, published, codec, deltas } = this;
    const [at, to] = [this.param + 4 * offset, this.scratch + 4 * offset];
    if (deltas && isEncoded && generation > 0) {
      arena.f32(to, length).set(published.subarray(offset, offset + length));
      const advanced = deltas.advance(arena, at, to, length, generation, index);
      published.set(arena.f32(advanced?.reference ?? at, length), offset);
      for (const pointer of advanced ? [advanced.reference, advanced.difference.pointer] : []) arena.free(pointer);
      return advanced ? { index, codec: deltas.number, bytes: advanced.difference.bytes } : { index, codec: 0, bytes: 4 * length };
    }
    if (codec && isEncoded) {
      const { pointer, bytes } = codec.encode(arena, at, length, generation, index);
      codec.decode(arena, pointer, bytes, to, length, generation, index);
      published.set(arena.f32(to, length), offset);
      arena.free(pointer);
      return { index, codec: codec.number, bytes };
    }
    published.set(arena.f32(at, length), offset);
    return { index, codec: 0, bytes: 4 * length };
  }
}

/** Gradients on their way to the servers. */
class WayThere {
  bytes = 0;

  /** @param {Training} training */
  constructor({ arena, spec, layout, countOf, gradient, isExchanged }) {
    this.arena = arena;
    this.isExchanged = isExchanged;
    this.gradient = gradient;
    this.seed = spec.seed;
    this.chunks = chunksOf(layout);
    /** The bytes of a gradient that is sent whole and as it is. */
    this.denseBytes = wireBytes(this.chunks.map(asItIs));
    this.codec = codecOf(spec.codec, layout);
    this.encoder =
      this.codec && spec.codec && new GradientEncoder(this.codec, arena, this.chunks, spec.seed, spec.codec, spec.replicas, countOf);
  }

  /**
   * Puts what a server has of a replica's gradient in place of the gradient.
   * @param {number} round
   * @param {number} replica
   */
  send(round, replica) {
    const { arena, codec, encoder, gradient } = this;
    if (!codec || !encoder) {
      this.bytes += wireBytes(this.chunks.filter(({ index }) => this.isExchanged?.(round, index) !== false).map(asItIs));
      return;
    }
    const { pointer, codecs, offsets, lengths } = encoder.encode(round, replica, gradient);
    for (const [i, { index, offset, length }] of this.chunks.entries()) {
      const [from, to, encoded] = [pointer + (offsets[i] ?? 0), gradient + 4 * offset, lengths[i] ?? 0];
      if (codecs[i] === 0) arena.kernels.copy(to, from, length);
      else (codec.of?.(index) ?? codec).decode(arena, from, encoded, to, length, codecKey(this.seed, round, replica, index));
    }
    this.bytes += wireBytes(this.chunks.map(({ index }, i) => ({ index, codec: codecs[i] ?? 0, bytes: lengths[i] ?? 0 })));
    arena.free(pointer);
  }
}

/** @typedef {{ index: number, offset: number, length: number, isEncoded: boolean }} Chunk */
/** @param {Training['layout']} layout @returns {Chunk[]} */
const chunksOf = ({ chunks }) =>
  chunks.map(({ index, offset, length, section }) => ({ index, offset, length, isEncoded: section === 'trainable' }));

/** @param {Chunk} chunk */
const asItIs = ({ index, length }) => ({ index, codec: 0, bytes: 4 * length });

/** @param {Training} training */
export const inProcessExchange = (training) => ({ wayThere: new WayThere(training), wayBack: new WayBack(training) });
