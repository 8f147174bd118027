/**
 * tf.js Layers topology as untrusted input: the `modelTopology` of a model.json, for Sequential and functional models.
 * Only shape and names are checked here (allow-listed layers, bounded counts and depth); whether the layers fit together
 * is decided by building the model (`describeModel` of libs/engine) in a worker thread of the api.
 * Nothing in a topology is executed: Lambda layers and custom classes are not on the list.
 */
import { z } from 'zod';
import { faultOfKeys, fieldsOf } from './config-keys.js';
import { LIMITS } from './limits.js';

/**
 * Layers whose training is a pure function of parameters, state, rows and key. Stateful RNNs are refused by `describeModel`.
 * What tf.js has beyond these is in `LEFT_OUT`, with the reason.
 */
export const ALLOWED_LAYERS = [
  'InputLayer',
  'Rescaling',
  'CenterCrop',
  'CategoryEncoding',
  'Dense',
  'Activation',
  'Dropout',
  'Flatten',
  'Reshape',
  'Permute',
  'RepeatVector',
  'Masking',
  'ELU',
  'LeakyReLU',
  'PReLU',
  'ReLU',
  'Softmax',
  'ThresholdedReLU',
  'Conv1D',
  'Conv2D',
  'DepthwiseConv2D',
  'SeparableConv2D',
  'Conv2DTranspose',
  'Conv3D',
  'Conv3DTranspose',
  'Cropping2D',
  'UpSampling2D',
  'ZeroPadding2D',
  'AveragePooling1D',
  'AveragePooling2D',
  'AveragePooling3D',
  'MaxPooling1D',
  'MaxPooling2D',
  'MaxPooling3D',
  'GlobalAveragePooling1D',
  'GlobalAveragePooling2D',
  'GlobalMaxPooling1D',
  'GlobalMaxPooling2D',
  'Add',
  'Average',
  'Concatenate',
  'Dot',
  'Maximum',
  'Minimum',
  'Multiply',
  'BatchNormalization',
  'LayerNormalization',
  'GaussianNoise',
  'GaussianDropout',
  'AlphaDropout',
  'SpatialDropout1D',
  'Embedding',
  'SimpleRNN',
  'LSTM',
  'GRU',
  'RNN',
  'ConvLSTM2D',
  'Bidirectional',
  'TimeDistributed',
] as const;

/** What may stand as the `cell` of an RNN and among the `cells` of StackedRNNCells. */
export const ALLOWED_CELLS = ['SimpleRNNCell', 'LSTMCell', 'GRUCell', 'StackedRNNCells'] as const;

/** Layers and cells of tf.js 4.22 that do not train in a model there either, and why: part of the message to who asks for one. */
export const LEFT_OUT: Readonly<Record<string, string>> = {
  Resizing:
    'tf.js computes its output shape without the batch and fails when a model calls it; use UpSampling2D, a pooling layer or CenterCrop',
  RandomWidth: 'tf.js computes its output shape without the batch, and a width that changes from step to step fits no layer with weights',
  ConvLSTM2DCell: 'the RNN of tf.js takes no images; use the layer ConvLSTM2D',
};

const allowedLayers: ReadonlySet<string> = new Set(ALLOWED_LAYERS);
const allowedCells: ReadonlySet<string> = new Set(ALLOWED_CELLS);
const MODEL_CLASSES: ReadonlySet<string> = new Set(['Sequential', 'Model', 'Functional']);
const FORBIDDEN_KEYS: ReadonlySet<string> = new Set(['__proto__', 'constructor', 'prototype']);

export interface LayerTopology {
  readonly class_name: string;
  readonly name?: string | undefined;
  readonly config: Readonly<Record<string, unknown>>;
  readonly inbound_nodes?: readonly unknown[] | undefined;
}

export interface ModelTopology {
  readonly class_name: string;
  readonly config: Readonly<Record<string, unknown>>;
}

/** What PostgreSQL cannot store, and no UTF-8 text can say: U+0000 and halves of surrogate pairs. */
const UNSTORABLE = /[\0\p{Cs}]/u;

/** Walks a JSON value with an explicit stack, so that nesting cannot overflow ours; returns the first fault found. */
function faultIn(root: unknown): { path: PropertyKey[]; message: string } | undefined {
  const stack: { value: unknown; path: PropertyKey[] }[] = [{ value: root, path: [] }];
  let nodes = 0;
  while (stack.length > 0) {
    const { value, path } = stack.pop()!;
    if (++nodes > 100_000) return { path: [], message: 'the topology holds more than 100000 values' };
    if (path.length > LIMITS.modelDepth) return { path: path.slice(0, 6), message: `nested deeper than ${LIMITS.modelDepth} levels` };
    if (typeof value === 'string' && value.length > 1000) return { path, message: 'a text of more than 1000 characters' };
    if (typeof value === 'string' && UNSTORABLE.test(value)) return { path, message: 'a text with U+0000 or half a character' };
    if (typeof value === 'number' && !Number.isFinite(value)) return { path, message: 'not a finite number' };
    if (value === null || typeof value !== 'object') continue;
    const fault = Array.isArray(value) ? undefined : faultOfKeys(Object.keys(value));
    // A forbidden key is named as such, although some of them hold "__" too.
    if (fault && !FORBIDDEN_KEYS.has(fault.key)) return { path: [...path, fault.key], message: fault.message };
    for (const [key, child] of Object.entries(value)) {
      if (FORBIDDEN_KEYS.has(key)) return { path: [...path, key], message: 'a forbidden key' };
      if (UNSTORABLE.test(key)) return { path, message: 'a key with U+0000 or half a character' };
      stack.push({ value: child, path: [...path, Array.isArray(value) ? Number(key) : key] });
    }
  }
  return undefined;
}

