/** Every stage has memory for its own variables alone, and the vectors of the whole model are put together from these. */
import { createLayout } from '@paceline/learning';
import { expect, it } from 'vitest';
import { UnsupportedError } from '../errors.js';
import { vectorsOf } from './pipeline.js';
import { placedStages } from './stage-memory.js';

const initializer = { className: 'Zeros', config: {} };
const variable = (path: string, length: number, section: 'trainable' | 'state' = 'trainable') => ({
  path,
  shape: [length],
  section,
  initializer,
});

function placedModel(lengths: readonly [number, number], pipelines = 1) {
  const variables = [
    variable('a/kernel', lengths[0]),
    variable('norm/gamma', 4),
    variable('b/kernel', lengths[1]),
    variable('norm/mean', 4, 'state'),
  ];
  const description = { variables, inputs: [], outputs: [], parameterCount: lengths[0] + 4 + lengths[1], stateCount: 4 };
  const layout = createLayout(description);
  const stages = [['a/kernel', 'norm/gamma', 'norm/mean'], ['b/kernel']].map((own) => ({
    layers: [],
    variables: own,
    passed: 0,
    end: undefined,
  }));
  const share = { replicas: 1, from: 0, to: 1, nodes: [{ lo: 0, hi: 1 }] };
  return { layout, ...placedStages(layout, description, stages, { stages: 2, pipelines, microBatches: 4 }, { share, slots: [0, 0.5] }) };
}

const FIRST = 100_000;
const SECOND = 300_000;

it('an arena for each stage, as large as the stage needs', () => {
  const { memories } = placedModel([FIRST, SECOND]);
  const vectors = 1 + vectorsOf({ stages: 2, pipelines: 1, microBatches: 4 })[0]! + 2; // parameters, gradients, slots
  const [first, second] = memories.map(({ arena }) => arena.buffer.byteLength);
  for (const [bytes, elements] of [
    [first, FIRST],
    [second, SECOND],
  ] as const) {
    const needed = elements * 4 * vectors;
    expect(bytes).toBeGreaterThanOrEqual(needed);
    expect(bytes).toBeLessThan(needed * 1.2 + 2 ** 18);
  }
  expect(memories[1]!.header).toBe(memories[0]!.header);
  expect(memories[1]!.losses).toBe(memories[0]!.losses);
});

it('what is written to the whole vectors comes back, over the boundary too', () => {
  const { layout, parameters, slots } = placedModel([5, 7]);
  const values = Float32Array.from({ length: layout.totalLength }, (_, i) => i + 1);
  parameters.set(values, 0);
  expect(parameters.slice(0, layout.totalLength)).toEqual(values);
  expect(parameters.slice(3, 12)).toEqual(values.subarray(3, 12));
  parameters.set([-1, -2], 8);
  expect(parameters.slice(7, 11)).toEqual(Float32Array.of(8, -1, -2, 11));
  expect(slots).toHaveLength(2);
  expect(slots[1]!.slice(0, layout.trainableLength)).toEqual(new Float32Array(layout.trainableLength).fill(0.5));
  slots[1]!.set([9], 11);
  expect(slots[1]!.slice(10, 13)).toEqual(Float32Array.of(0.5, 9, 0.5));
  expect(slots[0]!.slice(11, 12)).toEqual(Float32Array.of(0));
});

it('a stage that is too large is refused, and says how large', () => {
  expect(() => placedModel([10, 50_000_000])).toThrow(UnsupportedError);
  expect(() => placedModel([10, 50_000_000])).toThrow(
    /50000000 parameters of a stage with 2 slots and 3 vectors of gradients take \d+ MiB of shared memory, and a stage has 1024 MiB: use more stages, or fewer micro-batches/,
  );
  expect(() => placedModel([10, 30_000_000], 3)).toThrow(
    /9 vectors of gradients .* use more stages, fewer pipelines, or fewer micro-batches/,
  );
});
