/**
 * Frames of parameters with mistakes in them, at what a worker decodes them with: each is refused by its header, refused by its decoder, or decoded into its
 * region and nowhere else. The memory of a worker for this is bounded, and no frame keeps any of it.
 */
import { acquireRegion, checkChunk, Region } from '@paceline/exchange';
import { createLayout, type Layout } from '@paceline/learning';
import { FrameType, ProtocolError, type CodecSwitch, type FrameHeader } from '@paceline/protocol';
import { PARAMETER_CODECS, type RunSpec } from '@paceline/spec';
import { expect, test } from 'vitest';
import { parameterDecoderOf, parameterEncoderOf } from './run-codecs.js';
import { randomOf } from './random.fixture.js';

const FRAMES = process.env['PACELINE_SOAK'] === '1' ? 100_000 : 1_500;
const [LENGTH, STATE, SEED] = [600, 40, 5];
const GUARD = 16;

const zeros = { className: 'Zeros', config: {} };
const model = {
  variables: [
    { path: 'dense/kernel', shape: [2, LENGTH], section: 'trainable', initializer: zeros },
    { path: 'norm/mean', shape: [STATE], section: 'state', initializer: zeros },
  ],
  inputs: [],
  outputs: [],
  parameterCount: 2 * LENGTH,
  stateCount: STATE,
} as never;
const layout: Layout = {
  ...createLayout(model),
  chunks: [
    { index: 0, offset: 0, length: LENGTH, section: 'trainable' },
    { index: 1, offset: LENGTH, length: LENGTH, section: 'trainable' },
    { index: 2, offset: 2 * LENGTH, length: STATE, section: 'state' },
  ] as Layout['chunks'],
};

/** Counts, and the bits of float32: infinity, NaN, 1e38, −1. */
const WORDS = [0, 1, LENGTH, LENGTH + 1, 0x7fffffff, 0xffffffff, 0x7f800000, 0x7fc00000, 0x7e967699, 0xbf800000];

/** A copy with up to three mistakes: flipped bits, words that matter, bytes cut off or put on. */
function spoilt(payload: Uint8Array, random: (below: number) => number): Uint8Array {
  let out = payload.slice();
  for (let left = random(4); left > 0 && out.length >= 4; left--) {
    const at = random(out.length);
    const which = random(6);
    if (which < 3) out[at]! ^= 1 << random(8);
    else if (which < 5)
      new DataView(out.buffer).setUint32((random(2) * Math.min(at, out.length - 4)) & ~3, WORDS[random(WORDS.length)]!, true);
    else out = random(2) === 0 ? out.slice(0, at) : Uint8Array.from([...out, ...new Uint8Array(1 + random(5))]);
  }
  return out;
}

/** What a server sends of a chunk to workers that have zeros of it. */
function sentBy(spec: Pick<RunSpec, 'codec' | 'seed'>, picked: CodecSwitch | undefined) {
  const encoder = parameterEncoderOf(spec, layout, 100, picked)!;
  const { arena } = parameterDecoderOf({ codec: { kind: 'none', errorFeedback: false, parameters: 'int8' }, seed: SEED }, layout, 8)!;
  return (generation: number, index: number, random: (below: number) => number): { codec: number; payload: Uint8Array } => {
    const chunk = { index, arena, length: layout.chunks[index]!.length };
    const [values, held] = [acquireRegion(arena, chunk.length), acquireRegion(arena, chunk.length)];
    values.floats.forEach((_, i, floats) => (floats[i] = (random(2001) - 1000) / 1000));
    held.floats.fill(0);
    const advanced = encoder.advance?.(generation, chunk, values, held);
    const sent = encoder.encode?.(generation, chunk, values) ??
      advanced?.difference ?? { codec: 0, region: values.retain(), bytes: 4 * chunk.length };
    const payload = sent.region.bytes.slice(0, sent.bytes);
    for (const region of [values, held, sent.region, ...(advanced ? [advanced.held] : [])]) region.release();
    expect(arena.bytesInUse).toBe(0);
    return { codec: sent.codec, payload };
  };
}

const AUTO: CodecSwitch = { kind: 'int4', parameters: 'int8', fromRound: 0 };
const CODECS: readonly (readonly [string, NonNullable<RunSpec['codec']>])[] = [
  ...PARAMETER_CODECS.filter((kind) => kind !== 'float32').map(
    (parameters) => [parameters, { kind: 'none', errorFeedback: false, parameters, parameterDensity: 0.1 }] as const,
  ),
  ['auto', { kind: 'auto', errorFeedback: false }],
];

test.each(CODECS)(`%s: ${FRAMES} frames of parameters with mistakes`, { timeout: 600_000 }, (name, codec) => {
  const random = randomOf(CODECS.findIndex(([other]) => other === name) + 1);
  const spec = { codec, seed: SEED };
  const serve = sentBy(spec, name === 'auto' ? AUTO : undefined);
  const { decoder, arena } = parameterDecoderOf(spec, layout, 1)!;
  const outcomes = new Map<string, number>();
  const [before, after] = [acquireRegion(arena, GUARD), acquireRegion(arena, GUARD)];
  for (const guard of [before, after]) guard.bytes.fill(0xa5);
  const inUse = arena.bytesInUse;
  for (let i = 0; i < FRAMES; i++) {
    const index = random(10) === 0 ? 2 : random(2);
    const sent = serve(i, index, random);
    const payload = spoilt(sent.payload, random);
    const numbers = { type: FrameType.parameters, flags: 0, attempt: 1, term: 1, view: 1, nodeLo: 0, nodeHi: 0, payloadChecksum: 0 };
    const header: FrameHeader = { ...numbers, round: i, chunk: index, codec: sent.codec, length: payload.length };
    if (random(8) === 0) Object.assign(header, random(2) === 0 ? { codec: random(15) } : { chunk: random(4) });
    const outcome = taken(header, payload);
    outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1);
    if (arena.bytesInUse !== inUse) throw new Error(`frame ${i} of ${name} has left memory behind`);
    if ([before, after].some(({ bytes }) => bytes.some((x) => x !== 0xa5))) throw new Error(`frame ${i} of ${name} was written elsewhere`);
  }
  const wanted = ['taken', 'BAD_CODEC', 'UNKNOWN_CHUNK', 'WRONG_LENGTH', ...(codec.parameters === 'bf16' ? [] : ['BAD_PAYLOAD'])];
  expect([...outcomes.keys()].sort()).toEqual(wanted.sort());

  /** As a worker does: the header, then the bytes, then the chunk. */
  function taken(header: FrameHeader, payload: Uint8Array): string {
    const chunk = layout.chunks[header.chunk];
    try {
      checkChunk(header, FrameType.parameters, 1, chunk, decoder);
    } catch (error) {
      if (error instanceof ProtocolError) return error.code;
      throw error;
    }
    if (header.codec === 0) return 'taken';
    const regions = [acquireRegion(arena, Math.ceil(payload.length / 4)), acquireRegion(arena, chunk!.length)] as [Region, Region];
    regions[0].bytes.set(payload);
    const isTaken = decoder.decode(header, ...regions);
    for (const region of regions) region.release();
    return isTaken ? 'taken' : 'BAD_PAYLOAD';
  }
});
