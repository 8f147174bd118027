/**
 * A model as other programs save it, or as our exports have it: whatever lies in the folder or file is known by its content, and its weights come
 * out under the paths of our variables.
 */
import { open, readFile, stat } from 'node:fs/promises';
import path from 'node:path';
import { modelSchema, type ModelTopology, type RunSpec, type VariableSpec } from '@paceline/spec';
import { safetensorsHeader } from '@paceline/storage';
import { ExportError } from '../export-error.js';
import { assign } from './assign.js';
import { IMPORT_MAX_BYTES, jsonIn, unreadable, type FoundModel } from './imported-model.js';
import { readNpz, readSafetensors } from './read-arrays.js';
import { isHdf5, isZip, readHdf5, readKeras } from './read-hdf5.js';
import { readTfjs } from './read-tfjs.js';
import { withStatistics } from './statistics.js';

export interface ImportedModel {
  /** Undefined in a file of weights alone. */
  readonly model: RunSpec['model'] | undefined;
  readonly variables: readonly Pick<VariableSpec, 'path' | 'shape'>[];
  /** Variables of the model that the file does not hold. */
  readonly missing: readonly string[];
  /** One safetensors file of all variables, by their paths. */
  safetensors(): Uint8Array;
}

/** Files that a folder may hold, the first of them that is there. */
const IN_FOLDERS = ['model.json', 'model.safetensors', 'weights.npz', 'model.keras', 'model.h5', 'model.weights.h5'];
const IMPORTED_FROM = 'a folder of an export, or with model.json of TensorFlow.js; a .keras, .h5, .weights.h5, .safetensors or .npz file';

/**
 * @param given the model whose weights a file without a topology holds
 * @throws ExportError MODEL_UNREADABLE, WEIGHTS_DO_NOT_FIT, WEIGHTS_NOT_FINITE; ModelError for a topology that the engine does not take
 */
export async function importModel(source: string, given?: RunSpec['model']): Promise<ImportedModel> {
  const found = await foundIn(source);
  const own = found.topology === undefined ? undefined : modelOf(found, source);
  const model = own ?? given;
  if (model === undefined || (typeof model === 'string' && found.naming !== 'variables'))
    throw new ExportError(
      'MODEL_UNREADABLE',
      `${source} holds weights without a topology: say with --model-topology, or in the spec, whose weights they are`,
    );
  const { modelVariables } = await import('@paceline/engine');
  const variables = typeof model === 'string' ? undefined : modelVariables({ model }).variables;
  const values = variables === undefined ? assign(found, undefined, source) : assign(found, { model, variables }, source);
  return {
    model: own,
    variables: values.map(({ path: name, shape }) => ({ path: name, shape })),
    missing: (variables ?? []).map((variable) => variable.path).filter((name) => !values.some((value) => value.path === name)),
    safetensors() {
      const header = safetensorsHeader(
        values.map(({ path: name, shape }) => ({ name, shape })),
        { format: 'paceline' },
      );
      return Buffer.concat([
        header,
        ...values.map(({ values: numbers }) => Buffer.from(numbers.buffer, numbers.byteOffset, numbers.byteLength)),
      ]);
    },
  };
}

/** The model of a file or folder, whatever its weights are. @throws ExportError MODEL_UNREADABLE */
export async function readTopology(source: string): Promise<RunSpec['model']> {
  const found = await foundIn(source);
  if (found.topology === undefined) throw unreadable(source, 'holds weights without a topology');
  return modelOf(found, source);
}

function modelOf(found: FoundModel, source: string): RunSpec['model'] {
  const { topology } = found;
  const isWrapped = topology !== null && typeof topology === 'object' && 'topology' in topology;
  const model = checked(isWrapped ? topology : { topology }, source);
  // Files of other programs hold a topology alone.
  if (isWrapped || typeof model !== 'object') return model;
  return checked({ topology: withStatistics(model.topology as ModelTopology, found) }, source);
}

function checked(model: unknown, source: string): NonNullable<RunSpec['model']> {
  const result = modelSchema.safeParse(model);
  if (result.success) return result.data;
  const [issue] = result.error.issues;
  throw unreadable(source, `its topology does not train here: ${issue?.path.join('.') ?? ''} ${issue?.message ?? ''}`);
}

async function foundIn(source: string): Promise<FoundModel> {
  const said = await stat(source).catch((cause: unknown) => {
    throw unreadable(source, `is not there, or may not be read; expected is ${IMPORTED_FROM}`, cause);
  });
  if (!said.isDirectory()) return ofFile(source, said.size);
  for (const name of IN_FOLDERS) {
    const file = path.join(source, name);
    const found = await stat(file).catch(() => undefined); // the next name is looked for
    if (found?.isFile()) return ofFile(file, found.size);
  }
  throw unreadable(source, `holds none of ${IN_FOLDERS.join(', ')}`);
}

async function ofFile(file: string, bytes: number): Promise<FoundModel> {
  if (bytes > IMPORT_MAX_BYTES) throw unreadable(file, `has ${bytes} bytes; at most ${IMPORT_MAX_BYTES} are read`);
  const first = await firstBytes(file);
  if (isHdf5(first)) return readHdf5(file);
  if (isZip(first) && !file.endsWith('.npz')) return readKeras(file);
  if (isZip(first)) return { topology: await besides(file), naming: 'variables', tensors: await readNpz(file) };
  if (file.endsWith('.safetensors')) return { topology: await besides(file), naming: 'variables', tensors: await readSafetensors(file) };
  if (first[0] === '{'.charCodeAt(0)) return ofJson(file);
  throw unreadable(file, `is none of the forms that are read: ${IMPORTED_FROM}`);
}

/** model.json of TensorFlow.js, or a topology alone. */
async function ofJson(file: string): Promise<FoundModel> {
  const topology = jsonIn(await readFile(file, 'utf8'), file) as object;
  return 'class_name' in topology || 'topology' in topology ? { topology, naming: 'variables', tensors: [] } : readTfjs(file);
}

async function firstBytes(file: string): Promise<Uint8Array> {
  const handle = await open(file, 'r');
  try {
    const first = new Uint8Array(8);
    await handle.read(first, 0, 8, 0);
    return first;
  } finally {
    await handle.close();
  }
}

/** Our exports have the model of the run beside the weights. */
async function besides(file: string): Promise<unknown> {
  const beside = path.join(path.dirname(file), 'topology.json');
  const text = await readFile(beside, 'utf8').catch(() => undefined); // weights may lie alone
  return text === undefined ? undefined : jsonIn(text, beside);
}
