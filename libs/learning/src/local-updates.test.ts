import { Arena } from '@paceline/kernels';
import { expect, test } from 'vitest';
import type { Layout } from './layout.js';
import { LocalUpdates, type LocalUpdatesOptions } from './local-updates.js';
import { createOptimizer } from './optimizers.js';

const layout: Layout = {
  variables: [
    { path: 'a/kernel', shape: [5], section: 'trainable', offset: 0, length: 5 },
    { path: 'b/kernel', shape: [3], section: 'trainable', offset: 5, length: 3 },
    { path: 'c/mean', shape: [2], section: 'state', offset: 8, length: 2 },
  ],
  trainableLength: 8,
  stateLength: 2,
  totalLength: 10,
  chunks: [],
};
const START = Float32Array.from({ length: 10 }, (_, i) => 0.3 * i - 1);
const SGD = { name: 'sgd', learningRate: 0.1 } as const;
const ADAM = { name: 'adam', learningRate: 0.01, beta1: 0.9, beta2: 0.999, epsilon: 1e-7 } as const;

interface Harness {
  /** What is sent of a round; undefined when it was given up at that local step. */
  readonly run: (round: number, replica: number, steps: number, isGivenUp?: (localStep: number) => boolean) => Float32Array | undefined;
  readonly bytesInUse: () => number;
}

/** The loss of an example is half the square of each weight, so the gradient of n examples is n times the weights; state moves towards 1. */
function harness(
  more: Partial<LocalUpdatesOptions> = {},
  examplesOf = (localStep: number) => 2 + localStep,
  wrongAtStep1?: number,
): Harness {
  const arena = Arena.create({ initialBytes: 1 << 16, maximumBytes: 1 << 18 });
  const options = { arena, layout, optimizer: SGD, clip: {}, keepsSlots: false, localSteps: 4, rateFactor: () => 1, ...more };
  const updates = new LocalUpdates(options);
  const out = arena.alloc(40);
  return {
    bytesInUse: () => arena.bytesInUse,
    run: (round, replica, steps, isGivenUp = () => false) => {
      const examples = updates.run({ round, replica, steps, start: START, out }, (localStep, weights, gradient) => {
        if (isGivenUp(localStep)) return undefined;
        const count = examplesOf(localStep);
        gradient.set(weights.map((w, i) => (i < 8 ? w : (w + 1) / 2) * count));
        if (localStep === 1 && wrongAtStep1 !== undefined) gradient[4] = wrongAtStep1;
        return count;
      });
      return examples === undefined ? undefined : arena.f32(out, 10).slice();
    },
  };
}

test('one local step of SGD is the gradient of the round, scaled by the rate: an outer step at rate 1 is plain SGD', () => {
  const sent = harness().run(0, 0, 1)!;
  for (const [i, w] of START.entries()) expect(sent[i]).toBeCloseTo(i < 8 ? 2 * 0.1 * w : w + 1, 5);
});

test('the difference of the weights after all steps counts by the examples of the replica, and state is the last', () => {
  const sent = harness().run(0, 0, 3)!;
  const examples = 2 + 3 + 4;
  for (const [i, w] of START.entries()) expect(sent[i]).toBeCloseTo(examples * (i < 8 ? w - w * 0.9 ** 3 : 1 - (1 - w) / 8), 4);
});

test('a replica without examples sends zeros', () => {
  expect(harness({}, () => 0).run(0, 0, 3)).toEqual(new Float32Array(10));
});

test('the rate follows its schedule inside of a round, and a round that is computed again is the same', () => {
  const { run } = harness({ rateFactor: (round) => round, localSteps: 2 });
  const sent = run(3, 0, 2)!;
  for (const [i, w] of START.slice(0, 8).entries()) expect(sent[i]).toBeCloseTo(5 * (w - w * (1 - 0.3) * (1 - 0.35)), 4);
  expect(run(3, 0, 2)).toEqual(sent);
});

test('slots begin anew in each round, unless they are kept; then a replica that is computed twice is computed the same', () => {
  const reset = harness({ optimizer: ADAM });
  const kept = harness({ optimizer: ADAM, keepsSlots: true });
  const first = reset.run(0, 1, 3)!;
  expect(reset.run(1, 1, 3)).toEqual(first);
  expect(kept.run(0, 1, 3)).toEqual(first);
  const second = kept.run(1, 1, 3)!;
  expect(second).not.toEqual(first);
  expect(kept.run(1, 1, 3)).toEqual(second);
  expect(kept.run(2, 1, 3)).not.toEqual(second);
  expect(kept.run(4, 1, 3), 'another worker had it in round 3').toEqual(first);
});

test('a round that is given up leaves nothing behind, and memory does not grow', () => {
  const { run, bytesInUse } = harness({ optimizer: ADAM, keepsSlots: true });
  const first = run(0, 0, 3)!;
  run(1, 0, 3);
  const before = bytesInUse();
  expect(run(2, 0, 3, (localStep) => localStep === 1)).toBeUndefined();
  expect(run(3, 0, 3)).toEqual(first);
  for (let round = 4; round < 20; round++) run(round % 7 === 0 ? round + 100 : round, 0, 2);
  expect(bytesInUse()).toBeLessThanOrEqual(before);
});

