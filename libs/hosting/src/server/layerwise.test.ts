/** Optimizers that need the norms of whole variables, and moving averages, against formulas written down a second time in float64. */
import { acquireRegion, type ChunkScalars, type Region } from '@paceline/exchange';
import { Arena } from '@paceline/kernels';
import { createLayout, judgeTrust, shardChunks } from '@paceline/learning';
import { optimizerSchema, type OptimizerSpec } from '@paceline/spec';
import { expect, test } from 'vitest';
import { ParameterStore } from './parameter-store.js';

const SHAPES = { 'a/kernel': [300, 250], 'a/bias': [250], 'b/kernel': [250, 10] } as const;
const variables = Object.entries(SHAPES).map(([path, shape]) => {
  return { path, shape, section: 'trainable' as const, initializer: { className: 'GlorotNormal', config: {} } };
});
const model = { variables, inputs: [], outputs: [], parameterCount: 77_750, stateCount: 0 };
const layout = createLayout(model);
const EXAMPLES = 8;
const ROUNDS = 3;

const gradientAt = (round: number, i: number): number => Math.fround(EXAMPLES * Math.sin(1 + i * 0.37 + round * 1.7) * (1 + (i % 7)));

function storeOf(owned: readonly number[], optimizer: OptimizerSpec, more: { lastRound?: number; freeze?: string[] } = {}): ParameterStore {
  const store = new ParameterStore({
    layout,
    owned,
    model,
    optimizer,
    seed: 1,
    gradientsInFlight: 1,
    examplesIn: () => EXAMPLES,
    createArena: (options) => Arena.create(options),
    ...more,
  });
  for (const _ of store.begin()); // nothing else waits here
  return store;
}

interface Place {
  readonly store: ParameterStore;
  readonly chunk: ParameterStore['chunks'][number];
  readonly gradient: Region;
  from: Region;
  to: Region;
}

const placesOf = (store: ParameterStore): Place[] =>
  store.chunks.map((chunk, i) => {
    const [from, to, gradient] = [store.initial[i]!, acquireRegion(chunk.arena, chunk.length), acquireRegion(chunk.arena, chunk.length)];
    return { store, chunk, from, to, gradient };
  });

function weightsOf(places: readonly Place[]): Float32Array {
  const weights = new Float32Array(layout.totalLength);
  for (const { chunk, from } of places) weights.set(from.floats, layout.chunks[chunk.index]!.offset);
  return weights;
}

function fill({ gradient, chunk }: Place, round: number): void {
  const { offset } = layout.chunks[chunk.index]!;
  for (let i = 0; i < chunk.length; i++) gradient.floats[i] = gradientAt(round, offset + i);
}

/** As servers and their coordinator do it. */
function train(optimizer: OptimizerSpec, servers: number, freeze?: string[]): { first: Float32Array; last: Float32Array } {
  const stores = Array.from({ length: servers }, (_, i) => storeOf(shardChunks(layout, servers, i), optimizer, freeze ? { freeze } : {}));
  const places = stores.flatMap(placesOf);
  const first = weightsOf(places);
  for (let round = 0; round < ROUNDS; round++) {
    for (const place of places) fill(place, round);
    const measure = (): ChunkScalars[] =>
      places.map(({ store, chunk, gradient, from }) => ({ chunk: chunk.index, ...store.measure(chunk, gradient, from, round) }));
    const scalars = measure();
    expect(measure()).toEqual(scalars); // a successor of the coordinator asks again
    const { scale, variables: ratios } = judgeTrust(scalars.reverse(), EXAMPLES, optimizer);
    const decision = {
      skip: false,
      examples: EXAMPLES,
      scale,
      variables: ratios.map(([variable, ratio]): [number, number] => [variable, ratio]),
    };
    for (const place of places) {
      place.store.update(place.chunk, round, place.from, place.to, place.gradient, decision);
      [place.from, place.to] = [place.to, place.from];
    }
  }
  return { first, last: weightsOf(places) };
}

