/** model.json of TensorFlow.js with its files of weights, as `model.save`, tensorflowjs_converter and our export write it; also weights that the converter has made smaller. */
import { readFile, stat } from 'node:fs/promises';
import path from 'node:path';
import { z } from 'zod';
import {
  elementsOf,
  floatsOf,
  IMPORT_MAX_BYTES,
  jsonIn,
  MAX_TENSORS,
  unreadable,
  weightsFileSchema,
  type FoundModel,
  type FoundTensor,
} from './imported-model.js';

const manifestSchema = z
  .array(
    z.object({
      paths: z.array(weightsFileSchema).max(10_000),
      weights: z
        .array(
          z.object({
            name: z.string().min(1).max(1000),
            shape: z.array(z.int().min(0)).max(32),
            dtype: z.string(),
            group: z.string().optional(),
            quantization: z
              .object({ dtype: z.enum(['uint8', 'uint16', 'float16']), scale: z.number().optional(), min: z.number().optional() })
              .optional(),
          }),
        )
        .max(MAX_TENSORS),
    }),
  )
  .max(1000);
const modelSchema = z.object({
  modelTopology: z.looseObject({}),
  weightsManifest: manifestSchema.optional(),
  format: z.string().optional(),
});

type Weight = z.output<typeof manifestSchema>[number]['weights'][number];

/** @throws ExportError MODEL_UNREADABLE */
export async function readTfjs(file: string): Promise<FoundModel> {
  const parsed = modelSchema.safeParse(jsonIn(await readFile(file, 'utf8'), file));
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    throw unreadable(file, `${issue?.path.join('.') ?? ''} ${issue?.message ?? 'does not fit'}`);
  }
  const { modelTopology, weightsManifest = [], format } = parsed.data;
  if (format === 'graph-model' || 'node' in modelTopology)
    throw unreadable(file, 'is a graph model, which cannot be trained: convert it to a layers model (--output_format tfjs_layers_model)');
  const tensors: FoundTensor[] = [];
  let total = 0;
  for (const { paths, weights } of weightsManifest) {
    const parts: Buffer[] = [];
    for (const name of paths) {
      const part = path.join(path.dirname(file), name);
      const found = await stat(part).catch((cause: unknown) => {
        throw unreadable(file, `names the file ${name}, which is not there`, cause);
      });
      total += found.size;
      if (!found.isFile() || total > IMPORT_MAX_BYTES)
        throw unreadable(part, `is no file, or the files have more than ${IMPORT_MAX_BYTES} bytes`);
      parts.push(await readFile(part));
    }
    const bytes = Buffer.concat(parts);
    let at = 0;
    for (const weight of weights) {
      const length = elementsOf(weight.shape, file, weight.name) * elementBytes(weight, file);
      if (at + length > bytes.length)
        throw unreadable(file, `the weights end within ${weight.name}: there are ${bytes.length} bytes, and it ends at ${at + length}`);
      const piece = bytes.subarray(at, at + length);
      if (isOfModel(weight)) tensors.push({ name: weight.name, shape: weight.shape, read: () => decoded(piece, weight) });
      at += length;
    }
    if (at !== bytes.length)
      throw unreadable(file, `the files ${paths.join(', ')} have ${bytes.length} bytes, and the weights in them ${at}`);
  }
  const names = new Set<string>();
  for (const { name } of tensors) {
    if (names.has(name))
      throw unreadable(file, `holds two weights that are called ${name}: give the layers different names, and save the model again`);
    names.add(name);
  }
  return { topology: withVersion(modelTopology), naming: 'layers', tensors };
}

/** The converter puts the model of Keras into model_config, and its version beside it. */
function withVersion(topology: Record<string, unknown>): unknown {
  const { model_config: config, keras_version } = topology;
  if (config === null || typeof config !== 'object') return topology;
  return Object.assign({}, config, keras_version === undefined ? {} : { keras_version });
}

/** Not the state of an optimizer, and nothing that is counted, such as the examples of a Normalization. */
const isOfModel = ({ dtype, group }: Weight): boolean => group !== 'optimizer' && dtype === 'float32';

const ELEMENT_BYTES: Readonly<Record<string, number>> = { float32: 4, int32: 4, bool: 1 };

function elementBytes({ name, dtype, quantization }: Weight, file: string): number {
  if (!Object.hasOwn(ELEMENT_BYTES, dtype)) throw unreadable(file, `${name} has dtype ${dtype}; weights are float32`);
  return quantization === undefined ? ELEMENT_BYTES[dtype]! : quantization.dtype === 'uint8' ? 1 : 2;
}

function decoded(bytes: Buffer, { quantization }: Weight): Float32Array {
  if (!quantization) return floatsOf(bytes);
  const { dtype, scale = 1, min = 0 } = quantization;
  if (dtype === 'uint8') return Float32Array.from(bytes, (value) => value * scale + min);
  const count = bytes.length / 2;
  const of =
    dtype === 'float16' ? (i: number) => halfOf(bytes.readUInt16LE(i * 2)) : (i: number) => bytes.readUInt16LE(i * 2) * scale + min;
  return Float32Array.from({ length: count }, (_, i) => of(i));
}

/** IEEE 754 binary16. */
export function halfOf(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction === 0 ? sign * Infinity : Number.NaN;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}