test.each([
  ['NaN, whose sign lion takes for 0', { optimizer: { name: 'lion', learningRate: 0.01, beta1: 0.9, beta2: 0.99 } }, NaN],
  ['infinity, which a clip by value makes a number', { clip: { clipValue: 1 } }, Infinity],
] as const)('a step whose gradient has %s makes the whole round NaN, for the servers to judge', (_, more, wrong) => {
  const { run, bytesInUse } = harness({ ...more, keepsSlots: true }, undefined, wrong);
  const before = bytesInUse();
  for (let round = 0; round < 4; round++) expect(run(round, 0, 3)!.every(Number.isNaN)).toBe(true);
  const { run: good } = harness({ ...more, keepsSlots: true });
  expect(good(0, 0, 3)!.every(Number.isFinite)).toBe(true);
  expect(bytesInUse() - before).toBeLessThanOrEqual(64); // the weights
});

/** What it did before, with the centre where it is: own weights a step of SGD further, then a part of the way to the centre. */
test('elastic: a replica goes on with its own weights, sends how far they are from the centre, and comes nearer to it', () => {
  const { run } = harness({ movingRate: 0.25 }, () => 2);
  const own = START.slice(0, 8);
  for (let round = 0; round < 3; round++) {
    const sent = run(round, 0, 1)!;
    for (const [i, centre] of START.slice(0, 8).entries()) {
      const reached = 0.9 * own[i]!;
      expect(sent[i]).toBeCloseTo(2 * (centre - reached), 5);
      own[i] = reached + 0.25 * (centre - reached);
    }
    for (const i of [8, 9]) expect(sent[i]).toBeCloseTo(START[i]! + 1, 5); // state begins with that of the centre
  }
});

test('elastic: a replica that is computed twice is the same, one that was elsewhere begins at the centre, slots are kept or not', () => {
  for (const keepsSlots of [true, false]) {
    const { run, bytesInUse } = harness({ movingRate: 0.25, optimizer: ADAM, keepsSlots });
    const first = run(0, 1, 3)!;
    const second = run(1, 1, 3)!;
    expect(second).not.toEqual(first);
    expect(run(1, 1, 3)).toEqual(second);
    const third = run(2, 1, 3)!;
    expect(run(4, 1, 3), 'another worker had it in round 3').toEqual(first);
    expect(run(5, 1, 3)).toEqual(second);
    expect(run(6, 1, 3)).toEqual(third);
    const before = bytesInUse();
    expect(run(7, 1, 3, (localStep) => localStep === 1)).toBeUndefined();
    for (let round = 8; round < 28; round++) run(round % 7 === 0 ? round + 100 : round, 1, 2);
    expect(bytesInUse()).toBeLessThanOrEqual(before);
  }
});

test('elastic: a replica without examples comes nearer to the centre too, and sends nothing', () => {
  let count = 2;
  const { run } = harness({ movingRate: 0.25 }, () => count);
  run(0, 0, 1);
  count = 0;
  expect(run(1, 0, 1)).toEqual(new Float32Array(10));
  count = 2;
  const own = 0.75 * (0.75 * 0.9 + 0.25) + 0.25;
  for (const [i, centre] of START.slice(0, 8).entries()) expect(run(2, 0, 1)![i]).toBeCloseTo(2 * centre * (1 - 0.9 * own), 5);
});

test('frozen variables stay, weights decay where they are not excluded, and clipping is that of the mean gradient of a step', () => {
  const decaying = { ...SGD, weightDecay: 0.5, weightDecayExclude: ['b/*'] };
  const frozen = harness({ optimizer: decaying, freeze: ['a/*', 'c/*'] }).run(0, 0, 1)!;
  for (const [i, w] of START.entries()) expect(frozen[i]).toBeCloseTo(i < 5 ? 0 : i < 8 ? 2 * 0.1 * w : 2 * w, 5);
  const decayed = harness({ optimizer: decaying }).run(0, 0, 1)!;
  for (const [i, w] of START.slice(0, 5).entries()) expect(decayed[i]).toBeCloseTo(2 * w * (1 - 0.95 + 0.1), 5);
  const norm = Math.hypot(...START.slice(0, 8));
  const clipped = harness({ clip: { clipGlobalNorm: norm / 4 } }).run(0, 0, 1)!;
  for (const [i, w] of START.slice(0, 8).entries()) expect(clipped[i]).toBeCloseTo((2 * 0.1 * w) / 4, 5);
  const cut = harness({ clip: { clipValue: 0.5 } }).run(0, 0, 1)!;
  for (const [i, w] of START.slice(0, 8).entries()) expect(cut[i]).toBeCloseTo(2 * 0.1 * Math.max(-0.5, Math.min(0.5, w)), 5);
});

test('each optimizer by elements takes the steps that it takes at a server', () => {
  const arena = Arena.create({ initialBytes: 1 << 16, maximumBytes: 1 << 16 });
  const optimizer = createOptimizer(ADAM);
  const [weights, gradient, m, v] = [0, 0, 0, 0].map(() => arena.alloc(32)) as [number, number, number, number];
  arena.f32(weights, 8).set(START.subarray(0, 8));
  for (const slot of [m, v]) arena.kernels.fill(slot, 8, 0);
  for (const [i, count] of [2, 3].entries()) {
    arena.f32(gradient, 8).set(arena.f32(weights, 8).map((w) => w * count));
    const scale = { count: 8, step: i + 1, gradScale: Math.fround(1 / count) };
    optimizer.apply(arena.kernels, { paramIn: weights, paramOut: weights, grad: gradient, slots: [m, v], ...scale });
  }
  const sent = harness({ optimizer: ADAM }).run(0, 0, 2)!;
  arena.f32(weights, 8).forEach((w, i) => expect(sent[i]).toBe(Math.fround(Math.fround(START[i]! - w) * 5)));
});
