/** An exported model, read back from its folder: tf.js form or safetensors form, with what is said beside it. */
import { readFile, stat } from 'node:fs/promises';
import path from 'node:path';
import type { Predictor } from '@paceline/engine';
import { planModel } from '@paceline/engine/planning';
import { modelSchema, type RunSpec } from '@paceline/spec';
import { parseSafetensorsHeader, safetensorsHeaderBytes } from '@paceline/storage';
import type { z } from 'zod';
import { ExportError } from './export-error.js';
import { floatsOf } from './import/imported-model.js';
import { readTfjs } from './import/read-tfjs.js';
import { modelCardSchema, type ModelCard } from './model-card.js';
import { preprocessingSchema, type Preprocessing } from './preprocessing.js';
import { stockWeightNames } from './stock-topology.js';

export interface ModelFolder {
  readonly predictor: Predictor;
  /** Undefined in a folder of other programs: rows are numbers, and so is what comes out. */
  readonly preprocessing: Preprocessing | undefined;
  readonly card: ModelCard | undefined;
}

/** @throws ExportError MODEL_UNREADABLE; ModelError for a topology that the engine does not take */
export async function openModelFolder(folder: string): Promise<ModelFolder> {
  const [card, preprocessing] = [
    await optional(folder, 'model-card.json', modelCardSchema),
    await optional(folder, 'preprocessing.json', preprocessingSchema),
  ];
  const stock = path.join(folder, 'model.json');
  const isStock = await stat(stock).then((found) => found.isFile(), absent);
  const { model, valuesOf } = isStock ? await ofTfjs(stock) : await ofSafetensors(folder);
  const { createPredictor } = await import('@paceline/engine'); // with tf.js, which who only exports does without
  return { predictor: await createPredictor({ model }, valuesOf), preprocessing, card };
}

interface Weighted {
  readonly model: RunSpec['model'];
  valuesOf(path: string): Float32Array | undefined;
}

async function ofTfjs(file: string): Promise<Weighted> {
  const { topology, tensors } = await readTfjs(file);
  const model = parsed(modelSchema, { topology }, 'model.json');
  const values = new Map(tensors.map((tensor) => [tensor.name, tensor]));
  const nameOf = stockWeightNames(planModel({ model }, undefined).plan);
  return { model, valuesOf: (variable) => values.get(nameOf(variable))?.read() };
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
