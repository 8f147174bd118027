/** What threads do to their shares of the weights is what a shard does: the same bits of weights and slots, for every optimizer that they have. */
import { acquireRegion, type RoundDecision } from '@paceline/exchange';
import { Arena } from '@paceline/kernels';
import { createLayout, createOptimizer, judgeRound, measures, SharedUpdates } from '@paceline/learning';
import { isLayerwise, optimizerSchema, parseRunSpec, type OptimizerSpec, type RunSpecInput } from '@paceline/spec';
import { expect, test } from 'vitest';
import { ParameterStore } from './parameter-store.js';

const STEPS = 3;
const EXAMPLES = 7;
const THREADS = 3;
const FLOAT_BYTES = 4;
const zeros = { className: 'GlorotUniform', config: {} };
/** Chunks that several variables share, one variable in several chunks, and state. */
const variables = [
  { path: 'dense/kernel', shape: [300, 120], section: 'trainable', initializer: zeros },
  { path: 'dense/bias', shape: [120], section: 'trainable', initializer: zeros },
  { path: 'held/kernel', shape: [100, 50], section: 'trainable', initializer: zeros },
  { path: 'norm/gamma', shape: [50], section: 'trainable', initializer: zeros },
  { path: 'norm/mean', shape: [50], section: 'state', initializer: zeros },
] as const;
const model = { variables, inputs: [], outputs: [], parameterCount: 41_170, stateCount: 50 };
const layout = createLayout(model as never);
const { totalLength, trainableLength } = layout;
const all = layout.chunks.map(({ index }) => index);
const rateFactor = (round: number): number => 1 / (1 + round);

const specOf = (input: RunSpecInput) => {
  const result = parseRunSpec(input);
  if (!result.ok) throw new Error(JSON.stringify(result.issues));
  return result.spec;
};
const NAMES = optimizerSchema.options.map(({ shape: { name } }) => name.value);
const byElements = NAMES.filter((name) => !isLayerwise({ name } as OptimizerSpec));
const CASES: readonly (readonly [what: string, input: RunSpecInput])[] = [
  ...byElements.map((name) => [name, { optimizer: { name } }] as const),
  ['weights that decay, some of them', { optimizer: { name: 'adamw', weightDecay: 0.05, weightDecayExclude: ['*bias'] } }],
  ['frozen variables, momentum', { optimizer: { name: 'momentum' }, freeze: ['held', 'norm'] }],
  ['frozen variables, ftrl', { optimizer: { name: 'ftrl' }, freeze: ['held'] }],
  ['clipNorm, and a frozen variable', { optimizer: { name: 'sgd' }, gradient: { clipNorm: 0.3 }, freeze: ['held'] }],
  ['clipGlobalNorm, without a frozen variable', { optimizer: { name: 'adam' }, gradient: { clipGlobalNorm: 0.2 }, freeze: ['held'] }],
  ['clipNorm and clipGlobalNorm', { optimizer: { name: 'rmsprop' }, gradient: { clipNorm: 0.3, clipGlobalNorm: 0.35 } }],
  ['clipValue', { optimizer: { name: 'momentum' }, gradient: { clipValue: 0.02 } }],
];

const gradientOf = (step: number): Float32Array =>
  Float32Array.from({ length: totalLength }, (_, i) => Math.sin(i * 0.37 + step * 1.3) * (i % 97 === 0 ? 5 : 0.05));
const bytesOf = (values: Float32Array): Buffer => Buffer.from(values.slice().buffer);

