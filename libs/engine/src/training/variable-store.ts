/** The model's variables and the flat vector: parameters in, gradients and state out, one memcpy each. */
import type { Layout, LayoutVariable } from '@paceline/learning';
import { matchesPatterns } from '@paceline/spec';
import type * as tf from '@tensorflow/tfjs-core';
import type { BuiltWeight } from '../model/build-model.js';
import type { TensorMemory } from '../backends/tensor-memory.js';

interface Placed {
  readonly place: LayoutVariable;
  readonly tensor: tf.Variable;
}

export class VariableStore {
  /** Those that get a gradient: without the frozen ones. */
  readonly trainable: tf.Variable[];
  private readonly placed: readonly Placed[];
  /** The state as it was loaded: batch normalisation overwrites its variables in every training call. */
  private readonly loadedState: Float32Array;

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
  }

  /** The variables that are not trained. */
  get state(): tf.Variable[] {
    return this.placedState().map(({ tensor }) => tensor);
  }

  checkLength(flat: Float32Array): void {
    if (flat.length !== this.layout.totalLength)
      throw new RangeError(`the flat vector has ${flat.length} elements, the layout ${this.layout.totalLength}`);
  }

  load(flat: Float32Array): void {
    this.checkLength(flat);
    this.loadedState.set(flat.subarray(this.layout.trainableLength));
    for (const { place, tensor } of this.placed) this.memory.write(tensor, flat.subarray(place.offset, place.offset + place.length));
  }

  restoreState(): void {
    for (const { place, tensor } of this.placedState()) {
      const from = place.offset - this.layout.trainableLength;
      this.memory.write(tensor, this.loadedState.subarray(from, from + place.length));
    }
  }

  /** state' × count, in float32. */
  writeState(out: Float32Array, count: number): void {
    for (const { place, tensor } of this.placedState()) {
      const values = this.memory.values(tensor);
      for (let i = 0; i < place.length; i++) out[place.offset + i] = values[i]! * count;
    }
  }

  /** @param isFirst copy; otherwise add to what earlier micro-batches left in `out` */
  takeGradients(grads: Readonly<Record<string, tf.Tensor>>, out: Float32Array, isFirst: boolean): void {
    for (const { place, tensor } of this.placed) {
      if (place.section !== 'trainable') break;
      const gradient = grads[tensor.name];
      if (!gradient) {
        // It is frozen, or the loss does not depend on it.
        if (isFirst) out.fill(0, place.offset, place.offset + place.length);
        continue;
      }
      if (isFirst) {
        this.memory.copyTo(gradient, out.subarray(place.offset, place.offset + place.length));
        continue;
      }
      const values = this.memory.values(gradient);
      for (let i = 0; i < place.length; i++) out[place.offset + i] = out[place.offset + i]! + values[i]!;
    }
  }

  private placedState(): readonly Placed[] {
    return this.placed.filter(({ place }) => place.section === 'state');
  }
}