const norm = (values: readonly number[]): number => Math.sqrt(values.reduce((sum, value) => sum + value * value, 0));

/** Each variable as a whole, in float64. */
function expected(first: Float32Array, step: (path: string, w: number[], g: number[], round: number) => number[]): number[] {
  return layout.variables.flatMap(({ path, offset, length }) => {
    let w = [...first.subarray(offset, offset + length)];
    for (let round = 0; round < ROUNDS; round++)
      w = step(
        path,
        w,
        w.map((_, i) => gradientAt(round, offset + i) / EXAMPLES),
        round,
      );
    return w;
  });
}

const distance = (a: ArrayLike<number>, b: ArrayLike<number>): number => {
  let most = 0;
  for (let i = 0; i < b.length; i++) most = Math.max(most, Math.abs(a[i]! - b[i]!));
  return most;
};

test('lamb: the norms of variables that lie in many chunks, the same bits on one server and on three', () => {
  expect(layout.chunks.length).toBeGreaterThan(4);
  const optimizer = optimizerSchema.parse({ name: 'lamb', learningRate: 0.02, weightDecay: 0.1, weightDecayExclude: ['*/bias'] });
  const { first, last } = train(optimizer, 1);
  for (const servers of [2, 3]) expect(train(optimizer, servers).last).toEqual(last);
  const moments = new Map<string, { m: number[]; v: number[] }>();
  const wanted = expected(first, (path, given, g, round) => {
    const w = path.endsWith('/bias') ? given : given.map((one) => one - one * 0.1 * 0.02);
    const { m, v } = moments.get(path) ?? { m: w.map(() => 0), v: w.map(() => 0) };
    moments.set(path, { m, v });
    const u = g.map((one, i) => {
      m[i] = 0.9 * m[i]! + 0.1 * one;
      v[i] = 0.999 * v[i]! + 0.001 * one * one;
      return m[i]! / (1 - 0.9 ** (round + 1)) / (Math.sqrt(v[i]! / (1 - 0.999 ** (round + 1))) + 1e-7);
    });
    const [a, b] = [norm(w), norm(u)];
    return w.map((one, i) => one - (a > 0 && b > 0 ? a / b : 1) * 0.02 * u[i]!);
  });
  expect(distance(last, first)).toBeGreaterThan(1e-3);
  expect(distance(last, wanted)).toBeLessThan(2e-6);
});

test('lars: a ratio for each variable, none for those without weight decay, the same bits on one server and on three', () => {
  const optimizer = optimizerSchema.parse({
    name: 'lars',
    learningRate: 2,
    trustCoefficient: 0.02,
    weightDecay: 0.01,
    weightDecayExclude: ['*/bias'],
  });
  const { first, last } = train(optimizer, 1);
  expect(train(optimizer, 3).last).toEqual(last);
  const velocity = new Map<string, number[]>();
  const wanted = expected(first, (path, w, g) => {
    const isBias = path.endsWith('/bias');
    const v = velocity.get(path) ?? w.map(() => 0);
    velocity.set(path, v);
    const ratio = isBias ? 1 : (0.02 * norm(w)) / (norm(g) + 0.01 * norm(w) + 1e-7);
    return w.map((one, i) => {
      v[i] = 0.9 * v[i]! - 2 * ratio * (g[i]! + (isBias ? 0 : 0.01 * one));
      return one + v[i]!;
    });
  });
  expect(distance(last, first)).toBeGreaterThan(1e-3);
  expect(distance(last, wanted) / Math.max(...wanted.map(Math.abs))).toBeLessThan(2e-6);
});

test.each(['lamb', 'lars'])('%s: frozen variables stay, and take no part', (name) => {
  const { first, last } = train(optimizerSchema.parse({ name }), 2, ['b/*']);
  expect(last.subarray(75_250)).toEqual(first.subarray(75_250));
  expect(last.subarray(0, 75_250)).not.toEqual(first.subarray(0, 75_250));
});

