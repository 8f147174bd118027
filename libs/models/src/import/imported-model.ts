/** What a file of another program holds of a model: its topology, and tensors by the names that the program gave them. */
import { z } from 'zod';
import { ExportError } from '../export-error.js';

export interface FoundTensor {
  readonly name: string;
  readonly shape: readonly number[];
  /** As float32. */
  read(): Float32Array;
}

/** How tensors are named: by the paths of our variables, by layers and weights, or by the objects of Keras 3 that hold them. */
export type Naming = 'variables' | 'layers' | 'keras3';

export interface FoundModel {
  /** As the program wrote it; undefined in a file of weights alone. */
  readonly topology: unknown;
  readonly naming: Naming;
  readonly tensors: readonly FoundTensor[];
}

/** Larger than the largest model that trains. */
export const IMPORT_MAX_BYTES = 1 << 30;
export const MAX_TENSORS = 20_000;

export const unreadable = (file: string, why: string, cause?: unknown): ExportError =>
  new ExportError('MODEL_UNREADABLE', `${file}: ${why}`, undefined, cause === undefined ? {} : { cause });

/** @throws ExportError for what is no shape, or too large */
export function elementsOf(shape: readonly unknown[], file: string, name: string): number {
  let elements = 1;
  for (const size of shape) {
    if (!Number.isSafeInteger(size) || (size as number) < 0) throw unreadable(file, `the shape of ${name} is not valid`);
    elements *= size as number;
    if (elements * 4 > IMPORT_MAX_BYTES) throw unreadable(file, `${name} has more than ${IMPORT_MAX_BYTES} bytes`);
  }
  return elements;
}

/** The name of a file of weights, as model.json has it; what a browser saved begins with `./`. */
export const weightsFileSchema = z
  .string()
  .transform((name) => name.replace(/^\.\//, ''))
  .pipe(z.string().regex(/^[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}$/, 'must be the name of a file of the folder, without folders'));

/** In a buffer of its own, which is aligned. */
export const floatsOf = (bytes: Uint8Array): Float32Array => new Float32Array(Uint8Array.from(bytes).buffer);

export function jsonIn(text: string, file: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw unreadable(file, 'is no JSON', cause);
  }
}
