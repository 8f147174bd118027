/** The model's variables and the flat vector: parameters in, gradients and state out, one memcpy each. */
import type { Layout, LayoutVariable } from '@paceline/learning';
import { matchesPatterns } from '@paceline/spec';
import type * as tf from '@tensorflow/tfjs-core';
import type { BuiltWeight } from '../model/build-model.js';
import type { TensorMemory } from '../backends/tensor-memory.js';
import type { FlatVector } from '../engine.js';

interface Placed {
  readonly place: LayoutVariable;
  readonly tensor: tf.Variable;
}

interface Part {
  /** Elements of a variable from `from` on, as they lie in one piece of the flat vector. */
  readonly part: Float32Array;
  readonly from: number;
}

/** Where a variable lies in the pieces of a flat vector. */
function partsOf(pieces: readonly Float32Array[], { offset, length }: Pick<LayoutVariable, 'offset' | 'length'>): Part[] {
  const parts: Part[] = [];
  let first = 0;
  for (const piece of pieces) {
    const [from, to] = [Math.max(offset, first), Math.min(offset + length, first + piece.length)];
    if (from < to) parts.push({ part: piece.subarray(from - first, to - first), from: from - offset });
    first += piece.length;
  }
  return parts;
}

function addTo(parts: readonly Part[], values: Float32Array, isFirst: boolean): void {
  for (const { part, from } of parts) {
    if (isFirst) part.set(values.subarray(from, from + part.length));
    else for (let i = 0; i < part.length; i++) part[i] = part[i]! + values[from + i]!;
  }
}

/** The first variable that ends behind an element. */
function firstBehind(placed: readonly Placed[], offset: number): number {
  let [low, high] = [0, placed.length];
  while (low < high) {
    const middle = (low + high) >>> 1;
    const { place } = placed[middle]!;
    if (place.offset + place.length > offset) high = middle;
    else low = middle + 1;
  }
  return low;
}

export class VariableStore {
  /** Those that get a gradient: without the frozen ones. */
  readonly trainable: tf.Variable[];
  private readonly placed: readonly Placed[];
  /** The state as it was loaded: batch normalisation overwrites its variables in every training call. */
  private readonly loadedState: Float32Array;
  /** The trainable ones, in the order in which they lie. */
  private readonly trained: readonly Placed[];
  /** Those of which parts were loaded since the last operation. */
  private readonly unsettled = new Set<tf.Variable>();

  constructor(
    private readonly layout: Layout,
    weights: readonly BuiltWeight[],
    private readonly memory: TensorMemory,
    freeze?: readonly string[],
  ) {
    this.placed = weights.map((weight, i) => ({ place: layout.variables[i]!, tensor: weight.variable!.read() as tf.Variable }));
    if (layout.variables.length !== weights.length || this.placed.some(({ place, tensor }) => place.length !== tensor.size)) {
      throw new Error('the layout is not the one of this model');
    }
    const isTrained = ({ section, path }: LayoutVariable): boolean => section === 'trainable' && !matchesPatterns(freeze, path);
    this.trainable = this.placed.filter(({ place }) => isTrained(place)).map(({ tensor }) => tensor);
    this.loadedState = new Float32Array(layout.stateLength);
    this.trained = this.placed.filter(({ place }) => place.section === 'trainable').sort((a, b) => a.place.offset - b.place.offset);
  }

  get hasState(): boolean {
    return this.loadedState.length > 0;
  }

  /** The variables that are not trained. */
  get state(): tf.Variable[] {
    return this.placedState().map(({ tensor }) => tensor);
  }

  /** The pieces of a flat vector. @throws RangeError unless it has the length of the layout */
  checked(flat: FlatVector): readonly Float32Array[] {
    const pieces = flat instanceof Float32Array ? [flat] : flat;
    const elements = pieces.reduce((sum, { length }) => sum + length, 0);
    if (elements !== this.layout.totalLength)
      throw new RangeError(`the flat vector has ${elements} elements, the layout ${this.layout.totalLength}`);
    return pieces;
  }

  load(flat: Float32Array): void {
    this.checked(flat);
    this.loadedState.set(flat.subarray(this.layout.trainableLength));
    for (const { place, tensor } of this.placed) this.memory.write(tensor, flat.subarray(place.offset, place.offset + place.length));
  }

  /** Loads elements of the flat vector from `offset` on. Operations see them after `restoreState`. @throws RangeError unless the layout has them */
  loadPart(offset: number, values: Float32Array): void {
    const { trainableLength, totalLength } = this.layout;
    const end = offset + values.length;
    if (offset < 0 || end > totalLength) throw new RangeError(`elements ${offset} to ${end} of a layout of ${totalLength}`);
    const stateFrom = Math.max(offset, trainableLength);
    if (stateFrom < end) this.loadedState.set(values.subarray(stateFrom - offset), stateFrom - trainableLength);
    for (let i = firstBehind(this.trained, offset); i < this.trained.length; i++) {
      const { place, tensor } = this.trained[i]!;
      const [from, to] = [Math.max(offset, place.offset), Math.min(end, place.offset + place.length)];
      if (from >= end) break;
      if (from >= to) continue;
      this.memory.writePart!(tensor, from - place.offset, values.subarray(from - offset, to - offset));
      this.unsettled.add(tensor);
    }
  }

  /** Before an operation: the state is as it was loaded, and parts count that were loaded. */
  restoreState(): void {
    for (const tensor of this.unsettled) this.memory.settle!(tensor);
    this.unsettled.clear();
    for (const { place, tensor } of this.placedState()) {
      const from = place.offset - this.layout.trainableLength;
      this.memory.write(tensor, this.loadedState.subarray(from, from + place.length));
    }
  }

  /** A copy of state'. */
  stateNow(): Float32Array[] {
    return this.placedState().map(({ tensor }) => this.memory.values(tensor).slice());
  }

  /** state' × count, in float32. @param state the present one where left out */
  writeState(out: readonly Float32Array[], count: number, state?: readonly Float32Array[]): void {
    for (const [s, { place, tensor }] of this.placedState().entries()) {
      const values = state?.[s] ?? this.memory.values(tensor);
      for (const { part, from } of partsOf(out, place)) for (let i = 0; i < part.length; i++) part[i] = values[from + i]! * count;
    }
  }

  /** @param isFirst copy; otherwise add to what earlier micro-batches left in `out` */
  takeGradients(grads: Readonly<Record<string, tf.TensorInfo>>, out: readonly Float32Array[], isFirst: boolean): void {
    for (const { place, tensor } of this.placed) {
      if (place.section !== 'trainable') break;
      const gradient = grads[tensor.name];
      const parts = partsOf(out, place);
      if (gradient && isFirst && parts.length === 1) this.memory.copyTo(gradient, parts[0]!.part);
      else if (gradient) addTo(parts, this.memory.values(gradient), isFirst);
      // It is frozen, or the loss does not depend on it.
      else if (isFirst) for (const { part } of parts) part.fill(0);
    }
  }

  private placedState(): readonly Placed[] {
    return this.placed.filter(({ place }) => place.section === 'state');
  }
}
