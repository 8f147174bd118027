/**
 * What all codecs have in common from outside: replicas give vectors, bytes travel in one or more phases, and everybody who takes part has a sum. A codec of a run
 * has one phase, as the server decodes what each replica sends. PowerSGD over an all-reduce has two, each of which adds up.
 */
import { Arena } from '@paceline/kernels';
import { CODECS, PARAMETER_CODECS, VALUE_KINDS, type CodecSpec } from '@paceline/spec';
import { codecKey } from './codec.js';
import { codecOf } from './codecs.js';
import { GradientEncoder } from './gradient-encoder.js';
import type { Shapes } from './low-rank.js';
import { LowRankSum } from './low-rank-sum.js';
import { parameterCodecOf } from './parameter-codec.js';
import { parameterDeltasOf } from './parameter-deltas.js';

export const REPLICAS = 2;

export interface Exchange {
  /** Messages one after the other, each of which needs the one before. */
  readonly phases: number;
  /** What of each replica is left for the next round, over all of its elements; undefined where nothing is kept, or it cannot be told. */
  kept?(round: number): Float32Array[] | undefined;
  /** One round. @param vectors of the replicas, as they were before. @returns their sum as it is decoded, and all bytes that travelled */
  round(round: number, vectors: readonly Float32Array[]): { readonly sum: Float32Array; readonly bytes: string };
}

export interface ExchangeKind {
  readonly name: string;
  readonly keeps: boolean;
  /** Says which elements it draws and how it rounds by random numbers: another seed sends other bytes. */
  readonly isRandom: boolean;
  /** What comes is a sum of R vectors, or the parameters of a server, which are those of the first. */
  readonly isSum: boolean;
  /** Elements that travel in few bits, or not at all. */
  readonly isCoarse: boolean;
  make(shapes: Shapes, seed: number): Exchange;
}

const hexOf = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');
const lengthOf = ({ chunks }: Shapes): number => chunks.reduce((sum, { length }) => sum + length, 0);
const arenaOf = (): Arena => Arena.create({ initialBytes: 1 << 20, maximumBytes: 1 << 21 });

function ofReplicas(spec: CodecSpec, shapes: Shapes, seed: number): Exchange {
  const length = lengthOf(shapes);
  const codec = codecOf(spec, shapes)!;
  const chunks = shapes.chunks.map((chunk, index) => ({ ...chunk, index, isEncoded: true }));
  const [worker, server] = [arenaOf(), arenaOf()];
  const encoder = new GradientEncoder(codec, worker, chunks, seed, spec, REPLICAS, () => REPLICAS);
  return {
    phases: 1,
    kept: (round) => {
      if (encoder.residualFloats !== length) return undefined; // nothing, or more than what was left out
      return Array.from({ length: REPLICAS }, (_, replica) => {
        const values = new Float32Array(length);
        return encoder.readResidual(round, replica, values) ? values : values.fill(NaN);
      });
    },
    round: (round, vectors) => {
      const used = [worker.bytesInUse, server.bytesInUse];
      const sum = server.alloc(4 * length);
      server.f32(sum, length).fill(0);
      let sent = '';
      for (const [replica, vector] of vectors.entries()) {
        const gradient = worker.alloc(4 * length);
        worker.f32(gradient, length).set(vector);
        const { pointer, codecs, offsets, lengths } = encoder.encode(round, replica, gradient);
        for (const [i, { index, offset, length: n }] of chunks.entries()) {
          const bytes = worker.bytes(pointer + offsets[i]!, lengths[i]!);
          sent += hexOf(bytes);
          const at = server.alloc(lengths[i]!);
          server.bytes(at, lengths[i]!).set(bytes);
          const own = codec.of?.(index) ?? codec;
          if (codecs[i] === 0) server.kernels.add(sum + 4 * offset, at, n);
          else if (own.isLength(n, lengths[i]!) && own.takes(server, at, lengths[i]!, n))
            own.add(server, at, lengths[i]!, sum + 4 * offset, n, codecKey(seed, round, replica, index));
          else throw new Error(`the bytes of chunk ${i} are refused`);
          server.free(at);
        }
        worker.free(pointer);
        worker.free(gradient);
      }
      const values = server.f32(sum, length).slice();
      server.free(sum);
      if (round > 1 && (worker.bytesInUse !== used[0] || server.bytesInUse !== used[1])) throw new Error('memory is kept');
      return { sum: values, bytes: sent };
    },
  };
}

