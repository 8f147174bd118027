/** A program that several processes run, and what they say at its end. */
import { expect } from 'vitest';
import { tfConfigs, type Ended, type Programs, type Running } from './programs.fixture.js';

const SECRET = { PACELINE_CLUSTER_SECRET: 'a secret of these tests' };

/** Has dropout, the state of batch normalisation, an optimizer with slots, metrics, a last batch that is smaller, and initial weights by chance. */
export const BUILD = `
import { createHash } from 'node:crypto';
import * as tf from '@tensorflow/tfjs';
import { MirroredStrategy, MultiWorkerMirroredStrategy } from 'paceline';

const examples = 150;
const xs = tf.tensor2d(Float32Array.from({ length: examples * 8 }, (_, i) => Math.sin(i * 1.7)), [examples, 8]);
const ys = tf.tensor2d(Float32Array.from({ length: examples }, (_, i) => i % 3), [examples, 1]);
const seeded = (seed) => tf.initializers.glorotUniform({ seed });
const build = (kernel = seeded) => {
  const net = tf.sequential({
    layers: [
      tf.layers.dense({ units: 16, activation: 'relu', inputShape: [8], kernelInitializer: kernel(1) }),
      tf.layers.batchNormalization(),
      tf.layers.dropout({ rate: 0.2, name: 'drop' }),
      tf.layers.dense({ units: 3, activation: 'softmax', kernelInitializer: kernel(2) }),
    ],
  });
  net.compile({ optimizer: tf.train.adam(0.01), loss: 'sparseCategoricalCrossentropy', metrics: ['accuracy'] });
  return net;
};
const fit = (model, more = {}) => model.fit(xs, ys, { epochs: 2, batchSize: 40, verbose: 0, validationSplit: 0.1, shuffle: false, ...more });
const digest = async (model) => {
  const hash = createHash('sha256');
  for (const weight of [...model.getWeights(), ...await model.optimizer.getWeights()]) hash.update(Buffer.from((weight.tensor ?? weight).dataSync().buffer));
  return hash.digest('hex');
};
const say = (value) => console.log(JSON.stringify(value));
const told = (error) => say({ code: error.code, name: error.constructor.name, message: error.message, members: error.members, replica: error.replica, layer: error.layer });
`;

export async function started(
  programs: Programs,
  source: string | readonly string[],
  processes: number,
  env: Readonly<Record<string, string>> = {},
): Promise<Running[]> {
  const configs = await tfConfigs(processes);
  return configs.map((config, i) =>
    programs.start(typeof source === 'string' ? source : source[i]!, { ...SECRET, ...env, TF_CONFIG: config }),
  );
}
const lastLine = ({ status, output, errors }: Ended): Record<string, unknown> => {
  expect(status, errors).toBe(0);
  return JSON.parse(output.trim().split('\n').at(-1)!) as Record<string, unknown>;
};
export const results = async (running: readonly Running[]) => (await Promise.all(running.map(({ ended }) => ended))).map(lastLine);
