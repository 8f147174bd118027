/**
 * tf.js Layers topology as untrusted input: the `modelTopology` of a model.json, for Sequential and functional models.
 * Only shape and names are checked here (allow-listed layers, bounded counts and depth); whether the layers fit together
 * is decided by building the model (`describeModel` of libs/engine) in a worker thread of the api.
 * Nothing in a topology is executed: Lambda layers and custom classes are not on the list.
 */
import { z } from 'zod';
import { LIMITS } from './limits.js';

/** Layers whose training is a pure function of parameters, state, rows and key. Stateful RNNs are refused by `describeModel`. */
export const ALLOWED_LAYERS = [
  'InputLayer',
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
  'Cropping2D',
  'UpSampling2D',
  'ZeroPadding2D',
  'AveragePooling1D',
  'AveragePooling2D',
  'MaxPooling1D',
  'MaxPooling2D',
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
  'Bidirectional',
  'TimeDistributed',
] as const;

const allowed: ReadonlySet<string> = new Set(ALLOWED_LAYERS);
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

/** Walks a JSON value with an explicit stack, so that nesting cannot overflow ours; returns the first fault found. */
function faultIn(root: unknown): { path: PropertyKey[]; message: string } | undefined {
  const stack: { value: unknown; path: PropertyKey[] }[] = [{ value: root, path: [] }];
  let nodes = 0;
  while (stack.length > 0) {
    const { value, path } = stack.pop()!;
    if (++nodes > 100_000) return { path: [], message: 'the topology holds more than 100000 values' };
    if (path.length > LIMITS.modelDepth) return { path: path.slice(0, 6), message: `nested deeper than ${LIMITS.modelDepth} levels` };
    if (typeof value === 'string' && value.length > 1000) return { path, message: 'a text of more than 1000 characters' };
    if (typeof value === 'number' && !Number.isFinite(value)) return { path, message: 'not a finite number' };
    if (value === null || typeof value !== 'object') continue;
    for (const [key, child] of Object.entries(value)) {
      if (FORBIDDEN_KEYS.has(key)) return { path: [...path, key], message: 'a forbidden key' };
      stack.push({ value: child, path: [...path, Array.isArray(value) ? Number(key) : key] });
    }
  }
  return undefined;
}

/** The layers of a topology with the path of each, nested wrappers included. */
export function layersOf(topology: ModelTopology): { layer: LayerTopology; path: PropertyKey[] }[] {
  const found: { layer: LayerTopology; path: PropertyKey[] }[] = [];
  const visit = (layer: LayerTopology, path: PropertyKey[]): void => {
    found.push({ layer, path });
    const inner = layer.config?.['layer'];
    if (inner && typeof inner === 'object') visit(inner as LayerTopology, [...path, 'config', 'layer']);
  };
  const layers = topology.config?.['layers'];
  if (Array.isArray(layers)) layers.forEach((layer, i) => visit(layer as LayerTopology, ['config', 'layers', i]));
  return found;
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
    for (const { layer, path } of layersOf(topology)) {
      if (typeof layer?.class_name !== 'string' || layer.config === null || typeof layer.config !== 'object') {
        ctx.addIssue({ code: 'custom', path, message: 'a layer needs class_name and config' });
      } else if (!allowed.has(layer.class_name)) {
        ctx.addIssue({
          code: 'custom',
          path: [...path, 'class_name'],
          message: `layer ${JSON.stringify(layer.class_name.slice(0, 60))} is not allowed; allowed are ${ALLOWED_LAYERS.join(', ')}`,
        });
      }
    }
    if (JSON.stringify(topology).length > LIMITS.modelTopologyBytes) {
      ctx.addIssue({ code: 'custom', message: `larger than ${LIMITS.modelTopologyBytes} bytes` });
    }
  });
