import { expect, test } from 'vitest';
import { Arena } from '@paceline/kernels';
import type { CodecSpec } from '@paceline/spec';
import { codecKey } from './codec.js';
import { codecOf } from './codecs.js';
import { GradientEncoder, type ResidualLoss } from './gradient-encoder.js';

const CHUNKS = [
  { index: 0, offset: 0, length: 600, isEncoded: true },
  { index: 1, offset: 600, length: 100, isEncoded: true },
  { index: 2, offset: 700, length: 20, isEncoded: false },
];
const LENGTH = 720;

function encoderOf(spec: CodecSpec, examplesOf: (round: number) => number = () => 1) {
  const arena = Arena.create({ initialBytes: 1 << 18, maximumBytes: 1 << 18 });
  const codec = codecOf(spec)!;
  const encoder = new GradientEncoder(codec, arena, CHUNKS, 42, spec, 1, examplesOf);
  /** Encodes a gradient of equal elements, and decodes what a server would get. */
  const send = (
    round: number,
    replica: number,
    gradient: (i: number) => number,
  ): { bytes: number; got: Float32Array; lost: ResidualLoss | undefined } => {
    const pointer = arena.alloc(4 * LENGTH);
    arena.f32(pointer, LENGTH).forEach((_, i, values) => (values[i] = gradient(i)));
    const { pointer: at, codecs, offsets, lengths, lost } = encoder.encode(round, replica, pointer);
    const got = new Float32Array(LENGTH);
    const part = arena.alloc(4 * 600);
    for (const [i, { index, offset, length }] of CHUNKS.entries()) {
      const key = codecKey(42, round, replica, index);
      if (codecs[i] === 0) arena.kernels.copy(part, at + offsets[i]!, length);
      else expect(codec.decode(arena, at + offsets[i]!, lengths[i]!, part, length, key)).toBe(true);
      got.set(arena.f32(part, length), offset);
    }
    for (const used of [part, at, pointer]) arena.free(used);
    return { bytes: lengths.reduce((sum, x) => sum + x, 0), got, lost };
  };
  return { arena, encoder, send };
}

const TOP: CodecSpec = { kind: 'top-k', density: 0.1, errorFeedback: true };
const EF21: CodecSpec = { ...TOP, feedbackRule: 'ef21' };

test('the trainable chunks are encoded, and state is sent as it is', () => {
  const { send, arena } = encoderOf({ kind: 'top-k', density: 0.1, errorFeedback: false });
  const { bytes, got } = send(0, 0, (i) => i);
  expect([...got.subarray(700)]).toEqual(Array.from({ length: 20 }, (_, i) => 700 + i));
  expect(got.filter((x, i) => i < 700 && x !== 0)).toHaveLength(70);
  // Chunk 0: 60 elements, the first of them 540 on, which takes two bytes. Chunk 1: 10 elements, the first 90 on. State: 20 float32.
  expect(bytes).toBe(4 + 5 * 60 + 1 + (4 + 5 * 10) + 80);
  expect(arena.bytesInUse).toBe(0);
});

test('with error feedback nothing is lost: what is left out is sent later', () => {
  const { send } = encoderOf(TOP);
  const sums = new Float64Array(LENGTH);
  const ROUNDS = 60;
  for (let round = 0; round < ROUNDS; round++) send(round, 0, (i) => 1 + (i % 7)).got.forEach((x, i) => (sums[i]! += x));
  // What is still kept of an element is at most what came in while the others were sent.
  for (let i = 0; i < 700; i++) {
    expect(sums[i]).toBeLessThanOrEqual(ROUNDS * (1 + (i % 7)));
    expect(sums[i]).toBeGreaterThan(0);
  }
});

test.each<[string, CodecSpec]>([
  ['top-k', EF21],
  ['sign', { kind: 'sign', errorFeedback: true, feedbackRule: 'ef21' }],
  ['a codec that leaves chunks as they are', { kind: 'threshold', threshold: 1e-6, errorFeedback: true, feedbackRule: 'ef21' }],
])('with EF21 what was sent adds up to an estimate, which a gradient that stays is found by: %s', (_, spec) => {
  // Every third round has half of the examples.
  const examplesOf = (round: number): number => (round % 3 === 2 ? 4 : 8);
  const { send, encoder } = encoderOf(spec, examplesOf);
  const gradient = (i: number): number => 1 + (i % 7);
  const estimate = new Float32Array(LENGTH);
  const errors: number[] = [];
  for (let round = 0; round < 30; round++) {
    const examples = examplesOf(round);
    const growth = round === 0 ? 1 : Math.fround(examples / examplesOf(round - 1));
    const { got } = send(round, 0, (i) => examples * gradient(i));
    got.subarray(0, 700).forEach((x, i) => (estimate[i] = x + Math.fround(estimate[i]! * growth)));
    errors.push(Math.hypot(...Array.from(estimate.subarray(0, 700), (x, i) => x / examples - gradient(i))));
  }
  const kept = new Float32Array(encoder.residualFloats);
  expect(encoder.readResidual(29, 0, kept)).toBe(true);
  expect(kept, 'the replica and the servers have one estimate').toEqual(estimate.subarray(0, 700));
  expect(errors.at(-1)).toBeLessThan(1e-2 * Math.max(1, errors[0]!));
});

test('without error feedback the same elements are sent each time', () => {
  const { send } = encoderOf({ ...TOP, errorFeedback: false });
  expect(send(1, 0, (i) => i).got).toEqual(send(0, 0, (i) => i).got);
});