/** A layer of a topology, or a cell of a recurrent one, and where it stands. */
export interface FoundLayer {
  readonly layer: LayerTopology;
  readonly path: PropertyKey[];
  readonly isCell: boolean;
}

/** The layers of a topology, with wrapped layers and the cells of recurrent ones. Nesting is bounded by `modelDepth`, which is checked before. */
export function layersOf(topology: ModelTopology): FoundLayer[] {
  const found: FoundLayer[] = [];
  const visit = (layer: LayerTopology, path: PropertyKey[], isCell: boolean): void => {
    found.push({ layer, path, isCell });
    const fields = fieldsOf(isObject(layer?.config) ? layer.config : {});
    const [wrapped, cell, cells] = ['layer', 'cell', 'cells'].map((name) => fields.get(name));
    if (isObject(wrapped?.value)) visit(wrapped.value as LayerTopology, [...path, 'config', wrapped.key], false);
    if (isObject(cell?.value)) visit(cell.value as LayerTopology, [...path, 'config', cell.key], true);
    // More are refused as a stack, and mean nothing elsewhere.
    if (Array.isArray(cells?.value))
      cells.value.slice(0, LIMITS.modelCells).forEach((one, i) => visit(one as LayerTopology, [...path, 'config', cells.key, i], true));
  };
  const layers = topology.config?.['layers'];
  if (Array.isArray(layers)) layers.forEach((layer, i) => visit(layer as LayerTopology, ['config', 'layers', i], false));
  return found;
}

/** Lists too: they are no layers, and refused as such. */
const isObject = (value: unknown): value is object => value !== null && typeof value === 'object';

/** What is wrong with one layer or cell by itself. */
function faultOf({ layer, path, isCell }: FoundLayer): { path: PropertyKey[]; message: string } | undefined {
  const kind = isCell ? 'cell' : 'layer';
  if (typeof layer?.class_name !== 'string' || layer.config === null || typeof layer.config !== 'object')
    return { path, message: `a ${kind} needs class_name and config` };
  const { class_name: name, config } = layer;
  if (!(isCell ? allowedCells : allowedLayers).has(name)) {
    const why = Object.hasOwn(LEFT_OUT, name) ? ` (${LEFT_OUT[name]})` : '';
    const list = (isCell ? ALLOWED_CELLS : ALLOWED_LAYERS).join(', ');
    return {
      path: [...path, 'class_name'],
      message: `${kind} ${JSON.stringify(name.slice(0, 60))} is not allowed${why}; allowed are ${list}`,
    };
  }
  const { cells } = config;
  if (name === 'StackedRNNCells' && !(Array.isArray(cells) && cells.length >= 1 && cells.length <= LIMITS.modelCells))
    return { path: [...path, 'config', 'cells'], message: `must be a list of 1 to ${LIMITS.modelCells} cells` };
  return undefined;
}

export const modelTopologySchema = z
  .custom<ModelTopology>(
    (value) => value !== null && typeof value === 'object' && !Array.isArray(value),
    'must be an object with class_name and config',
  )
  .superRefine((topology, ctx) => {
    const fault = faultIn(topology);
    if (fault) return void ctx.addIssue({ code: 'custom', ...fault });
    if (!MODEL_CLASSES.has(topology.class_name)) {
      return void ctx.addIssue({ code: 'custom', path: ['class_name'], message: `must be one of ${[...MODEL_CLASSES].join(', ')}` });
    }
    if (!Array.isArray(topology.config?.['layers']) || (topology.config['layers'] as unknown[]).length === 0) {
      return void ctx.addIssue({ code: 'custom', path: ['config', 'layers'], message: 'must be a non-empty list of layers' });
    }
    if ((topology.config['layers'] as unknown[]).length > LIMITS.modelLayers) {
      return void ctx.addIssue({
        code: 'custom',
        path: ['config', 'layers'],
        message: `must not hold more than ${LIMITS.modelLayers} layers`,
      });
    }
    for (const found of layersOf(topology)) {
      const wrong = faultOf(found);
      if (wrong) ctx.addIssue({ code: 'custom', ...wrong });
    }
    if (JSON.stringify(topology).length > LIMITS.modelTopologyBytes) {
      ctx.addIssue({ code: 'custom', message: `larger than ${LIMITS.modelTopologyBytes} bytes` });
    }
  });
