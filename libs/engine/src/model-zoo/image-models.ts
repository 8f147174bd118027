/**
 * Models of images: LeNet-5 (LeCun et al. 1998), a residual network (He et al. 2016, the one for CIFAR-10 with one block in each stage), and
 * depthwise separable convolutions (MobileNet, Howard et al. 2017, made small).
 */
import type { MODEL_ZOO, ModelTopology, RowFormat } from '@paceline/spec';
import { ModelError } from '../errors/model-error.js';
import { Graph, input, lastLayers, onlyInput, shown } from './topology-builder.js';

type ImageModel = 'lenet' | 'resnet' | 'mobilenet';
type Trunk = (graph: Graph, image: string, side: number) => string;

/** Images up to this side, that of MNIST, are padded; larger ones are not. */
const PADDED_UP_TO = 28;
const INITIAL = { kernel_initializer: 'glorot_uniform', bias_initializer: 'zeros' };
const INITIAL_RELU = { kernel_initializer: 'he_normal' };
/** Moves far enough in the few hundred rounds of a short run. */
const MOMENTUM = 0.9;

const lenet: Trunk = (graph, image, side) => {
  const conv = (filters: number, padding: string, from: string): string =>
    graph.add('Conv2D', Object.assign({ filters, kernel_size: [5, 5], padding, activation: 'tanh' }, INITIAL), from);
  const pooled = (from: string): string => graph.add('AveragePooling2D', { pool_size: [2, 2] }, from);
  const dense = (units: number, from: string): string => graph.add('Dense', Object.assign({ units, activation: 'tanh' }, INITIAL), from);
  const first = pooled(conv(6, side <= PADDED_UP_TO ? 'same' : 'valid', image));
  const second = pooled(conv(16, 'valid', first));
  return dense(84, dense(120, graph.add('Flatten', {}, second)));
};

/** A convolution without bias and the normalisation that has one. */
function normalised(graph: Graph, from: string, filters: number, kernel: number, strides: number, isRectified: boolean): string {
  const config = { filters, kernel_size: [kernel, kernel], strides: [strides, strides], padding: 'same', use_bias: false };
  const conv = graph.add('Conv2D', Object.assign(config, INITIAL_RELU), from);
  return rectified(graph, conv, isRectified);
}

function rectified(graph: Graph, from: string, isRectified = true): string {
  const norm = graph.add('BatchNormalization', { momentum: MOMENTUM }, from);
  return isRectified ? graph.add('Activation', { activation: 'relu' }, norm) : norm;
}

const resnet: Trunk = (graph, image) => {
  let trunk = normalised(graph, image, 16, 3, 1, true);
  for (const [stage, filters] of [16, 32, 64].entries()) {
    const strides = stage === 0 ? 1 : 2;
    const inner = normalised(graph, normalised(graph, trunk, filters, 3, strides, true), filters, 3, 1, false);
    const shortcut = stage === 0 ? trunk : normalised(graph, trunk, filters, 1, strides, false);
    trunk = graph.add('Activation', { activation: 'relu' }, graph.add('Add', {}, inner, shortcut));
  }
  return graph.add('GlobalAveragePooling2D', {}, trunk);
};

const mobilenet: Trunk = (graph, image) => {
  let trunk = normalised(graph, image, 16, 3, 1, true);
  for (const [filters, strides] of [
    [32, 1],
    [64, 2],
    [64, 1],
    [128, 2],
    [128, 1],
  ] as const) {
    const config = { kernel_size: [3, 3], strides: [strides, strides], padding: 'same', use_bias: false };
    const depthwise = graph.add('DepthwiseConv2D', Object.assign(config, { depthwise_initializer: 'he_normal' }), trunk);
    trunk = normalised(graph, rectified(graph, depthwise), filters, 1, 1, true);
  }
  return graph.add('GlobalAveragePooling2D', {}, trunk);
};

const TRUNKS: Readonly<Record<ImageModel, Trunk>> = { lenet, resnet, mobilenet };
/** Height and width of which something is left. */
const LEAST: Readonly<Record<ImageModel, number>> = { lenet: 12, resnet: 8, mobilenet: 8 };

export const isImageModel = (name: (typeof MODEL_ZOO)[number]): name is ImageModel => Object.hasOwn(TRUNKS, name);

/** @throws ModelError when the rows are no images, or too small */
export function imageModel(name: ImageModel, format: RowFormat): ModelTopology {
  const field = onlyInput(name, 'images [height, width, channels]', format);
  const { shape } = field;
  if (shape.length !== 3) throw new ModelError('model', `${name} needs images [height, width, channels]; the data has ${shown(field)}`);
  const side = Math.min(shape[0]!, shape[1]!);
  if (side < LEAST[name])
    throw new ModelError(
      'model',
      `${name} needs images of ${LEAST[name]} × ${LEAST[name]} or more; those of the data are ${shape[0]} × ${shape[1]}`,
    );
  const graph = new Graph();
  const image = graph.place(input('input', shape));
  const trunk = TRUNKS[name](graph, image, side);
  const outputs = format.targets.map((target, i) =>
    lastLayers(target, `output_${i + 1}`, `reshape_${i + 1}`).reduce((from, one) => graph.place(one, from), trunk),
  );
  return graph.model(name, [image], outputs);
}