test('a round that is computed again is encoded the same; one that did not follow begins anew', () => {
  const { send, arena } = encoderOf(TOP);
  const gradient = (i: number): number => 1 + Math.sin(i);
  const first = send(0, 0, gradient).got;
  const second = send(1, 0, gradient).got;
  expect(second).not.toEqual(first);
  expect(send(1, 0, gradient).got).toEqual(second);
  const inUse = arena.bytesInUse;
  expect(send(5, 0, gradient).got).toEqual(first);
  expect(send(6, 0, gradient).got).toEqual(second);
  expect(arena.bytesInUse).toBe(inUse);
});

test.each<CodecSpec>([
  TOP,
  EF21,
  { kind: 'dgc', density: 0.1, errorFeedback: false },
  { kind: 'power-sgd', rank: 1, errorFeedback: false },
])('$kind says when a replica begins a round without what the round before had left', (spec) => {
  const { send } = encoderOf(spec);
  const lost = (round: number, replica: number) => send(round, replica, (i) => i).lost;
  // Replica 0 from the first round on: nothing was left before, then it is here.
  expect([lost(0, 0), lost(1, 0), lost(1, 0), lost(2, 0)]).toEqual([undefined, undefined, undefined, undefined]);
  // Replica 1 comes from another worker. Encoded twice in a round, it is lost in both.
  // An estimate that began anew stays lost: the servers have another one.
  expect([lost(2, 1), lost(2, 1), lost(3, 1)]).toEqual(['absent', 'absent', spec === EF21 ? 'outdated' : undefined]);
  // It was somewhere else in round 4.
  expect([lost(5, 1), lost(5, 1), lost(6, 1)]).toEqual(['outdated', 'outdated', spec === EF21 ? 'outdated' : undefined]);
});

test('with EF21 a lost estimate is found nowhere until it is taken', () => {
  const { send, encoder } = encoderOf(EF21);
  const [values, into] = [new Float32Array(encoder.residualFloats).fill(3), new Float32Array(encoder.residualFloats)];
  expect(send(4, 0, (i) => i).lost).toBe('absent');
  expect(encoder.readResidual(4, 0, into)).toBe(false);
  encoder.takeResidual(4, 0, values);
  expect(encoder.readResidual(4, 0, into)).toBe(true);
  expect(into).toEqual(values);
  expect(send(5, 0, (i) => i).lost).toBeUndefined();
});

test('a codec that keeps nothing loses nothing', () => {
  expect(encoderOf({ kind: 'int8', errorFeedback: false }).send(5, 0, (i) => i).lost).toBeUndefined();
});

test('replicas have residuals of their own', () => {
  const { send } = encoderOf(TOP);
  const gradient = (i: number): number => 1 + Math.sin(i);
  const first = send(0, 0, gradient).got;
  expect(send(0, 1, gradient).got).toEqual(first);
});

test('a gradient that is not finite leaves nothing behind', () => {
  const { send } = encoderOf({ kind: 'int8', errorFeedback: true });
  expect(send(0, 0, () => NaN).got.some(Number.isNaN)).toBe(true);
  expect(send(1, 0, () => 1).got.every(Number.isFinite)).toBe(true);
});

test('what is kept counts in a round of fewer examples as it would have in its own', () => {
  const { send } = encoderOf({ kind: 'top-k', density: 0.01, errorFeedback: true }, (round) => (round === 1 ? 2 : 256));
  // One element of 256 per example is sent, the others of 128 are kept; the next round has two examples.
  send(0, 0, (i) => (i === 3 ? 256 * 256 : 256 * 128));
  const { got } = send(1, 0, () => 2);
  const sent = got.subarray(0, 600).filter((x) => x !== 0);
  expect([...new Set(sent)]).toEqual([2 * 128 + 2]);
});

test.each([
  ['error feedback', TOP],
  ['EF21', EF21],
  ['dgc', { kind: 'dgc', density: 0.05, errorFeedback: false }],
  ['power-sgd', { kind: 'power-sgd', rank: 1, errorFeedback: false }],
] as const)('%s goes on elsewhere from what a round has left, with the same bytes', (_, spec) => {
  const gradient = (i: number): number => Math.sin(i) + 0.1;
  const [first, second] = [encoderOf(spec), encoderOf(spec)];
  for (const round of [0, 1, 2]) first.send(round, 0, gradient);
  const left = new Float32Array(first.encoder.residualFloats);
  expect(first.encoder.readResidual(2, 0, left)).toBe(true);
  const goesOn = first.send(3, 0, gradient);
  const again = new Float32Array(left.length);
  // The round before the last one is here too, until the next one is encoded.
  expect(first.encoder.readResidual(2, 0, again)).toBe(true);
  expect(again).toEqual(left);
  expect([first.encoder.readResidual(1, 0, again), first.encoder.readResidual(2, 1, again)]).toEqual([false, false]);
  // What is there already is replaced.
  second.send(0, 0, (i) => i);
  second.encoder.takeResidual(2, 0, left);
  const taken = second.send(3, 0, gradient);
  expect([taken.lost, taken.bytes]).toEqual([undefined, goesOn.bytes]);
  expect(taken.got).toEqual(goesOn.got);
  expect(encoderOf(spec).send(3, 0, gradient).got).not.toEqual(goesOn.got);
});
