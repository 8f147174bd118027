/**
 * What a layer turned out to be once tf.js has read its config. The topology is checked before, by names and keys; this
 * looks at the classes and values that will compute, whatever was written to get them.
 */
import { ALLOWED_CELLS, ALLOWED_LAYERS } from '@paceline/spec';
import type * as tfl from '@tensorflow/tfjs-layers';
import { cellsOf, withInner } from '../layers/inner-layers.js';

type Layer = tfl.layers.Layer;

const allowedLayers: ReadonlySet<string> = new Set(ALLOWED_LAYERS);
const allowedCells: ReadonlySet<string> = new Set(ALLOWED_CELLS);

/** Settings that are one number, or one for each dimension. tf.js checks only some of them, and lists more than numbers. */
const POSITIVE_INTEGERS = ['strides', 'kernelSize', 'poolSize'];

/**
 * Checks a layer, the layers that it wraps and all cells.
 * @throws Error that says what is wrong
 */
export function checkParts(layer: Layer): void {
  for (const part of withInner(layer)) {
    const name = classNameOf(part);
    if (!allowedLayers.has(name)) throw new Error(`layer ${name} is not allowed here`);
    checkValues(part, name);
    for (const cell of cellsOf(part)) {
      const cellName = classNameOf(cell);
      if (!allowedCells.has(cellName) && !(cellName === 'ConvLSTM2DCell' && name === 'ConvLSTM2D'))
        throw new Error(`cell ${cellName} is not allowed here`);
      checkValues(cell, cellName);
    }
  }
}

/** What stands in a config where a layer belongs need not have become one. */
function classNameOf(part: Partial<Layer>): string {
  if (typeof part.getClassName !== 'function') throw new Error('a wrapped layer or cell needs class_name and config');
  return part.getClassName();
}

function checkValues(part: Layer, name: string): void {
  const values = part as unknown as Readonly<Record<string, unknown>>;
  for (const key of POSITIVE_INTEGERS) {
    const sizes = [values[key] ?? 1].flat() as unknown[];
    if (!sizes.every((size) => Number.isSafeInteger(size) && (size as number) >= 1))
      throw new Error(`the ${key} of ${name} must be positive integers, not ${JSON.stringify(values[key])}`);
  }
  // Lists are how much to pad.
  const { padding } = values;
  if (typeof padding === 'string' && padding !== 'valid' && padding !== 'same' && !(padding === 'causal' && name === 'Conv1D'))
    throw new Error(`the padding of ${name} is "valid" or "same", not ${JSON.stringify(padding)}`);
  const constraint = Object.keys(values).find((key) => key.endsWith('Constraint') && values[key] != null);
  if (constraint !== undefined) throw new Error(`${constraint} is not supported: the servers apply the update`);
}
