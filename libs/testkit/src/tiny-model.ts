/** A model and a replica step that cost nothing, for tests of the protocol, and what any cluster must make of them. */
import { replicaRows, split } from '@paceline/learning';
import type { ModelDescription } from '@paceline/spec';

export const TRAINABLE = 40_000;
export const STATE = 100;

export const tinyModel: ModelDescription = {
  variables: [
    { path: 'a/kernel', shape: [TRAINABLE], section: 'trainable', initializer: { className: 'Zeros', config: {} } },
    { path: 'a/mean', shape: [STATE], section: 'state', initializer: { className: 'Zeros', config: {} } },
  ],
  inputs: [{ name: 'input', shape: [1] }],
  outputs: [{ name: 'a', shape: [1] }],
  parameterCount: TRAINABLE,
  stateCount: STATE,
};

/** The replica step of the tests: any pure function whose sums depend on the order of addition will do. */
export function tinyStep(weights: Float32Array, round: number, replica: number, count: number, out: Float32Array): void {
  for (let i = 0; i < out.length; i++)
    out[i] = count === 0 ? 0 : Math.fround(Math.sin(i * 0.37 + replica * 1.9 + round) * (1 + replica) + weights[i]! * 0.01) * count;
}

export const RATE = 0.05;

/** What any cluster must arrive at: replicas in order, the tree by recursion, one update. */
export function expectedWeights({
  replicas,
  rounds,
  examples,
}: {
  readonly replicas: number;
  readonly rounds: number;
  readonly examples: number;
}): Float32Array {
  const length = TRAINABLE + STATE;
  let weights = new Float32Array(length);
  for (let round = 0; round < rounds; round++) {
    const sum = (lo: number, hi: number): Float32Array => {
      if (hi - lo === 1) {
        const out = new Float32Array(length);
        const { from, to } = replicaRows(examples, replicas, lo);
        tinyStep(weights, round, lo, to - from, out);
        return out;
      }
      const middle = split(lo, hi);
      const left = sum(lo, middle);
      const right = sum(middle, hi);
      return left.map((value, i) => value + right[i]!);
    };
    const total = sum(0, replicas);
    const scale = Math.fround(1 / examples);
    weights = weights.map((w, i) => {
      const g = Math.fround(total[i]! * scale);
      return i < TRAINABLE ? w - Math.fround(g * Math.fround(RATE)) : g;
    });
  }
  return weights;
}