test.each(['lamb', 'lars'])('%s: weights that are not finite are told as such, and not as a sum that no message holds', (name) => {
  const place = placesOf(storeOf([0], optimizerSchema.parse({ name })))[0]!;
  fill(place, 0);
  place.from.floats[3] = Infinity;
  expect(place.store.measure(place.chunk, place.gradient, place.from, 0)).toEqual({ isFinite: false, squares: [] });
});

test.each(['lamb', 'lars'])(
  '%s: ratios have the bits of the chunks in their order, whoever reports first; of a norm of 0 there is none',
  (name) => {
    const spec = optimizerSchema.parse({ name });
    const sumsOf = (chunk: number, phase: number) =>
      Array.from({ length: 50 }, (_, variable): [number, number] => [
        variable,
        Math.abs(Math.sin(1 + chunk * 7.3 + variable * 1.7 + phase)),
      ]);
    const scalars = Array.from({ length: 7 }, (_, chunk): ChunkScalars => {
      const [squares, weights] = [sumsOf(chunk, 0), sumsOf(chunk, 0.5)];
      return { chunk, isFinite: true, squares: [...squares, [50, 0], [51, 1]], weights: [...weights, [50, 1], [51, 0]] };
    });
    const { variables } = judgeTrust(scalars, EXAMPLES, spec);
    expect(variables.map(([variable]) => variable)).toEqual(Array.from({ length: 50 }, (_, variable) => variable));
    const inAnotherOrder = [6, 2, 0, 5, 1, 4, 3].map((i) => scalars[i]!);
    expect(judgeTrust(inAnotherOrder, EXAMPLES, spec).variables).toEqual(variables);
  },
);

test('a gradient that is not finite has no ratio', () => {
  const scalars = [{ chunk: 0, isFinite: false, squares: [] }];
  expect(judgeTrust(scalars, 1, optimizerSchema.parse({ name: 'lamb' }))).toMatchObject({ isFinite: false, variables: [] });
});

test('moving averages follow Keras: the first takes all, weights become theirs every n rounds and at the end, and a round may be left out', () => {
  const optimizer = optimizerSchema.parse({ name: 'sgd', learningRate: 0.5, emaMomentum: 0.8, emaOverwriteRounds: 4 });
  const all = layout.chunks.map(({ index }) => index);
  const store = storeOf(all, optimizer, { lastRound: 6, freeze: ['a/bias'] });
  const places = placesOf(store);
  const first = weightsOf(places);
  const seen: Float32Array[] = [];
  for (let round = 0; round < 7; round++) {
    for (const place of places) {
      fill(place, round);
      if (round === 2) place.from = store.leaveOut(place.chunk, round, place.from);
      else {
        store.update(place.chunk, round, place.from, place.to, place.gradient);
        [place.from, place.to] = [place.to, place.from];
      }
    }
    seen.push(weightsOf(places));
  }
  const { offset, length } = layout.variables[1]!;
  let [w, average] = [[...first], [...first]];
  for (let round = 0; round < 7; round++) {
    w = w.map((one, i) => {
      const isFrozen = i >= offset && i < offset + length;
      return round === 2 || isFrozen ? one : one - (0.5 * gradientAt(round, i)) / EXAMPLES;
    });
    average = average.map((one, i) => (round === 0 ? w[i]! : 0.8 * one + 0.2 * w[i]!));
    if (round === 3 || round === 6) w = [...average];
    expect(distance(seen[round]!, w), `round ${round}`).toBeLessThan(3e-5);
  }
  expect(seen[6]!.subarray(offset, offset + length)).toEqual(first.subarray(offset, offset + length));
  expect(distance(seen[6]!, seen[5]!)).toBeGreaterThan(0.1);
});
