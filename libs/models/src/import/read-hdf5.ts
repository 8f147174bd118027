/**
 * HDF5 files of Keras: whole models and weights of Keras 2 and of the older form of Keras 3 (`layer_names`, `weight_names`), and the weights files
 * of Keras 3 (`layers/dense/vars/0`), which also lie in `.keras` archives.
 */
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type * as h5 from 'h5wasm/node';
import { unzipSync } from 'fflate';
import { ExportError } from '../export-error.js';
import { elementsOf, IMPORT_MAX_BYTES, jsonIn, MAX_TENSORS, unreadable, type FoundModel, type FoundTensor } from './imported-model.js';

const MAX_DEPTH = 40;
const MAGIC = Buffer.from('\x89HDF\r\n\x1a\n', 'latin1');

export const isHdf5 = (first: Uint8Array): boolean => MAGIC.equals(first.subarray(0, 8));
export const isZip = (first: Uint8Array): boolean => Buffer.from('PK\x03\x04', 'latin1').equals(first.subarray(0, 4));

/** A `.keras` archive: config.json and model.weights.h5. @throws ExportError MODEL_UNREADABLE */
export async function readKeras(file: string): Promise<FoundModel> {
  const wanted = new Set(['config.json', 'metadata.json', 'model.weights.h5']);
  let files: Record<string, Uint8Array>;
  try {
    files = unzipSync(await readFile(file), {
      filter: ({ name, originalSize }) => {
        if (!wanted.has(name)) return false;
        if (originalSize > IMPORT_MAX_BYTES)
          throw new Error(`${name} would have ${originalSize} bytes; at most ${IMPORT_MAX_BYTES} are read`);
        return true;
      },
    });
  } catch (cause) {
    throw unreadable(file, `the archive cannot be read: ${cause instanceof Error ? cause.message : String(cause)}`, cause);
  }
  const textOf = (name: string): string | undefined => files[name] && Buffer.from(files[name]).toString('utf8');
  const config = textOf('config.json');
  const weights = files['model.weights.h5'];
  if (config === undefined || !weights) throw unreadable(file, 'has no config.json and model.weights.h5, so it is no model of Keras 3');
  const topology = jsonIn(config, `${file}: config.json`) as Record<string, unknown>;
  const metadata = jsonIn(textOf('metadata.json') ?? '{}', `${file}: metadata.json`) as { keras_version?: unknown } | null;
  const folder = await mkdtemp(path.join(tmpdir(), 'paceline-keras-'));
  try {
    const inner = path.join(folder, 'model.weights.h5');
    await writeFile(inner, weights);
    const found = await readHdf5(inner, `${file}: model.weights.h5`);
    return { ...found, topology: Object.assign({}, topology, { keras_version: metadata?.keras_version ?? '3.0.0' }) };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** @param said what messages call the file @throws ExportError MODEL_UNREADABLE */
export async function readHdf5(file: string, said = file): Promise<FoundModel> {
  const { size } = await stat(file);
  if (size > IMPORT_MAX_BYTES) throw unreadable(said, `has ${size} bytes; at most ${IMPORT_MAX_BYTES} are read`);
  const { default: h5wasm } = await import('h5wasm/node');
  const module = await h5wasm.ready;
  // What the library finds wrong is thrown, and not written to the terminal.
  module.activate_throwing_error_handler();
  let opened: h5.File | undefined;
  try {
    opened = new h5wasm.File(file, 'r');
    if (opened.file_id < 0n) throw new Error('it is damaged, or ends too early');
    const root: h5.Group = opened;
    const config = attribute(root, 'model_config');
    const weights = config === undefined ? root : groupIn(root, 'model_weights', said);
    const topology =
      typeof config === 'string' ? withVersion(jsonIn(config, `${said}: model_config`), attribute(root, 'keras_version')) : undefined;
    const isKeras3 = topology === undefined && attribute(weights, 'layer_names') === undefined;
    const tensors = isKeras3 ? ofObjects(root, said) : ofLayers(weights, said);
    if (tensors.length === 0) throw unreadable(said, 'holds no weights of a model of Keras');
    return { topology, naming: isKeras3 ? 'keras3' : 'layers', tensors };
  } catch (cause) {
    if (cause instanceof ExportError) throw cause;
    throw unreadable(said, `cannot be read as HDF5: ${cause instanceof Error ? cause.message : String(cause)}`, cause);
  } finally {
    if (opened && opened.file_id >= 0n) opened.close();
  }
}

function withVersion(topology: unknown, version: unknown): unknown {
  return topology !== null && typeof topology === 'object'
    ? Object.assign({}, topology, typeof version === 'string' ? { keras_version: version } : {})
    : topology;
}

function attribute(group: h5.Group, name: string): unknown {
  const value: unknown = Object.hasOwn(group.attrs, name) ? group.attrs[name]!.value : undefined;
  return value instanceof Uint8Array ? Buffer.from(value).toString('utf8') : value;
}

/**
 * Keras writes a list of names that is too long for one attribute as several (`weight_names0`, `weight_names1`), and an empty one, that of
 * a layer without weights, as a list of no numbers.
 */
function namesIn(group: h5.Group, name: string, file: string): string[] {
  const whole = attribute(group, name);
  if (ArrayBuffer.isView(whole) && whole.byteLength === 0) return [];
  const parts = whole === undefined ? [] : [whole].flat();
  for (let i = 0; whole === undefined && i < MAX_TENSORS; i++) {
    const part = attribute(group, `${name}${i}`);
    if (part === undefined) break;
    parts.push(...[part].flat());
  }
  if (parts.length > MAX_TENSORS || !parts.every((part) => typeof part === 'string')) throw unreadable(file, `${name} is no list of names`);
  return parts as string[];
}

function groupIn(parent: h5.Group, name: string, file: string): h5.Group {
  const found = parent.get(name) as h5.Group | h5.Dataset | null;
  if (!found || !('keys' in found)) throw unreadable(file, `has no group ${name}`);
  return found;
}

/** Normalization counts its examples in one. */
function isCount(found: unknown): boolean {
  const { shape, dtype } = found as Partial<h5.Dataset>;
  return Array.isArray(shape) && shape.length === 0 && typeof dtype === 'string' && /^[<>|]?[bBhHiIqQ]$/.test(dtype);
}

function tensorOf(found: unknown, name: string, file: string): FoundTensor {
  const dataset = found as h5.Dataset | null;
  if (!dataset || !('shape' in dataset) || dataset.shape === null) throw unreadable(file, `has no numbers at ${name}`);
  const { shape, dtype } = dataset;
  const elements = elementsOf(shape, file, name);
  if (dtype !== '<f' && dtype !== '<d')
    throw unreadable(file, `${name} has the type ${JSON.stringify(dtype)}; weights are float32 or float64`);
  // Read at once: the file is closed behind it.
  const { value } = dataset;
  const values =
    elements === 0 ? new Float32Array(0) : Float32Array.from(typeof value === 'number' ? [value] : (value as ArrayLike<number>));
  if (values.length !== elements) throw unreadable(file, `${name} has ${values.length} numbers, and its shape says ${elements}`);
  return { name, shape, read: () => values };
}

/** By `layer_names` and `weight_names`: the group of the layer, two slashes, and the name of the weight. */
function ofLayers(weights: h5.Group, file: string): FoundTensor[] {
  let total = 0;
  return namesIn(weights, 'layer_names', file).flatMap((layer) => {
    const group = groupIn(weights, layer, file);
    return namesIn(group, 'weight_names', file).flatMap((name) => {
      const found = group.get(name);
      if (found && isCount(found)) return [];
      const tensor = tensorOf(found, `${layer}/${name}`, file);
      total = withinBound(total, tensor, file);
      return [Object.assign(tensor, { name: `${layer}//${name.replace(/:\d+$/, '')}` })];
    });
  });
}

function withinBound(total: number, { shape }: FoundTensor, file: string): number {
  const sum = total + shape.reduce((product, n) => product * n, 4);
  if (sum > IMPORT_MAX_BYTES) throw unreadable(file, `holds more than ${IMPORT_MAX_BYTES} bytes of weights`);
  return sum;
}

/** By paths of objects, without streams of random numbers and the state of an optimizer. */
function ofObjects(root: h5.Group, file: string): FoundTensor[] {
  const tensors: FoundTensor[] = [];
  let [total, groups] = [0, 0];
  const visit = (group: h5.Group, at: string, depth: number): void => {
    // A group may hold itself, by a link.
    if (depth > MAX_DEPTH || tensors.length > MAX_TENSORS || ++groups > MAX_TENSORS)
      throw unreadable(file, 'is nested too deeply, or holds too much');
    for (const key of group.keys()) {
      if (key === 'seed_generator' || (depth === 0 && key === 'optimizer')) continue;
      const found = group.get(key) as h5.Group | h5.Dataset | null;
      const name = at === '' ? key : `${at}/${key}`;
      if (found && 'keys' in found) visit(found, name, depth + 1);
      else if (at.endsWith('/vars') && !(found && isCount(found))) {
        const tensor = tensorOf(found, name, file);
        total = withinBound(total, tensor, file);
        tensors.push(tensor);
      }
    }
  };
  visit(root, '', 0);
  return tensors;
}
