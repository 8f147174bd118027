import { acquireRegion } from '@paceline/exchange';
import { Arena } from '@paceline/kernels';
import { createLayout, initialValues } from '@paceline/learning';
import { expect, test } from 'vitest';
import type { AppliedOptimizer, OptimizerSpec } from '@paceline/spec';
import type { AppliedSlots } from './applied-rounds.js';
import { ParameterStore } from './parameter-store.js';
import { inSlices } from './slices.js';

const ADAM: OptimizerSpec = { name: 'adam', learningRate: 0.1, beta1: 0.9, beta2: 0.999, epsilon: 1e-7 };

function storeOf(
  shape: readonly number[],
  className: string,
  optimizer: AppliedOptimizer,
  rateFactor?: (round: number) => number,
  examplesIn: (round: number) => number = () => 1,
): ParameterStore {
  const variable = { path: 'dense/kernel', shape, section: 'trainable', initializer: { className, config: {} } } as const;
  const model = { variables: [variable], inputs: [], outputs: [], parameterCount: shape[0]! * shape[1]!, stateCount: 0 };
  const layout = createLayout(model as never);
  return new ParameterStore({
    layout,
    owned: layout.chunks.map(({ index }) => index),
    model: model as never,
    seed: 1,
    gradientsInFlight: 1,
    examplesIn,
    optimizer,
    ...(rateFactor && { rateFactor }),
    createArena: (options) => Arena.create(options),
  });
}

const valuesOf = (store: ParameterStore): number[] => store.initial.flatMap((region) => [...region.floats]);

test.each([
  ['GlorotNormal', [500, 400]],
  ['Orthogonal', [300, 300]],
])(
  'initial values by %s never keep the event loop for longer than a slice and one step, and have the bits of one go',
  async (className, shape) => {
    const stepMs = 3;
    const sliceMs = 10;
    let now = 0;
    let steps = 0;
    let sliceSinceMs = 0;
    const slices: number[] = [];
    const clock = {
      now: () => now,
      after: (_ms: number, act: () => void) => {
        slices.push(now - sliceSinceMs);
        // Others have their turn.
        now += 100;
        sliceSinceMs = now;
        queueMicrotask(act);
        return () => undefined;
      },
    };
    const store = storeOf(shape, className, ADAM);
    function* watched(): Generator<undefined, void, undefined> {
      for (const step of store.begin()) {
        steps++;
        now += stepMs;
        yield step;
      }
    }
    await inSlices(watched(), { clock, sliceMs }, new AbortController().signal);
    expect(slices.length).toBeGreaterThan(3);
    expect(Math.max(...slices)).toBeLessThan(sliceMs + stepMs);
    // No step is longer than 16,384 elements, so the time of one has a bound whatever the size of the shard.
    expect(steps).toBeGreaterThanOrEqual((shape[0]! * shape[1]!) / 16_384);
    const { variables } = store['options'].model;
    const whole = new Float32Array(shape[0]! * shape[1]!);
    initialValues(variables[0]!, 1, 0, whole.length, whole);
    expect(valuesOf(store)).toEqual([...whole]);
  },
);

test('initial values are not computed any further when nobody waits for them', async () => {
  const dropped = new AbortController();
  let slices = 0;
  const clock = {
    now: () => 0,
    after: (_ms: number, act: () => void) => {
      if (++slices === 2) dropped.abort();
      queueMicrotask(act);
      return () => undefined;
    },
  };
  await expect(inSlices(storeOf([500, 400], 'Zeros', ADAM).begin(), { clock, sliceMs: 0 }, dropped.signal)).rejects.toMatchObject({
    name: 'AbortError',
  });
  expect(slices).toBe(2);
});

test('a tensor that is shorter or longer than its chunk is refused', async () => {
  const store = storeOf([10, 10], 'Zeros', ADAM);
  for (const bytes of [0, 396, 404])
    await expect(store.restore({ tensor: () => Promise.resolve(new Uint8Array(bytes)) })).rejects.toMatchObject({ code: 'CONFIG_CHANGED' });
});

test('a store that nobody waits for any more reads no further tensor of its checkpoint', async () => {
  const store = storeOf([10, 10], 'Zeros', { name: 'momentum', learningRate: 0.1, momentum: 0.9, nesterov: false });
  const dropped = new AbortController();
  const read: string[] = [];
  const tensor = (name: string, signal?: AbortSignal): Promise<Uint8Array> => {
    signal?.throwIfAborted();
    read.push(name);
    dropped.abort();
    return Promise.resolve(new Uint8Array(100 * 4));
  };
  await expect(store.restore({ tensor }, dropped.signal)).rejects.toMatchObject({ name: 'AbortError' });
  expect(read).toEqual(['parameters/0']);
});

