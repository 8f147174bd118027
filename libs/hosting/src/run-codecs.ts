/** The codecs of a run as servers and workers are handed them: which chunk may come in which, and what it is decoded to. */
import {
  AUTO_CODECS,
  codecKey,
  codecOf,
  parameterCodecOf,
  parameterDeltasOf,
  type Codec,
  type ParameterCodec,
  type ParameterDeltas,
} from '@paceline/codecs';
import { Region, type ChunkDecoder, type EncodedParameters, type OwnedChunk, type ParameterEncoder } from '@paceline/exchange';
import { Arena } from '@paceline/kernels';
import type { Layout } from '@paceline/learning';
import type { CodecSwitch } from '@paceline/protocol';
import { PARAMETER_CODECS, picksCodec, type CodecSpec, type RunSpec } from '@paceline/spec';

type Encoded = Pick<RunSpec, 'codec' | 'seed'>;

const PAGE_BYTES = 65_536;
const FLOAT_BYTES = 4;
const NONE = 0;

/** All that the codec of a spec may be: one, or with auto those that it picks among. */
const kindsOf = (codec: CodecSpec | undefined): readonly (CodecSpec | undefined)[] =>
  picksCodec({ codec }) ? AUTO_CODECS.map((picked) => ({ ...picked, errorFeedback: false })) : [codec];

const byNumber = <C extends Pick<Codec, 'number'>>(codecs: readonly (C | undefined)[]): ReadonlyMap<number, C> =>
  new Map(codecs.flatMap((codec) => (codec ? [[codec.number, codec] as const] : [])));

/** State travels as it is. The others are encoded, but where the codec would make them longer, or none is picked yet. @param leaves those of n elements */
const takesOf =
  (layout: Layout, numbers: ReadonlySet<number>, leaves: (n: number) => boolean): ChunkDecoder['takes'] =>
  (chunk, codec) => {
    const { section, length } = layout.chunks[chunk]!;
    return section === 'state' ? codec === NONE : numbers.has(codec) || (codec === NONE && leaves(length));
  };

const all = (): boolean => true;
const none = (): boolean => false;

/** Chunks that the codec makes shorter always are not taken as they are: the memory in which gradients wait is not planned for them. */
const leavesOf = (codec: Codec): ((n: number) => boolean) => (codec.leavesSome ? (n) => codec.maxBytes(n) >= FLOAT_BYTES * n : none);

/** Decodes what the workers of the run encode; undefined where they send float32. */
export function gradientDecoderOf({ codec: wanted, seed }: Encoded, layout: Layout): ChunkDecoder | undefined {
  const codecs = byNumber(kindsOf(wanted).map((kind) => codecOf(kind, layout)));
  const [first, ...others] = codecs.values();
  if (!first) return undefined;
  const ofChunk = (number: number, chunk: number): Codec => {
    const codec = codecs.get(number)!;
    return codec.of?.(chunk) ?? codec;
  };
  return {
    codec: first.number,
    others: others.map(({ number }) => number),
    takes: takesOf(layout, new Set(codecs.keys()), picksCodec({ codec: wanted }) ? all : leavesOf(first)),
    isLength: (n, bytes, chunk, codec) => ofChunk(codec, chunk).isLength(n, bytes),
    decode: ({ round, nodeLo, chunk, length, codec }, payload, { arena, pointer, length: n }) =>
      ofChunk(codec, chunk).decode(arena, payload.pointer, length, pointer, n, codecKey(seed, round, nodeLo, chunk)),
    waiting: {
      takes: ({ chunk, length, codec }, { arena, pointer }, n) => ofChunk(codec, chunk).takes(arena, pointer, length, n),
      add: ({ round, nodeLo, chunk, length, codec }, payload, { arena, pointer, length: n }) =>
        ofChunk(codec, chunk).add(arena, payload.pointer, length, pointer, n, codecKey(seed, round, nodeLo, chunk)),
    },
  };
}

