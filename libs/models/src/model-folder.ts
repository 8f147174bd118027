/** An exported model, read back from its folder: tf.js form or safetensors form, with what is said beside it. */
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import type { Predictor } from '@paceline/engine';
import { planModel } from '@paceline/engine/planning';
import { modelSchema, type RunSpec } from '@paceline/spec';
import { parseSafetensorsHeader, safetensorsHeaderBytes } from '@paceline/storage';
import { z } from 'zod';
import { ExportError } from './export-error.js';
import { modelCardSchema, type ModelCard } from './model-card.js';
import { preprocessingSchema, type Preprocessing } from './preprocessing.js';
import { stockWeightNames } from './stock-topology.js';

export interface ModelFolder {
  readonly predictor: Predictor;
  /** Undefined in a folder of other programs: rows are numbers, and so is what comes out. */
  readonly preprocessing: Preprocessing | undefined;
  readonly card: ModelCard | undefined;
}

const weightsManifestSchema = z.array(
  z.object({
    paths: z.array(z.string().regex(/^[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}$/, 'must be a file of the folder')).max(10_000),
    weights: z.array(z.object({ name: z.string(), shape: z.array(z.int().min(0)), dtype: z.literal('float32') })),
  }),
);
const modelJsonSchema = z.object({ modelTopology: z.unknown(), weightsManifest: weightsManifestSchema });

/** @throws ExportError MODEL_UNREADABLE; ModelError for a topology that the engine does not take */
export async function openModelFolder(folder: string): Promise<ModelFolder> {
  const [card, preprocessing] = [
    await optional(folder, 'model-card.json', modelCardSchema),
    await optional(folder, 'preprocessing.json', preprocessingSchema),
  ];
  const stock = await optional(folder, 'model.json', modelJsonSchema);
  const { model, valuesOf } = stock ? await ofTfjs(folder, stock) : await ofSafetensors(folder);
  const { createPredictor } = await import('@paceline/engine'); // with tf.js, which who only exports does without
  return { predictor: await createPredictor({ model }, valuesOf), preprocessing, card };
}

interface Weighted {
  readonly model: RunSpec['model'];
  valuesOf(path: string): Float32Array | undefined;
}

async function ofTfjs(folder: string, { modelTopology, weightsManifest }: z.output<typeof modelJsonSchema>): Promise<Weighted> {
  // Older converters put it into model_config.
  const wrapped = modelTopology as { readonly model_config?: unknown } | null;
  const model = parsed(modelSchema, { topology: wrapped?.model_config ?? modelTopology }, 'model.json');
  const values = new Map<string, Float32Array>();
  for (const { paths, weights } of weightsManifest) {
    const bytes = Buffer.concat(await Promise.all(paths.map((name) => readFile(path.join(folder, name)))));
    let at = 0;
    for (const { name, shape } of weights) {
      const length = shape.reduce((product, n) => product * n, 4);
      if (at + length > bytes.length) throw new ExportError('MODEL_UNREADABLE', `the weights in ${folder} end within ${name}`);
      values.set(name, floatsOf(bytes.subarray(at, at + length)));
      at += length;
    }
  }
  const nameOf = stockWeightNames(planModel({ model }, undefined).plan);
  return { model, valuesOf: (variable) => values.get(nameOf(variable)) };
}

async function ofSafetensors(folder: string): Promise<Weighted> {
  const model = await optional(folder, 'topology.json', modelSchema);
  const file = await readFile(path.join(folder, 'model.safetensors')).catch(absent);
  if (!model || !file)
    throw new ExportError('MODEL_UNREADABLE', `${folder} holds neither model.json nor topology.json with model.safetensors`);
  const header = file.subarray(8, 8 + safetensorsHeaderBytes(file.subarray(0, 8), file.length));
  const ranges = parseSafetensorsHeader(header, file.length);
  return {
    model,
    valuesOf: (variable) => {
      const range = ranges.get(variable);
      return range?.dtype === 'F32' ? floatsOf(file.subarray(range.from, range.to)) : undefined;
    },
  };
}

/** In a buffer of its own, which is aligned. */
const floatsOf = (bytes: Uint8Array): Float32Array => new Float32Array(Uint8Array.from(bytes).buffer);

async function optional<T>(folder: string, name: string, schema: z.ZodType<T>): Promise<T | undefined> {
  const text = await readFile(path.join(folder, name), 'utf8').catch(absent);
  if (text === undefined) return undefined;
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw new ExportError('MODEL_UNREADABLE', `${name} in ${folder} is no JSON`, undefined, { cause });
  }
  return parsed(schema, value, name);
}

function parsed<T>(schema: z.ZodType<T>, value: unknown, name: string): T {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const [issue] = result.error.issues;
  throw new ExportError('MODEL_UNREADABLE', `${name}: ${issue?.path.join('.') ?? ''} ${issue?.message ?? 'does not fit'}`);
}

function absent(error: unknown): undefined {
  const { code } = error as NodeJS.ErrnoException;
  if (code === 'ENOENT' || code === 'ENOTDIR') return undefined;
  throw error;
}