test('an update takes the learning rate of its round', () => {
  const sgd: OptimizerSpec = { name: 'sgd', learningRate: 0.5 };
  const store = storeOf([2, 2], 'Zeros', sgd, (round) => 1 / 2 ** round);
  const chunk = store.chunks[0]!;
  const gradient = acquireRegion(chunk.arena, chunk.length);
  gradient.floats.fill(1);
  const region = store.initial[0]!;
  const moved = [0, 1, 2].map((round) => {
    const before = region.floats[0]!;
    store.update(chunk, round, region, region, gradient);
    return before - region.floats[0]!;
  });
  expect(moved).toEqual([0.5, 0.25, 0.125]);
  const item = { round: 3, replica: 0 } as never;
  store.updateFromItem(chunk, { item, step: 9, staleness: 0, fetched: undefined }, region, region, gradient, 1, {
    stalenessScaledRate: false,
    delayCompensation: 0,
  });
  expect(region.floats[0]).toBe(-0.9375);
});

test('with EF21 what comes is added to the estimate, which counts by the examples of its round; the sum stays as it came', () => {
  const examplesIn = (round: number): number => (round === 2 ? 4 : 8);
  const store = storeOf([2, 2], 'Zeros', { name: 'sgd', learningRate: 1, keepsEstimate: true }, undefined, examplesIn);
  for (const step of store.begin()) expect(step).toBeUndefined();
  const chunk = store.chunks[0]!;
  const sum = acquireRegion(chunk.arena, chunk.length);
  const [region, next] = [store.initial[0]!, acquireRegion(chunk.arena, chunk.length)];
  const used = chunk.arena.bytesInUse;
  // In all: 8, 24, and in a round of half of the examples half of that and 2.
  const moved = [8, 16, 2].map((value, round) => {
    sum.floats.fill(value);
    const before = region.floats[0]!;
    expect(store.measure(chunk, sum, region, round).squares).toEqual([[0, 4 * [8, 24, 14][round]! ** 2]]);
    store.update(chunk, round, region, next, sum);
    expect([...sum.floats]).toEqual([value, value, value, value]);
    region.floats.set(next.floats);
    return before - next.floats[0]!;
  });
  expect(moved).toEqual([1, 3, 3.5]);
  expect([...chunk.arena.f32(store['slots'].get(0)!.at(-1)!, 4)]).toEqual([14, 14, 14, 14]);
  // A gradient that is cut to half is no other estimate.
  sum.floats.fill(2);
  store.update(chunk, 3, region, next, sum, { skip: false, examples: 8, scale: 0.5, variables: [] });
  expect(region.floats[0]! - next.floats[0]!).toBe((0.5 * 30) / 8);
  store.update(chunk, 4, region, next, sum, { skip: false, examples: 8, scale: 1, variables: [[0, 0.25]] });
  expect(region.floats[0]! - next.floats[0]!).toBe((0.25 * 32) / 8);
  expect([...chunk.arena.f32(store['slots'].get(0)!.at(-1)!, 4)]).toEqual([32, 32, 32, 32]);
  expect(chunk.arena.bytesInUse).toBe(used);
});

test('frozen variables keep their bits, moving averages too, also in an update in place', () => {
  const variables = [
    { path: 'a/kernel', shape: [30], section: 'trainable', initializer: { className: 'Ones', config: {} } },
    { path: 'b/kernel', shape: [20], section: 'trainable', initializer: { className: 'Ones', config: {} } },
    { path: 'a/moving_mean', shape: [5], section: 'state', initializer: { className: 'Ones', config: {} } },
  ] as const;
  const model = { variables, inputShape: [1], outputShape: [1], parameterCount: 50, stateCount: 5 };
  const layout = createLayout(model);
  for (const isInPlace of [false, true]) {
    const store = new ParameterStore({
      layout,
      owned: [0, 1],
      model: model as never,
      seed: 1,
      gradientsInFlight: 1,
      examplesIn: () => 3,
      optimizer: ADAM,
      freeze: ['a'],
      createArena: (options) => Arena.create(options),
    });
    for (const step of store.begin()) expect(step).toBeUndefined();
    for (const [i, chunk] of store.chunks.entries()) {
      const before = store.initial[i]!;
      const [gradient, after] = [acquireRegion(chunk.arena, chunk.length), isInPlace ? before : acquireRegion(chunk.arena, chunk.length)];
      gradient.floats.fill(0.7);
      // As a checkpoint of a run that has trained them leaves them.
      for (const pointer of store['slots'].get(i) ?? []) chunk.arena.f32(pointer, chunk.length).fill(0.3);
      const update = { step: 1, staleness: 0, fetched: undefined, isCompensated: false } as never;
      if (isInPlace) store.updateFromItem(chunk, update, before, after, gradient, 3, { delayCompensation: 0, stalenessScaledRate: false });
      else store.update(chunk, 0, before, after, gradient);
      const values = [...after.floats];
      if (i === 1) expect(values).toEqual([1, 1, 1, 1, 1]);
      else {
        expect(values.slice(0, 30)).toEqual(values.slice(0, 30).map(() => 1));
        expect(values.slice(30).every((value) => value !== 1)).toBe(true);
      }
    }
  }
});