/** The shard: weights and slots after each step. */
function* ofShard({ optimizer, gradient: rules, freeze }: ReturnType<typeof specOf>) {
  const store = new ParameterStore({
    layout,
    owned: all,
    model: model as never,
    seed: 3,
    gradientsInFlight: 1,
    examplesIn: () => EXAMPLES,
    optimizer,
    clipValue: rules.clipValue,
    freeze,
    rateFactor,
    createArena: (options) => Arena.create(options),
  });
  for (const _ of store.begin()); // a few values
  const places = store.chunks.map((chunk, i) => {
    const [to, gradient] = [acquireRegion(chunk.arena, chunk.length), acquireRegion(chunk.arena, chunk.length)];
    return { chunk, offset: layout.chunks[chunk.index]!.offset, from: store.initial[i]!, to, gradient };
  });
  const weights = new Float32Array(totalLength);
  const gather = (): Float32Array => {
    for (const { from, offset } of places) weights.set(from.floats, offset);
    return weights;
  };
  yield { weights: gather(), slots: [] as Float32Array[] };
  for (let step = 0; step < STEPS; step++) {
    const values = gradientOf(step);
    for (const { gradient, offset, chunk } of places) gradient.floats.set(values.subarray(offset, offset + chunk.length));
    let decision: RoundDecision | undefined;
    if (rules.clipNorm !== undefined || rules.clipGlobalNorm !== undefined) {
      const scalars = places.map(({ chunk, gradient, from }) => ({ chunk: chunk.index, ...store.measure(chunk, gradient, from, step) }));
      const { scale, variables: scaled } = judgeRound(scalars, EXAMPLES, rules);
      decision = { skip: false, examples: EXAMPLES, scale, variables: scaled.map(([variable, factor]) => [variable, factor]) };
    }
    for (const place of places) {
      store.update(place.chunk, step, place.from, place.to, place.gradient, decision);
      [place.from, place.to] = [place.to, place.from];
    }
    const slots = createOptimizer(optimizer).slots.map(() => new Float32Array(trainableLength));
    store.byWorker.readSlots(step + 1, (slot, from, part) => slots[slot]!.set(part, from));
    yield { weights: gather(), slots };
  }
}

test.each(CASES)('%s: three threads with a share each end in the bits of a shard', (_, input) => {
  const spec = specOf(input);
  const { optimizer, gradient: clip, freeze } = spec;
  const { slots: states } = createOptimizer(optimizer);
  const bytes = totalLength * FLOAT_BYTES * (states.length + 3);
  const arena = Arena.create({ initialBytes: bytes, maximumBytes: 2 * bytes });
  const vector = (fill: number): number => {
    const pointer = arena.alloc(totalLength * FLOAT_BYTES);
    arena.kernels.fill(pointer, totalLength, fill);
    return pointer;
  };
  const [weights, gradient] = [vector(0), vector(0)];
  const slots = states.map(({ initialValue }) => vector(initialValue));
  const cutsNorms = clip.clipNorm !== undefined || clip.clipGlobalNorm !== undefined;
  const measured = cutsNorms ? new Float64Array(measures(layout, optimizer)) : undefined;
  const threads = Array.from({ length: THREADS }, (__, thread) => {
    const chunks = all.filter((chunk) => chunk % THREADS === thread);
    return new SharedUpdates({ arena, layout, chunks, optimizer, clip, freeze, weights, slots, measured });
  });
  let step = -1;
  for (const wanted of ofShard(spec)) {
    if (step < 0) arena.f32(weights, totalLength).set(wanted.weights);
    else {
      arena.f32(gradient, totalLength).set(gradientOf(step));
      const start = arena.f32(weights, totalLength).slice();
      for (const thread of threads) expect(thread.measure(gradient)).toBe(true);
      const own = { gradient, examples: EXAMPLES, step: step + 1, rateFactor: rateFactor(step), start };
      for (const thread of threads) thread.update(own, thread.judge(EXAMPLES));
      expect(bytesOf(arena.f32(weights, totalLength)).equals(bytesOf(wanted.weights)), `weights of step ${step}`).toBe(true);
      for (const [slot, pointer] of slots.entries())
        expect(bytesOf(arena.f32(pointer, trainableLength)).equals(bytesOf(wanted.slots[slot]!)), `slot ${slot} of step ${step}`).toBe(
          true,
        );
    }
    step++;
  }
});

test('a sum that is not finite is found by the thread whose chunk it is in', () => {
  const arena = Arena.create({ initialBytes: totalLength * 16, maximumBytes: totalLength * 32 });
  const gradient = arena.alloc(totalLength * FLOAT_BYTES);
  const optimizer = specOf({}).optimizer;
  const threads = [0, 1].map(
    (thread) =>
      new SharedUpdates({
        arena,
        layout,
        chunks: all.filter((c) => c % 2 === thread),
        optimizer,
        clip: {},
        weights: 0,
        slots: [],
        measured: undefined,
      }),
  );
  const { offset } = layout.chunks[1]!;
  for (const bad of [NaN, Infinity]) {
    arena.f32(gradient, totalLength).fill(1)[offset] = bad;
    expect(threads.map((thread) => thread.measure(gradient))).toEqual([true, false]);
  }
});
