/**
 * The built-in models as Layers topologies, so that they take the same road as a person's own. They fit themselves to the rows of the run: inputs are
 * flattened (but for the image of the CNN) and laid side by side, each target gets a last layer of its size. All end in logits.
 * The MLP and the CNN are the ones that the peer benchmarks train; weights start from Glorot & Bengio 2010 (uniform).
 */
import { fieldLength, type LayerTopology, type MODEL_ZOO, type ModelTopology, type RowFormat } from '@paceline/spec';
import { ModelError } from '../errors/model-error.js';
import { imageModel, isImageModel } from './image-models.js';
import { dense, input, lastLayers, layer } from './topology-builder.js';
import { isSequenceModel, sequenceModel } from './sequence-models.js';

type ZooName = (typeof MODEL_ZOO)[number];

const conv = (name: string, filters: number): LayerTopology =>
  layer('Conv2D', name, {
    filters,
    kernel_size: [3, 3],
    activation: 'relu',
    kernel_initializer: 'glorot_uniform',
    bias_initializer: 'zeros',
  });
const pool = (name: string): LayerTopology => layer('MaxPooling2D', name, { pool_size: [2, 2] });

const block = (number: number, filters: number): LayerTopology[] => [conv(`conv2d_${number}`, filters), pool(`max_pooling2d_${number}`)];
const DENSE_END = [layer('Flatten', 'flatten_1'), dense('dense_1', 128, 'relu')];

/** What lies between the inputs and the last layer; `last` is the number in the last one's name. */
interface Hidden {
  readonly layers: readonly LayerTopology[];
  readonly last: number;
}

const HIDDEN: Record<'linear' | 'mlp' | 'mlp-dropout', Hidden> = {
  linear: { layers: [], last: 1 },
  mlp: { layers: [dense('dense_1', 256, 'relu'), dense('dense_2', 128, 'relu')], last: 3 },
  'mlp-dropout': {
    layers: [
      dense('dense_1', 256),
      layer('BatchNormalization', 'batch_normalization_1'),
      layer('Activation', 'activation_1', { activation: 'relu' }),
      layer('Dropout', 'dropout_1', { rate: 0.5 }),
      dense('dense_2', 128, 'relu'),
      layer('Dropout', 'dropout_2', { rate: 0.5 }),
    ],
    last: 3,
  },
};

/** Side of the maps below which the CNN makes none smaller: what dense_1 has grows with their square. */
const LAST_MAP = 14;

/** Larger images get more blocks, so that a photo does not end in a dense layer of millions. */
function cnnFor({ shape }: { readonly shape: readonly number[] }): Hidden {
  const layers: LayerTopology[] = [];
  let side = Math.min(shape[0]!, shape[1]!);
  for (let number = 1; number <= 2 || side > LAST_MAP; number++) {
    layers.push(...block(number, number === 1 ? 32 : 64));
    side = Math.floor((side - 2) / 2);
  }
  return { layers: [...layers, ...DENSE_END], last: 2 };
}

/** Height and width that two convolutions of 3 × 3 with their pooling leave something of. */
const LEAST_IMAGE = 10;

/**
 * The topology of a zoo model for these rows.
 * @throws ModelError when it is no model for them
 */
export function zooTopology(name: ZooName, format: RowFormat): ModelTopology {
  if (isImageModel(name)) return imageModel(name, format);
  if (isSequenceModel(name)) return sequenceModel(name, format);
  const [first, ...otherInputs] = format.inputs;
  const [target, ...otherTargets] = format.targets;
  if (name === 'cnn') checkImage(format);
  const { layers, last } = name === 'cnn' ? cnnFor(first!) : HIDDEN[name];
  const shapeOf = (field: { readonly shape: readonly number[] }): readonly number[] =>
    name === 'cnn' ? field.shape : [fieldLength(field)];
  if (otherInputs.length === 0 && otherTargets.length === 0) {
    const ends = lastLayers(target!, `dense_${last}`, 'reshape_1');
    return { class_name: 'Sequential', config: { name, layers: [input('input', shapeOf(first!)), ...layers, ...ends] } };
  }
  return graph(name, format, shapeOf, layers, last);
}

function checkImage({ inputs }: RowFormat): void {
  const [image, ...others] = inputs;
  const { shape } = image!;
  if (others.length > 0 || shape.length !== 3)
    throw new ModelError(
      'model',
      `cnn needs one input [height, width, channels]; the data has ${inputs.map((field) => `[${field.shape.join(', ')}]`).join(' and ')}`,
    );
  if (shape[0]! < LEAST_IMAGE || shape[1]! < LEAST_IMAGE)
    throw new ModelError(
      'model',
      `cnn needs images of ${LEAST_IMAGE} × ${LEAST_IMAGE} or more; those of the data are ${shape[0]} × ${shape[1]}`,
    );
}

/** Several inputs or targets: ends bear the numbers of the fields, which they follow in order. */
function graph(
  name: ZooName,
  { inputs, targets }: RowFormat,
  shapeOf: (field: { readonly shape: readonly number[] }) => readonly number[],
  hidden: readonly LayerTopology[],
  last: number,
): ModelTopology {
  const listed: (LayerTopology & { inbound_nodes: unknown })[] = [];
  const nameOf = ({ config }: LayerTopology): string => config['name'] as string;
  const add = (one: LayerTopology, ...from: readonly string[]): string => {
    listed.push(
      Object.assign({ inbound_nodes: from.length === 0 ? [] : [from.map((source) => [source, 0, 0, {}])], name: nameOf(one) }, one),
    );
    return nameOf(one);
  };
  const inputNames = inputs.map((field, i) => add(input(`input_${i + 1}`, shapeOf(field))));
  let trunk = inputNames.length === 1 ? inputNames[0]! : add(layer('Concatenate', 'concatenate_1', { axis: -1 }), ...inputNames);
  for (const one of hidden) trunk = add(one, trunk);
  const outputNames = targets.map((target, i) =>
    lastLayers(target, `dense_${last + i}`, `reshape_${i + 1}`).reduce((from, one) => add(one, from), trunk),
  );
  const edges = (names: readonly string[]): unknown => names.map((one) => [one, 0, 0]);
  return { class_name: 'Model', config: { name, layers: listed, input_layers: edges(inputNames), output_layers: edges(outputNames) } };
}