test.each([
  ['sgd', { name: 'sgd', learningRate: 0.5 }, 2],
  ['adam', ADAM, 4],
] as const)('rounds of %s use no memory beyond two generations, slots and the gradients in flight', (_, optimizer, vectors) => {
  const store = storeOf([2048, 4096], 'Zeros', optimizer);
  let present = [...store.initial];
  for (let round = 0; round < 5; round++) {
    const next = store.chunks.map((chunk) => {
      const gradient = acquireRegion(chunk.arena, chunk.length);
      const region = acquireRegion(chunk.arena, chunk.length);
      gradient.release();
      return region;
    });
    for (const region of present) region.release();
    present = next;
  }
  const capacity = [...new Set(store.chunks.map(({ arena }) => arena))].reduce((sum, { bytesCapacity }) => sum + bytesCapacity, 0);
  expect(capacity).toBeLessThan(1.15 * vectors * 2048 * 4096 * 4);
});

test('where the worker applies the optimizer the shard takes its parameters, and its slots before the next round; a checkpoint keeps those of before', async () => {
  const store = storeOf([400, 300], 'Zeros', Object.assign({}, ADAM, { isApplied: true as const }));
  for (const _ of store.begin()); // a few values
  const places = store.chunks.map((chunk, i) => {
    const [sent, out] = [acquireRegion(chunk.arena, chunk.length), acquireRegion(chunk.arena, chunk.length)];
    sent.floats.fill(7);
    return { chunk, before: store.initial[i]!, sent, out };
  });
  expect(places.length).toBeGreaterThan(1);
  const [first, ...others] = places;
  expect(store.canReplaceGradient(first!.chunk)).toBe(true);
  expect(() => store.update(first!.chunk, 9, first!.before, first!.out, first!.sent)).toThrow(/whose slots are not in this process/);
  const seen = (round: number): Set<number> => {
    const values = new Set<number>();
    store.byWorker.readSlots(round, (_, __, part) => part.forEach((value) => values.add(value)));
    return values;
  };
  const slotsOf = (by: number): AppliedSlots => ({
    copySlot: (slot, from, into) => void into.fill(by * (slot + 1) + from),
    copied: () => slotsOf(by),
  });
  const own = slotsOf(1000);
  store.byWorker.end(9, own);
  const snapshot = store.takeSnapshot(9, store.initial);
  // Neither the number of the round nor its examples play a part.
  const decision = { skip: false, examples: 5, scale: 0.5, variables: [] };
  store.update(first!.chunk, 9, first!.before, first!.out, first!.sent, decision);
  expect(seen(9), 'another worker begins with the round').toEqual(new Set([0]));
  for (const { chunk, before, out, sent } of others) store.update(chunk, 9, before, out, sent, decision);
  expect([...new Set(places.flatMap(({ out }) => [...out.floats]))]).toEqual([7]);
  expect([seen(9), store.byWorker.takeSlots(9)], 'it begins with the round, of which all has come').toEqual([new Set([0]), false]);
  store.byWorker.release(own);
  expect(store.byWorker.hasSlotsOf(own), 'the worker has ended').toBe(false);
  const offsets = places.map((_, i) => places.slice(0, i).reduce((sum, { chunk }) => sum + chunk.length, 0));
  expect(seen(10)).toEqual(new Set([1000, 2000].flatMap((of) => offsets.map((offset) => of + offset))));
  expect([store.byWorker.takeSlots(10), store.byWorker.takeSlots(11)], 'round 10 was left out').toEqual([true, false]);
  expect(() => store.update(first!.chunk, 9, first!.before, first!.out, first!.sent), 'the copy was taken, and is gone').toThrow(
    /round 9 .*not in this/,
  );
  const kept = [...snapshot.tensors()].filter(({ name }) => name.startsWith('slots/'));
  for (const { read } of kept) expect(Buffer.from(await read()).every((byte) => byte === 0)).toBe(true);
  expect(kept).toHaveLength(2 * places.length);
});

test('where the worker applies the optimizer a round is left out that is NaN throughout, and no other', () => {
  const store = storeOf([4, 3], 'Zeros', Object.assign({}, ADAM, { isApplied: true as const }));
  const [chunk] = store.chunks;
  const values = acquireRegion(chunk!.arena, chunk!.length);
  const judged = (fill: (i: number) => number) => {
    values.floats.set(Float32Array.from(values.floats, (_, i) => fill(i)));
    return [store.staysFinite(chunk!, 0, values), store.measure(chunk!, values, values, 0)];
  };
  expect(judged(() => 1)).toEqual([true, { isFinite: true, squares: [] }]);
  expect(judged((i) => (i === 0 ? NaN : -Infinity))).toEqual([true, { isFinite: true, squares: [] }]);
  expect(judged(() => NaN)).toEqual([false, { isFinite: false, squares: [] }]);
});
