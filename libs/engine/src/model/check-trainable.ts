/** Can this model be trained on this engine? Answered from tables, without running anything. */
import { fieldsOf, layersOf, type RunSpec } from '@paceline/spec';
import type { BuiltModel } from './build-model.js';
import { ModelError } from '../errors/model-error.js';
import { checkPlacement } from './check-layer-positions.js';
import { withInner } from '../layers/inner-layers.js';
import { reachOf } from '../layers/convolution/under-run.js';
import { configOf, dialectOf } from '../topology/settings/dialect.js';

interface Gap {
  readonly layers: readonly string[];
  /** The config key, in camel case, that brings the layer into the gap; the layer itself if absent. */
  readonly key?: string;
  /** Takes the config as the tf.js constructor does: keys and enumeration values in camel case. */
  readonly applies: (config: Readonly<Record<string, unknown>>, engine: RunSpec['engine']) => boolean;
  readonly message: string;
}

/** What tf.js 4.22 cannot differentiate, found by training every allowed layer on every engine (gradients.test.ts). */
const GAPS: readonly Gap[] = [
  {
    layers: ['UpSampling2D'],
    applies: (config, engine) => engine === 'cpu' && config['interpolation'] !== 'bilinear',
    message:
      'engine cpu computes wrong gradients for nearest-neighbour upsampling of more than one example: use engine wasm or interpolation "bilinear"',
  },
  {
    layers: ['AveragePooling1D', 'AveragePooling2D', 'AveragePooling3D'],
    key: 'padding',
    applies: (config, engine) => engine === 'cpu' && config['padding'] === 'same',
    message: 'engine cpu computes wrong gradients at the borders of padded average pooling: use engine wasm or padding "valid"',
  },
  {
    layers: ['CategoryEncoding'],
    applies: (_, engine) => engine === 'webgpu',
    message: 'CategoryEncoding looks at its numbers while it computes, which engine webgpu cannot: use engine wasm',
  },
  {
    layers: ['MaxPooling3D'],
    key: 'poolSize',
    applies: ({ poolSize: size }, engine) => engine === 'cpu' && Array.isArray(size) && size[1] !== size[2],
    message: 'engine cpu computes wrong gradients for 3-D max pooling whose windows are not as high as wide: use engine wasm',
  },
];

/** @throws ModelError */
export function checkTrainable(built: BuiltModel, root: string, spec: Pick<RunSpec, 'model' | 'engine'>): void {
  if (spec.model !== undefined && typeof spec.model !== 'string') {
    const dialect = dialectOf(spec.model.topology);
    for (const { layer, path } of layersOf(spec.model.topology)) {
      const config = configOf(layer.class_name, layer.config, dialect);
      const gap = GAPS.find(({ layers, applies }) => layers.includes(layer.class_name) && applies(config, spec.engine));
      if (!gap) continue;
      const field = gap.key ? ['config', fieldsOf(layer.config).get(gap.key)?.key ?? gap.key] : [];
      throw new ModelError([root, ...path, ...field].map(String).join('.'), gap.message);
    }
  }
  if (spec.engine === 'cpu' || spec.engine === 'webgpu') checkVolumes(built, spec.engine);
  checkPlacement(built);
}

/** Layers whose stock kernels shift the windows where these end before the volume does (layers/convolution/under-run.ts). */
const OF_VOLUMES: ReadonlySet<string> = new Set(['Conv3D', 'Conv3DTranspose', 'MaxPooling3D', 'AveragePooling3D']);

interface VolumeInternals {
  readonly padding: string;
  readonly dataFormat: string;
  readonly strides: readonly number[];
  readonly kernelSize?: readonly number[];
  readonly poolSize?: readonly number[];
}

/** @throws ModelError */
function checkVolumes({ model, pathOf }: BuiltModel, engine: 'cpu' | 'webgpu'): void {
  for (const layer of model.layers)
    for (const part of withInner(layer)) {
      const name = part.getClassName();
      const shapes = (layer.inboundNodes as unknown as readonly { readonly inputShapes: Shape[] }[]).flatMap((node) => node.inputShapes);
      if (!OF_VOLUMES.has(name) || !shapes.some((shape) => leavesOut(part as unknown as VolumeInternals, name, shape))) continue;
      throw new ModelError(
        pathOf(layer.name),
        `engine ${engine} shifts the windows of ${name} where padding is "same" and they end before the volume does: use engine wasm, padding "valid" or strides that are not longer than the windows`,
      );
    }
}

type Shape = readonly (number | null)[];

/** Whether some of the volume is reached by no window. A transposed convolution makes the volume that its windows would be taken of. */
function leavesOut({ padding, dataFormat, strides, kernelSize, poolSize }: VolumeInternals, name: string, shape: Shape): boolean {
  if (padding !== 'same') return false;
  const sizes = dataFormat === 'channelsFirst' ? shape.slice(-3) : shape.slice(-4, -1);
  return (kernelSize ?? poolSize!).some((window, i) => {
    const [size, stride] = [sizes[i], strides[i]!];
    if (name === 'Conv3DTranspose' || typeof size !== 'number') return window < stride;
    return reachOf(size, stride, window) < size;
  });
}
