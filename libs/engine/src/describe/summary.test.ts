import { expect, it } from 'vitest';
import { IMAGES, sequential } from '../run.fixture.js';
import { summarizeModel } from './summary.js';

it('lists layers with their outputs, parameters, frozen ones and connections, as Keras does', () => {
  const model = sequential(
    ['InputLayer', { name: 'in', batch_input_shape: [null, 28, 28, 1] }],
    ['Conv2D', { name: 'c', filters: 4, kernel_size: 3, trainable: false }],
    ['BatchNormalization', { name: 'n' }],
    [
      'Sequential',
      {
        name: 'head',
        layers: [
          { class_name: 'Flatten', config: { name: 'f' } },
          { class_name: 'Dense', config: { name: 'd', units: 10 } },
        ],
      },
    ],
  );
  const summary = summarizeModel({ model, freeze: ['n/beta'] }, undefined);
  expect(
    summary.layers.map(({ name, outputShapes, parameters, frozen, connectedTo }) => [
      name,
      outputShapes[0],
      parameters,
      frozen,
      connectedTo,
    ]),
  ).toEqual([
    ['in', [null, 28, 28, 1], 0, 0, []],
    ['c', [null, 26, 26, 4], 40, 40, ['in']],
    ['n', [null, 26, 26, 4], 16, 4, ['c']],
    ['head/f', [null, 2704], 0, 0, ['n']],
    ['head/d', [null, 10], 27_050, 0, ['head/f']],
  ]);
  expect(summary).toMatchObject({ parameters: 27_098, frozen: 44, state: 8 });
  expect(summarizeModel({ model: 'mlp' }, IMAGES)).toMatchObject({ parameters: 235_146, frozen: 0, state: 0 });
});
