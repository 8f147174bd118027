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
  'Resizing',
  'Normalization',
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
  'Conv1DTranspose',
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
  'Subtract',
  'BatchNormalization',
  'LayerNormalization',
  'GaussianNoise',
  'GaussianDropout',
  'AlphaDropout',
  'SpatialDropout1D',
  'SpatialDropout2D',
  'Embedding',
  'MultiHeadAttention',
  'TokenAndPositionEmbedding',
  'SimpleRNN',
  'LSTM',
  'GRU',
  'RNN',
  'ConvLSTM2D',
  'Bidirectional',
  'TimeDistributed',
] as const;

/** Cells that are allowed as `cell` of an RNN and in `cells` of StackedRNNCells. */
export const ALLOWED_CELLS = ['SimpleRNNCell', 'LSTMCell', 'GRUCell', 'StackedRNNCells'] as const;

const AUGMENTATION = 'changes of training images are made by the loader: say `augmentation` in the run spec, and leave the layer out';
const MASKS_MEET =
  'Keras writes it where masks meet, as in Concatenate behind mask_zero or Masking, and of these only those of Add and Average are taken: use one of them, or mask_zero: false in front of it';
const TEXTS = 'texts become numbers before the model: name the column in `features` of the run spec, and leave the layer out';

/** Layers and cells of tf.js 4.22 that do not train in a model there either, and those of Keras that have another place here: part of the message to who asks for one. */
export const LEFT_OUT: Readonly<Record<string, string>> = {
  RandomFlip: AUGMENTATION,
  RandomRotation: AUGMENTATION,
  RandomZoom: AUGMENTATION,
  RandomTranslation: AUGMENTATION,
  TextVectorization: TEXTS,
  StringLookup: TEXTS,
  ExpandDims: MASKS_MEET,
  BroadcastTo: MASKS_MEET,
  LogicalAnd: MASKS_MEET,
  OnesLike: MASKS_MEET,
  Lambda: 'it is code, and nothing in a topology is executed; use layers in its place',
  RandomWidth: 'tf.js computes its output shape without the batch, and a width that changes from step to step fits no layer with weights',
  ConvLSTM2DCell: 'the RNN of tf.js takes no images; use the layer ConvLSTM2D',
};

const allowedLayers: ReadonlySet<string> = new Set(ALLOWED_LAYERS);
const allowedCells: ReadonlySet<string> = new Set(ALLOWED_CELLS);
const MODEL_CLASSES: ReadonlySet<string> = new Set(['Sequential', 'Model', 'Functional']);
/** Whether an entry of a list of layers is a model by itself: its layers become layers of the model that it stands in. */
export const isModelClass = (className: unknown): boolean => typeof className === 'string' && MODEL_CLASSES.has(className);
/**
 * Operations with which Keras 3 writes the making of a mask into a functional model: NotEqual behind the input of an Embedding with mask_zero,
 * Any behind the NotEqual of a Masking layer, and LogicalOr where masks meet. The layers make their masks themselves; planning takes the operations out.
 */
const MASK_OPERATIONS: ReadonlySet<string> = new Set(['NotEqual', 'Any', 'LogicalOr']);
export function isMaskOperation(layer: LayerTopology): boolean {
  // An .h5 file says no module.
  const { module = 'keras.src.ops.numpy' } = layer as { readonly module?: unknown };
  return MASK_OPERATIONS.has(layer.class_name) && module === 'keras.src.ops.numpy';
}
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

/** What Keras and tf.js write beside class_name and config. Nothing reads it but the versions, and a topology that is sent on as it was saved has it. */
const MODEL_KEYS: ReadonlySet<string> = new Set([
  ...['class_name', 'config', 'name', 'keras_version', 'backend', 'module', 'registered_name', 'build_config', 'compile_config'],
  ...['training_config', 'inbound_nodes'],
]);

/** Characters that PostgreSQL cannot store: U+0000 and halves of surrogate pairs, which no UTF-8 text can hold either. */
const UNSTORABLE = /[\0\p{Cs}]/u;

