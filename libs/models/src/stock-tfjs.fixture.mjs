/**
 * Loads exported models with stock tf.js, in a process of its own: nothing of Paceline is registered here. It reads JSON lines
 * {folder, inputs: [{shape, file}]} from stdin, the files of little-endian float32,
 * and answers each with the outputs, or with the error.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import * as tf from '@tensorflow/tfjs-core';
import '@tensorflow/tfjs-backend-cpu';
import * as tfl from '@tensorflow/tfjs-layers';

tf.enableProdMode();
await tf.setBackend('cpu');

/** @param {string} folder */
const artifactsOf = (folder) => {
  const model = JSON.parse(readFileSync(join(folder, 'model.json'), 'utf8'));
  const [group] = model.weightsManifest;
  const bytes = Buffer.concat(group.paths.map((/** @type {string} */ path) => readFileSync(join(folder, path))));
  return {
    modelTopology: model.modelTopology,
    format: model.format,
    weightSpecs: group.weights,
    weightData: Uint8Array.from(bytes).buffer,
  };
};

/** @param {{folder: string, inputs: {shape: number[], file: string}[]}} question */
async function answer({ folder, inputs }) {
  const model = await tfl.loadLayersModel(tf.io.fromMemory(artifactsOf(folder)));
  const tensors = inputs.map(({ shape, file }) => tf.tensor(new Float32Array(Uint8Array.from(readFileSync(file)).buffer), shape));
  const outputs = [model.predict(tensors.length === 1 ? tensors[0] : tensors)].flat();
  const result = outputs.map((output) => ({ shape: output.shape, values: [...output.dataSync()] }));
  model.dispose();
  return result;
}

for await (const line of createInterface({ input: process.stdin })) {
  const answered = await answer(JSON.parse(line)).then(
    (outputs) => ({ outputs }),
    (error) => ({ error: String(error?.stack ?? error) }),
  );
  process.stdout.write(`${JSON.stringify(answered)}\n`);
}
