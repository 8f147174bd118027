/** The models that bench engines trains, and batches of pseudo-random or MNIST rows for them. */

/**
 * @param {[string, Record<string, unknown>][]} layers
 * @returns {import('@paceline/spec').RunSpecInput['model']}
 */
const sequential = (...layers) => ({
  topology: { class_name: 'Sequential', config: { layers: layers.map(([class_name, config]) => ({ class_name, config })) } },
});
/** @type {[string, Record<string, unknown>]} */
const rows = ['InputLayer', { batch_input_shape: [null, 28, 28] }];
/** @typedef {'mlp' | 'mlp-mnist' | 'cnn' | 'lstm' | 'gru' | 'cnn-64' | 'resnet-64' | 'transformer'} Model */

/** @typedef {import('@paceline/spec').RowFormat} RowFormat */
/**
 * @param {readonly number[]} shape
 * @returns {RowFormat}
 */
const imagesOf = (shape) => ({
  inputs: [{ name: 'image', shape: [...shape] }],
  targets: [{ name: 'label', kind: 'classes', shape: [], classes: 10 }],
  isWeighted: false,
});
export const [DIGITS, PHOTOS] = [imagesOf([28, 28, 1]), imagesOf([64, 64, 3])];
/** @type {RowFormat} */
const TEXTS = {
  inputs: [{ name: 'text', shape: [64], ids: 96 }],
  targets: [{ name: 'next', kind: 'classes', shape: [64], classes: 96 }],
  isWeighted: false,
};

/**
 * What the engine trains; batch sizes as in the table of the docs. The recurrent layers are those of Keras' defaults.
 * @type {Readonly<Record<Model, { batch: number, model: import('@paceline/spec').RunSpecInput['model'], format?: RowFormat }>>}
 */
export const MODELS = {
  mlp: { batch: 128, model: 'mlp' },
  'mlp-mnist': { batch: 128, model: 'mlp' },
  cnn: { batch: 32, model: 'cnn' },
  lstm: { batch: 64, model: sequential(rows, ['LSTM', { units: 128, recurrent_activation: 'sigmoid' }], ['Dense', { units: 10 }]) },
  gru: {
    batch: 64,
    model: sequential(rows, ['GRU', { units: 128, recurrent_activation: 'sigmoid', reset_after: true }], ['Dense', { units: 10 }]),
  },
  'cnn-64': { batch: 32, model: 'cnn', format: PHOTOS },
  'resnet-64': { batch: 32, model: 'resnet', format: PHOTOS },
  transformer: { batch: 32, model: 'transformer', format: TEXTS },
};
export const ALL = /** @type {Model[]} */ (Object.keys(MODELS));

/**
 * A batch of `count` examples.
 * @param {Model} name
 * @param {number} count
 */
export async function batchOf(name, count) {
  const { format = DIGITS } = MODELS[name];
  const [input, target] = [format.inputs[0], format.targets[0]];
  /** @param {{ shape: readonly number[] } | undefined} field */
  const values = (field) => new Float32Array((field?.shape ?? []).reduce((product, side) => product * side, count));
  const [x, y] = [values(input), values(target)];
  if (name.endsWith('-mnist')) {
    const { openDataset } = await import('@paceline/data');
    (await openDataset('mnist')).train.gather(
      Int32Array.from({ length: count }, (_, i) => i),
      0,
      count,
      { inputs: [x], targets: [y], weights: undefined },
    );
  } else {
    const ids = input && 'ids' in input ? input.ids : undefined;
    x.forEach((_, i) => (x[i] = ids ? (i * 37) % ids : ((i * 37) % 101) / 101));
    y.forEach((_, i) => (y[i] = i % 10));
  }
  return { inputs: [x], targets: [y], count };
}
