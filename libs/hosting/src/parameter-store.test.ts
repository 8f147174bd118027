import { Arena } from '@paceline/kernels';
import { createLayout, initialValues } from '@paceline/learning';
import { expect, test } from 'vitest';
import type { OptimizerSpec } from '@paceline/spec';
import { ParameterStore } from './parameter-store.js';
import { inSlices } from './slices.js';

const ADAM: OptimizerSpec = { name: 'adam', learningRate: 0.1, beta1: 0.9, beta2: 0.999, epsilon: 1e-7 };

function storeOf(shape: readonly number[], className: string, optimizer: OptimizerSpec): ParameterStore {
  const variable = { path: 'dense/kernel', shape, section: 'trainable', initializer: { className, config: {} } } as const;
  const model = { variables: [variable], inputShape: [10], outputShape: [10], parameterCount: shape[0]! * shape[1]!, stateCount: 0 };
  const layout = createLayout(model as never);
  return new ParameterStore({
    layout,
    owned: layout.chunks.map(({ index }) => index),
    model: model as never,
    seed: 1,
    gradientsInFlight: 1,
    examplesIn: () => 1,
    optimizer,
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