function ofParameters(spec: CodecSpec, { chunks }: Shapes, seed: number): Exchange {
  const arena = arenaOf();
  const [rounded, deltas] = [parameterCodecOf(spec, seed), parameterDeltasOf(spec, seed)];
  const references = chunks.map(({ length }) => new Float32Array(length));
  return {
    phases: 1,
    round: (round, vectors) => {
      const used = arena.bytesInUse;
      const sum = new Float32Array(vectors[0]!.length);
      let sent = '';
      for (const [index, { offset, length: n }] of chunks.entries()) {
        const [from, to] = [arena.alloc(4 * n), arena.alloc(4 * n)];
        arena.f32(from, n).set(vectors[0]!.subarray(offset, offset + n));
        if (rounded) {
          const { pointer, bytes } = rounded.encode(arena, from, n, round, index);
          sent += hexOf(arena.bytes(pointer, bytes));
          if (!rounded.decode(arena, pointer, bytes, to, n, round, index)) throw new Error('the bytes are refused');
          sum.set(arena.f32(to, n), offset);
          arena.free(pointer);
        } else {
          arena.f32(to, n).set(references[index]!);
          const advance = deltas!.advance(arena, from, to, n, round, index);
          references[index] = arena.f32(advance ? advance.reference : from, n).slice();
          if (advance) {
            const { pointer, bytes } = advance.difference;
            sent += hexOf(arena.bytes(pointer, bytes));
            arena.free(pointer);
            arena.free(advance.reference);
          }
          sum.set(references[index]!, offset);
        }
        arena.free(from);
        arena.free(to);
      }
      if (arena.bytesInUse !== used) throw new Error('memory is kept');
      return { sum, bytes: sent };
    },
  };
}

/** All members have all of their variables in one chunk. */
function ofMembers(rank: number, { variables, chunks }: Shapes, seed: number): Exchange {
  const length = lengthOf({ variables, chunks });
  const members = Array.from({ length: REPLICAS }, () => new LowRankSum({ variables, length, rank, seed }));
  return {
    phases: 2,
    round: (_round, vectors) => {
      const own = vectors.map((vector) => vector.slice());
      let bytes = '';
      for (const phase of ['first', 'second'] as const) {
        const values = members.map((member, i) => (phase === 'first' ? member.first(own[i]!, REPLICAS) : member.second(own[i]!)));
        for (const each of values) bytes += hexOf(new Uint8Array(each.buffer, each.byteOffset, each.byteLength));
        const total = Float32Array.from(values[0]!, (_, i) => values.reduce((sum, each) => sum + each[i]!, 0));
        for (const each of values) each.set(total);
      }
      for (const [i, member] of members.entries()) member.finish(own[i]!);
      const [first, ...others] = own.map((vector) => hexOf(new Uint8Array(vector.buffer)));
      if (others.some((other) => other !== first)) throw new Error('members have different sums');
      return { sum: own[0]!, bytes };
    },
  };
}

const KINDS = CODECS.filter((kind) => kind !== 'none' && kind !== 'auto');
const ROUNDED = new Set<string>(['int8', 'int4', 'int2', 'power-sgd', 'random-k']);

const specs: readonly CodecSpec[] = [
  ...KINDS.flatMap((kind): CodecSpec[] => {
    const options = {
      ...(kind === 'top-k' || kind === 'random-k' || kind === 'dgc' ? { density: 0.2 } : {}),
      ...(kind === 'threshold' ? { threshold: 0.2 } : {}),
      ...(kind === 'power-sgd' ? { rank: 2 } : {}),
    };
    const plain = { kind, ...options, errorFeedback: false };
    if (kind === 'dgc' || kind === 'power-sgd') return [plain];
    return [plain, { ...plain, errorFeedback: true }, { ...plain, errorFeedback: true, feedbackRule: 'ef21' }];
  }),
  ...VALUE_KINDS.filter((values) => values !== 'float32').map((values): CodecSpec => ({
    kind: 'top-k',
    density: 0.2,
    values,
    errorFeedback: true,
  })),
];

export const EXCHANGES: readonly ExchangeKind[] = [
  ...specs.map((spec): ExchangeKind => {
    const { kind, values, errorFeedback, feedbackRule } = spec;
    const keeps = errorFeedback || kind === 'dgc' || kind === 'power-sgd';
    return {
      name: [kind, values, errorFeedback && (feedbackRule ?? 'error feedback')].filter(Boolean).join(', '),
      keeps,
      isRandom: ROUNDED.has(kind) || ROUNDED.has(values === 'int2' ? '' : (values ?? '')),
      isSum: true,
      isCoarse: kind !== 'fp16' && kind !== 'bf16' && kind !== 'int8',
      make: (shapes, seed) => ofReplicas(spec, shapes, seed),
    };
  }),
  ...PARAMETER_CODECS.filter((kind) => kind !== 'float32').map((parameters): ExchangeKind => ({
    name: `parameters ${parameters}`,
    keeps: parameters.startsWith('delta'),
    isRandom: parameters === 'int8' || parameters === 'delta-int4',
    isSum: false,
    isCoarse: parameters.startsWith('delta'),
    make: (shapes, seed) => ofParameters({ kind: 'none', errorFeedback: false, parameters, parameterDensity: 0.2 }, shapes, seed),
  })),
  ...[1, 3].map((rank): ExchangeKind => ({
    name: `power-sgd over an all-reduce, rank ${rank}`,
    keeps: true,
    isRandom: true,
    isSum: true,
    isCoarse: true,
    make: (shapes, seed) => ofMembers(rank, shapes, seed),
  })),
];
