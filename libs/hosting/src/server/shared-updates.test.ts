/** What threads do to their shares of the weights is what a shard does: the same bits, for every optimizer that they have. */
import { Arena } from '@paceline/kernels';
import { createLayout, createOptimizer, measures, SharedUpdates } from '@paceline/learning';
import { parseRunSpec, type OptimizerSpec, type RunSpec } from '@paceline/spec';
import { expect, test } from 'vitest';
import { replayUpdates } from './replay-updates.js';

const NAMES = ['sgd', 'momentum', 'adam', 'rmsprop', 'adamw', 'amsgrad', 'adamax', 'nadam', 'adagrad', 'adadelta', 'ftrl', 'lion'] as const;
const optimizerOf = (input: object): OptimizerSpec => {
  const result = parseRunSpec({ optimizer: input });
  if (!result.ok) throw new Error(JSON.stringify(result.issues));
  return result.spec.optimizer;
};
const STEPS = 3;
/** Of two chunks and a part of a third. */
const LENGTH = 530_000;
const value = (i: number, step: number): number => Math.sin(i * 0.37 + step * 1.3) * (i % 97 === 0 ? 50 : 0.5);

const cases: [name: string, optimizer: OptimizerSpec, gradient: Partial<RunSpec['gradient']>][] = [
  ...NAMES.map((name): [string, OptimizerSpec, object] => [name, optimizerOf({ name }), {}]),
  ['adamw, whose weights decay', optimizerOf({ name: 'adamw', weightDecay: 0.05 }), {}],
  ['sgd with clipNorm', optimizerOf({ name: 'sgd' }), { clipNorm: 3 }],
  ['adam with clipGlobalNorm', optimizerOf({ name: 'adam' }), { clipGlobalNorm: 2 }],
  ['momentum with clipValue', optimizerOf({ name: 'momentum' }), { clipValue: 0.2 }],
];

test.each(cases)('%s: three threads with a share each end in the bits of a shard', (_, optimizer, clip) => {
  const initial = Array.from({ length: LENGTH }, (__, i) => value(i, 100));
  const gradients = Array.from({ length: STEPS }, (__, step) => Array.from({ length: LENGTH }, (___, i) => value(i, step)));
  const wanted = [...replayUpdates({ optimizer, gradient: clip, initial, gradients })];

  const variable = {
    path: 'recorded/weights',
    shape: [LENGTH],
    section: 'trainable',
    initializer: { className: 'Zeros', config: {} },
  } as const;
  const layout = createLayout({ variables: [variable], parameterCount: LENGTH, stateCount: 0 });
  const { slots: states } = createOptimizer(optimizer);
  const arena = Arena.create({ initialBytes: LENGTH * 4 * (states.length + 3), maximumBytes: LENGTH * 4 * (states.length + 4) });
  const vector = (fill: number): number => {
    const pointer = arena.alloc(LENGTH * 4);
    arena.kernels.fill(pointer, LENGTH, fill);
    return pointer;
  };
  const [weights, gradient] = [vector(0), vector(0)];
  const slots = states.map(({ initialValue }) => vector(initialValue));
  arena.f32(weights, LENGTH).set(initial);
  const cutsNorms = clip.clipNorm !== undefined || clip.clipGlobalNorm !== undefined;
  const measured = cutsNorms ? new Float64Array(measures(layout, optimizer)) : undefined;
  const all = layout.chunks.map(({ index }) => index);
  const shares = [0, 1, 2].map((thread) => all.filter((chunk) => chunk % 3 === thread));
  const threads = shares.map((chunks) => new SharedUpdates({ arena, layout, chunks, optimizer, clip, weights, slots, measured }));
  for (let step = 0; step < STEPS; step++) {
    arena.f32(gradient, LENGTH).set(gradients[step]!);
    for (const thread of threads) expect(thread.measure(gradient)).toBe(true);
    const start = new Float32Array(LENGTH);
    for (const thread of threads) thread.update({ gradient, examples: 1, step: step + 1, rateFactor: 1, start }, thread.judge(1));
    expect(Buffer.compare(Buffer.from(arena.f32(weights, LENGTH).slice().buffer), Buffer.from(wanted[step]!.buffer)), `step ${step}`).toBe(
      0,
    );
  }
});
