/**
 * Random numbers of one replica step, a pure function of (seed, round, replica, micro-batch, layer, call): what a replica
 * draws does not depend on who computes it or what was computed before.
 *
 * tf.js itself draws from Math.random where a layer has no seed, and the same numbers in every step where it has one.
 * The dropout and noise layers get masks from our streams (layers/random-layers.ts); for what is left (the dropout inside
 * recurrent cells, AlphaDropout) Math.random is ours during the step. A step is synchronous: nobody else sees that.
 */
import { CounterStream, streamKey } from '@paceline/learning';
import type * as tfl from '@tensorflow/tfjs-layers';
import { withinLayer } from '../errors/failed-layer.js';

export interface StepKey {
  readonly seed: number;
  readonly round: number;
  readonly replica: number;
  readonly microBatch: number;
}

interface Scope {
  readonly path: string;
  stream: CounterStream | undefined;
}

/** Outside of all layers. */
const ROOT_PATH = '';

export class Randomness {
  /** How often somebody has asked for random numbers. */
  draws = 0;
  private key: StepKey | undefined;
  private readonly calls = new Map<string, number>();
  private scopes: Scope[] = [];

  /** Runs `step` with the streams of this key and with Math.random replaced; put back also when it throws. */
  during<T>(key: StepKey, step: () => T): T {
    if (this.key) throw new Error('a replica step was started inside another one');
    const original = Math.random;
    this.key = key;
    this.calls.clear();
    this.scopes = [this.scopeOf(ROOT_PATH)];
    Math.random = () => this.stream().nextFloat();
    try {
      return step();
    } finally {
      Math.random = original;
      this.key = undefined;
      this.scopes = [];
    }
  }

  /** The stream of the layer call that runs now. Drawn from in order. */
  stream(): CounterStream {
    this.draws++;
    const scope = this.scopes.at(-1);
    const key = this.key;
    if (!scope || !key) throw new Error('random numbers were drawn outside of a replica step');
    if (!scope.stream) {
      const call = this.calls.get(scope.path)! - 1;
      scope.stream = new CounterStream(streamKey('layer', key.seed, key.round, key.replica, key.microBatch, scope.path, call));
    }
    return scope.stream;
  }

  /** Gives a layer of the model its own streams: one per call. */
  scopeLayer(layer: tfl.layers.Layer): void {
    const apply = layer.apply.bind(layer);
    layer.apply = (inputs, kwargs) => {
      if (!this.key) return apply(inputs, kwargs);
      this.scopes.push(this.scopeOf(layer.name));
      try {
        return withinLayer(layer.name, () => apply(inputs, kwargs));
      } finally {
        this.scopes.pop();
      }
    };
  }

  private scopeOf(path: string): Scope {
    this.calls.set(path, (this.calls.get(path) ?? 0) + 1);
    return { path, stream: undefined };
  }
}