/** Walks a JSON value with an explicit stack, so that nesting cannot overflow ours; returns the first fault found. */
function faultIn(
  root: unknown,
  most: { readonly values: number; readonly objects: number },
): { path: PropertyKey[]; message: string } | undefined {
  const stack: { value: unknown; path: PropertyKey[] }[] = [{ value: root, path: [] }];
  let values = 0;
  let objects = 0;
  while (stack.length > 0) {
    const { value, path } = stack.pop()!;
    if (++values > most.values) return { path: [], message: `the topology holds more than ${most.values} values` };
    if (path.length > LIMITS.modelDepth) return { path: path.slice(0, 6), message: `nested deeper than ${LIMITS.modelDepth} levels` };
    if (typeof value === 'string' && value.length > 1000) return { path, message: 'a text of more than 1000 characters' };
    if (typeof value === 'string' && UNSTORABLE.test(value)) return { path, message: 'a text with U+0000 or half a character' };
    if (typeof value === 'number' && !Number.isFinite(value)) return { path, message: 'not a finite number' };
    if (value === null || typeof value !== 'object') continue;
    if (++objects > most.objects) return { path: [], message: `the topology holds more than ${most.objects} objects and lists` };
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

/** A layer of a topology, a cell of a recurrent one or a model that stands among the layers, and where it stands. */
export interface FoundLayer {
  readonly layer: LayerTopology;
  readonly path: PropertyKey[];
  readonly isCell: boolean;
  /** Its own layers follow it. */
  readonly isModel: boolean;
}

/** The layers of a topology, with those of nested models, wrapped layers and the cells of recurrent ones. Nesting is bounded by `modelDepth`, which is checked before. */
export function layersOf(topology: ModelTopology): FoundLayer[] {
  const found: FoundLayer[] = [];
  const visit = (layer: LayerTopology, path: PropertyKey[], isCell: boolean): void => {
    const isModel = path.at(-2) === 'layers' && isModelClass(layer?.class_name);
    found.push({ layer, path, isCell, isModel });
    if (isModel) return visitAll(layer, path);
    const fields = fieldsOf(isObject(layer?.config) ? layer.config : {});
    const [wrapped, cell, cells] = ['layer', 'cell', 'cells'].map((name) => fields.get(name));
    if (isObject(wrapped?.value)) visit(wrapped.value as LayerTopology, [...path, 'config', wrapped.key], false);
    if (isObject(cell?.value)) visit(cell.value as LayerTopology, [...path, 'config', cell.key], true);
    // More are refused as a stack, and mean nothing elsewhere.
    if (Array.isArray(cells?.value))
      cells.value.slice(0, LIMITS.modelCells).forEach((one, i) => visit(one as LayerTopology, [...path, 'config', cells.key, i], true));
  };
  const visitAll = (model: Pick<ModelTopology, 'config'>, path: PropertyKey[]): void => {
    const layers = isObject(model.config) ? model.config['layers'] : undefined;
    if (Array.isArray(layers)) layers.forEach((layer, i) => visit(layer as LayerTopology, [...path, 'config', 'layers', i], false));
  };
  visitAll(topology, []);
  return found;
}

/** Lists too: they are no layers, and refused as such. */
const isObject = (value: unknown): value is object => value !== null && typeof value === 'object';

function faultOfLayers(model: Pick<ModelTopology, 'config'>, path: PropertyKey[]): { path: PropertyKey[]; message: string } | undefined {
  const layers = model.config?.['layers'];
  if (Array.isArray(layers) && layers.length > 0) return undefined;
  return { path: [...path, 'config', 'layers'], message: 'must be a non-empty list of layers' };
}

/** The fault of a single layer or cell, if it has one. */
function faultOf({ layer, path, isCell, isModel }: FoundLayer): { path: PropertyKey[]; message: string } | undefined {
  const kind = isCell ? 'cell' : 'layer';
  if (typeof layer?.class_name !== 'string' || layer.config === null || typeof layer.config !== 'object')
    return { path, message: `a ${kind} needs class_name and config` };
  const { class_name: name, config } = layer;
  if (isModel) return faultOfLayers(layer, path);
  if (!(isCell ? allowedCells : allowedLayers).has(name) && !(path.at(-2) === 'layers' && isMaskOperation(layer))) {
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

/** Runs that were stored before the bounds below have up to so many values. */
const STORED_VALUES = 100_000;

/** What a topology that somebody gives is refused for, and one that is stored is not: its size, and what is beside the model. */
export function givenTopologyFault(topology: ModelTopology): { path: PropertyKey[]; message: string } | undefined {
  const fault = faultIn(topology, { values: LIMITS.modelTopologyValues, objects: LIMITS.modelTopologyObjects });
  if (fault) return fault;
  const unknown = Object.keys(topology).find((key) => !MODEL_KEYS.has(key));
  if (unknown === undefined) return undefined;
  const message = `is no part of a topology; it has class_name and config, and may have what Keras and tf.js write beside them: ${[...MODEL_KEYS].slice(2).join(', ')}`;
  return { path: [unknown.slice(0, 60)], message };
}

export const modelTopologySchema = z
  .custom<ModelTopology>(
    (value) => value !== null && typeof value === 'object' && !Array.isArray(value),
    'must be an object with class_name and config',
  )
  .superRefine((topology, ctx) => {
    const fault = faultIn(topology, { values: STORED_VALUES, objects: STORED_VALUES });
    if (fault) return void ctx.addIssue({ code: 'custom', ...fault });
    if (!MODEL_CLASSES.has(topology.class_name)) {
      return void ctx.addIssue({ code: 'custom', path: ['class_name'], message: `must be one of ${[...MODEL_CLASSES].join(', ')}` });
    }
    const none = faultOfLayers(topology, []);
    if (none) return void ctx.addIssue({ code: 'custom', ...none });
    const all = layersOf(topology);
    if (all.filter(({ path }) => path.at(-2) === 'layers').length > LIMITS.modelLayers) {
      return void ctx.addIssue({
        code: 'custom',
        path: ['config', 'layers'],
        message: `must not hold more than ${LIMITS.modelLayers} layers, with those of nested models`,
      });
    }
    for (const found of all) {
      const wrong = faultOf(found);
      if (wrong) ctx.addIssue({ code: 'custom', ...wrong });
    }
    if (JSON.stringify(topology).length > LIMITS.modelTopologyBytes) {
      ctx.addIssue({ code: 'custom', message: `larger than ${LIMITS.modelTopologyBytes} bytes` });
    }
  });
