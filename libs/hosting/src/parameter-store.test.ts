import { Arena } from '@paceline/kernels';
import { createLayout } from '@paceline/learning';
import { expect, test } from 'vitest';
import { ParameterStore } from './parameter-store.js';

test('a store that nobody waits for any more reads no further tensor of its checkpoint', async () => {
  const variable = {
    path: 'dense/kernel',
    shape: [10, 10],
    section: 'trainable',
    initializer: { className: 'Zeros', config: {} },
  } as const;
  const model = { variables: [variable], inputShape: [10], outputShape: [10], parameterCount: 100, stateCount: 0 };
  const layout = createLayout(model);
  const store = new ParameterStore({
    layout,
    owned: layout.chunks.map(({ index }) => index),
    model,
    seed: 1,
    gradientsInFlight: 1,
    examplesIn: () => 1,
    optimizer: { name: 'momentum', learningRate: 0.1, momentum: 0.9, nesterov: false },
    createArena: (options) => Arena.create(options),
  });
  const dropped = new AbortController();
  const read: string[] = [];
  const tensor = (name: string, signal?: AbortSignal): Promise<Uint8Array> => {
    signal?.throwIfAborted();
    read.push(name);
    dropped.abort();
    return Promise.resolve(new Uint8Array(layout.chunks[0]!.length * 4));
  };
  await expect(store.restore({ tensor }, dropped.signal)).rejects.toMatchObject({ name: 'AbortError' });
  expect(read).toEqual(['parameters/0']);
});
