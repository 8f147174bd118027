/** model.fit of tf.js itself, on the same batches: the same mathematics by somebody else's code. */
import { expect, test } from 'vitest';
import * as tf from '@tensorflow/tfjs-core';
import * as tfl from '@tensorflow/tfjs-layers';
import '@tensorflow/tfjs-backend-cpu';
import { openDataset } from '@paceline/data';
import { describeModel } from '@paceline/engine';
import { createInitialValues, permutedIndex } from '@paceline/learning';
import { parseRunSpec, type RunSpec } from '@paceline/spec';
import { trainReference } from './reference.js';

function specOf(input: object): RunSpec {
  const parsed = parseRunSpec(input);
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.issues));
  return parsed.spec;
}

const ROUNDS = 12;

for (const [optimizer, make] of [
  [{ name: 'sgd', learningRate: 0.1 }, () => tf.train.sgd(0.1)],
  // Adam is not here: tf.js adds epsilon to the corrected root, Keras (which we follow) to the uncorrected one.
  [{ name: 'momentum', learningRate: 0.05, momentum: 0.9, nesterov: false }, () => tf.train.momentum(0.05, 0.9)],
] as const) {
  test(`the reference with R = 4 agrees with model.fit on whole batches: ${optimizer.name}`, async () => {
    const spec = specOf({ model: 'mlp', globalBatch: 64, replicas: 4, length: { rounds: ROUNDS }, seed: 3, optimizer });
    const ours = await trainReference(spec);
    await tf.setBackend('cpu');
    const { train, format } = await openDataset('mnist');
    const description = await describeModel(spec, format);
    const values = createInitialValues(description, spec.seed);
    const flat = new Float32Array(values.layout.totalLength);
    values.fill(0, flat);
    const model = tfl.sequential({
      layers: [
        tfl.layers.dense({ units: 256, activation: 'relu', inputShape: [784] }),
        tfl.layers.dense({ units: 128, activation: 'relu' }),
        tfl.layers.dense({ units: 10 }),
      ],
    });
    model.setWeights(
      values.layout.variables.map(({ offset, length, shape }) => tf.tensor(flat.slice(offset, offset + length), [...shape])),
    );
    model.compile({ optimizer: make(), loss: (labels, logits) => tf.losses.softmaxCrossEntropy(labels, logits) });
    const rows = Int32Array.from({ length: 64 * ROUNDS }, (_, i) => permutedIndex(spec.seed, 0, train.count, i));
    expect([...rows]).toEqual(ours.rows);
    const x = new Float32Array(rows.length * 784);
    const y = new Float32Array(rows.length);
    train.gather(rows, 0, rows.length, { inputs: [x], targets: [y], weights: undefined });
    const labels = tf.cast(tf.oneHot(tf.tensor1d(Int32Array.from(y), 'int32'), 10), 'float32');
    await model.fit(tf.tensor2d(x, [rows.length, 784]), labels, { batchSize: 64, epochs: 1, shuffle: false, verbose: 0 });
    const theirs = Float32Array.from(model.getWeights().flatMap((w) => [...w.dataSync()]));
    let worst = 0;
    ours.weights.forEach((value, i) => (worst = Math.max(worst, Math.abs(value - theirs[i]!))));
    expect(worst).toBeLessThan(1e-5);
    expect(ours.losses.at(-1)!).toBeLessThan(ours.losses[0]!);
  });
}
