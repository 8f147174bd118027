/** The new parameters may be written over the gradient: nobody can tell from their bits. */
import { acquireRegion, type RoundDecision } from '@paceline/exchange';
import { Arena } from '@paceline/kernels';
import { createLayout } from '@paceline/learning';
import { optimizerSchema } from '@paceline/spec';
import { expect, test } from 'vitest';
import { ParameterStore, type StorePlan } from './parameter-store.js';

const EXAMPLES = 7;
const variables = [
  { path: 'a/kernel', shape: [37], section: 'trainable', initializer: { className: 'GlorotUniform', config: {} } },
  { path: 'b/kernel', shape: [24], section: 'trainable', initializer: { className: 'GlorotUniform', config: {} } },
  { path: 'a/moving_mean', shape: [5], section: 'state', initializer: { className: 'Ones', config: {} } },
] as const;
const model = { variables, inputShape: [1], outputShape: [1], parameterCount: 61, stateCount: 5 } as never;
const layout = createLayout(model);

function storeOf(plan: Pick<StorePlan, 'optimizer'> & Partial<StorePlan>): ParameterStore {
  const owned = layout.chunks.map(({ index }) => index);
  const createArena = (options: { initialBytes: number; maximumBytes: number }): Arena => Arena.create(options);
  const store = new ParameterStore({
    layout,
    owned,
    model,
    seed: 1,
    gradientsInFlight: 1,
    examplesIn: () => EXAMPLES,
    createArena,
    lastRound: 3,
    ...plan,
  });
  for (const step of store.begin()) void step;
  return store;
}

/** Parameters and slots after three rounds, and whether the new parameters were written over the gradient wherever they may be. */
function afterRounds(store: ParameterStore, isOverGradient: boolean, decision: RoundDecision | undefined): number[][] {
  const present = [...store.initial];
  for (let round = 0; round < 3; round++)
    for (const [i, chunk] of store.chunks.entries()) {
      const gradient = acquireRegion(chunk.arena, chunk.length);
      gradient.floats.set(Float32Array.from({ length: chunk.length }, (_, at) => Math.sin(at + 11 * round + 1) * EXAMPLES));
      const next = isOverGradient && store.canReplaceGradient(chunk) ? gradient : acquireRegion(chunk.arena, chunk.length);
      store.update(chunk, round, present[i]!, next, gradient, decision);
      present[i] = next;
    }
  const slots = store.chunks.flatMap(({ index, arena, length }) =>
    (store['slots'].get(index) ?? []).map((pointer) => [...arena.f32(pointer, length)]),
  );
  return [...present.map(({ floats }) => [...floats]), ...slots];
}

const decided: RoundDecision = { skip: false, examples: 5, scale: 0.5, variables: [[1, 0.25]] };
const names = ['sgd', 'momentum', 'adam', 'amsgrad', 'adamax', 'nadam', 'rmsprop', 'adagrad', 'adadelta', 'ftrl', 'lion'];

test.each(names)('%s: the same bits with clipping, frozen variables, moving averages and decided rounds', (name) => {
  for (const fields of [{}, { emaMomentum: 0.9, emaOverwriteRounds: 2 }])
    for (const plan of [{}, { clipValue: 0.3 }, { freeze: ['a'] }])
      for (const decision of [undefined, decided]) {
        const optimizer = optimizerSchema.parse({ name, ...fields });
        const [over, apart] = [true, false].map((isOver) => afterRounds(storeOf({ optimizer, ...plan }), isOver, decision));
        expect(over).toEqual(apart);
      }
});

test('who decays weights or has trust ratios takes memory of its own; state does not', () => {
  const may = (optimizer: object): boolean[] => {
    const store = storeOf({ optimizer: optimizerSchema.parse(optimizer) });
    return store.chunks.map((chunk) => store.canReplaceGradient(chunk));
  };
  expect(layout.chunks.map(({ section }) => section)).toEqual(['trainable', 'state']);
  expect(may({ name: 'sgd' })).toEqual([true, true]);
  for (const optimizer of [{ name: 'adamw' }, { name: 'sgd', weightDecay: 0.1 }, { name: 'lamb' }, { name: 'lars', learningRate: 0.1 }])
    expect(may(optimizer)).toEqual([false, true]);
  expect(may({ name: 'adamw', weightDecay: 0 })).toEqual([true, true]);
});