/**
 * What workers have of a chunk, one generation further. State travels as it is, and so does the generation that the run ends with: no difference comes
 * after it, and the evaluation measures the weights that are stored.
 */
const advanceOf =
  (deltas: ParameterDeltas, layout: Layout, totalRounds: number): NonNullable<ParameterEncoder['advance']> =>
  (generation, { index, arena, length: n }, values, held) => {
    if (generation >= totalRounds || layout.chunks[index]?.section === 'state') return undefined;
    const advanced = deltas.advance(arena, values.pointer, held.pointer, n, generation, index);
    if (!advanced) return undefined;
    const { pointer, length, bytes } = advanced.difference;
    const difference = { codec: deltas.number, region: new Region(arena, pointer, length), bytes };
    return { difference, held: new Region(arena, advanced.reference, n) };
  };

/**
 * Encodes the parameters of the run for its workers; undefined where they get float32.
 * @param totalRounds the generation that the run ends with
 * @param picked by an earlier attempt, with auto
 */
export function parameterEncoderOf(
  { codec: wanted, seed }: Encoded,
  layout: Layout,
  totalRounds: number,
  picked?: CodecSwitch,
): ParameterEncoder | undefined {
  const deltas = parameterDeltasOf(wanted, seed);
  if (deltas) return { advance: advanceOf(deltas, layout, totalRounds) };
  const isPicked = picksCodec({ codec: wanted });
  let [codec, fromRound] = [parameterCodecOf(wanted, seed), 0];
  if (!isPicked && !codec) return undefined;
  const change = (to: CodecSwitch): void => {
    const parameters = PARAMETER_CODECS.find((kind) => kind === to.parameters);
    codec = parameterCodecOf({ kind: 'none', errorFeedback: false, parameters }, seed);
    fromRound = to.fromRound;
  };
  if (isPicked && picked) change(picked);
  return {
    ...(isPicked ? { picked: change } : {}),
    encode(generation: number, { index, arena, length: n }: OwnedChunk, values: Region) {
      if (!codec || generation < fromRound || layout.chunks[index]?.section === 'state')
        return { codec: NONE, region: values.retain(), bytes: values.bytes.length };
      const { pointer, length, bytes } = codec.encode(arena, values.pointer, n, generation, index);
      return { codec: codec.number, region: new Region(arena, pointer, length), bytes };
    },
  };
}

/** The same at a worker: what comes is decoded in an arena of its own, one chunk of each server at a time. */
export function parameterDecoderOf({ codec: wanted, seed }: Encoded, layout: Layout, servers: number): EncodedParameters | undefined {
  const deltas = parameterDeltasOf(wanted, seed);
  const codecs: ReadonlyMap<number, Pick<ParameterCodec, 'number' | 'isLength' | 'decode'>> = byNumber(
    kindsOf(wanted).map((kind) => deltas ?? parameterCodecOf(kind, seed)),
  );
  const [first, ...others] = codecs.values();
  if (!first) return undefined;
  const chunkBytes = 4 * Math.max(...layout.chunks.map(({ length }) => length)) + PAGE_BYTES;
  const maximumBytes = Math.ceil(((servers + 2) * chunkBytes) / PAGE_BYTES + 16) * PAGE_BYTES;
  const decoder: ChunkDecoder = {
    codec: first.number,
    others: others.map(({ number }) => number),
    difference: deltas?.number,
    // A worker that lacks what a difference is to gets the chunk as it is.
    takes: takesOf(layout, new Set(codecs.keys()), deltas !== undefined || picksCodec({ codec: wanted }) ? all : none),
    isLength: (n, bytes, _chunk, codec) => codecs.get(codec)!.isLength(n, bytes),
    decode: ({ round, chunk, length, codec }, payload, { arena, pointer, length: n }) =>
      codecs.get(codec)!.decode(arena, payload.pointer, length, pointer, n, round, chunk),
  };
  return { decoder, arena: Arena.create({ initialBytes: maximumBytes, maximumBytes }) };
}
