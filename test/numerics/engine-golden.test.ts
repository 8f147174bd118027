/**
 * The engine against TensorFlow 2.21: trajectories recorded under tf.distribute.MirroredStrategy. The topology is taken
 * as Keras 3 wrote it, the update is written by hand, so nothing but model, loss and gradients is measured.
 */
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { createEngine, describeModel } from '@paceline/engine';
import { openDataset } from '@paceline/data';
import { createLayout } from '@paceline/learning';
import { parseRunSpec } from '@paceline/spec';
import { expect, it } from 'vitest';

const GOLDEN = path.join(import.meta.dirname, '../../libs/testkit/golden');

interface Recording {
  readonly replicas: number;
  readonly globalBatch: number;
  readonly steps: number;
  readonly optimizer: { readonly config: { readonly learning_rate: number; readonly momentum: number } };
  readonly topology: { readonly class_name: string; readonly config: Record<string, unknown> };
  readonly losses: readonly number[];
}

/** All tensors of a safetensors file behind each other, in the order of their numeric names, which is the layout's. */
async function weightsOf(file: string): Promise<Float32Array> {
  const bytes = await readFile(path.join(GOLDEN, file));
  const headerBytes = Number(bytes.readBigUInt64LE(0));
  const header = JSON.parse(bytes.toString('utf8', 8, 8 + headerBytes)) as Record<string, { data_offsets: [number, number] }>;
  const names = Object.keys(header).filter((name) => name !== '__metadata__');
  const parts = names
    .sort((a, b) => Number(a) - Number(b))
    .map((name) => bytes.subarray(8 + headerBytes + header[name]!.data_offsets[0], 8 + headerBytes + header[name]!.data_offsets[1]));
  const joined = Buffer.concat(parts);
  return new Float32Array(joined.buffer.slice(joined.byteOffset, joined.byteOffset + joined.length));
}

it.each([
  ['mirrored-mlp-sgd', 'wasm', 1e-4, 2e-4],
  ['mirrored-mlp-sgd', 'cpu', 1e-4, 2e-4],
  ['mirrored-cnn-momentum', 'wasm', 2e-4, 5e-4],
] as const)('%s on %s follows every loss and ends at the recorded weights', async (name, engineName, lossTolerance, weightTolerance) => {
  const golden = JSON.parse(await readFile(path.join(GOLDEN, `${name}.json`), 'utf8')) as Recording;
  const parsed = parseRunSpec({
    model: { topology: golden.topology },
    engine: engineName,
    replicas: golden.replicas,
    globalBatch: golden.globalBatch,
  });
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.issues));
  const spec = parsed.spec;
  const { train, format } = await openDataset('mnist');
  const description = await describeModel(spec, format);
  const layout = createLayout(description);
  const engine = await createEngine({ spec, description, format, layout });

  const weights = await weightsOf(`${name}.initial.safetensors`);
  expect(weights.length).toBe(layout.totalLength);
  const velocity = new Float32Array(layout.totalLength);
  const gradients = Array.from({ length: golden.replicas }, () => new Float32Array(layout.totalLength));
  const rows = golden.globalBatch / golden.replicas;
  const x = new Float32Array(rows * 784);
  const y = new Float32Array(rows);
  const { learning_rate: rate, momentum } = golden.optimizer.config;
  for (let round = 0; round < golden.steps; round++) {
    engine.load(weights);
    let lossSum = 0;
    for (let replica = 0; replica < golden.replicas; replica++) {
      const first = round * golden.globalBatch + replica * rows;
      train.gather(
        Int32Array.from({ length: rows }, (_, i) => first + i),
        0,
        rows,
        { inputs: [x], targets: [y], weights: undefined },
      );
      lossSum += engine.step({ round, replica, batches: [{ inputs: [x], targets: [y], count: rows }], out: gradients[replica]! })
        .metricSums[0]!;
    }
    expect(Math.abs(lossSum / golden.globalBatch - golden.losses[round]!), `loss of step ${round}`).toBeLessThan(lossTolerance);
    for (let i = 0; i < weights.length; i++) {
      const gradient = gradients.reduce((sum, g) => sum + g[i]!, 0) / golden.globalBatch;
      velocity[i] = momentum * velocity[i]! - rate * gradient;
      weights[i] = weights[i]! + velocity[i]!;
    }
  }
  const final = await weightsOf(`${name}.final.safetensors`);
  let largest = 0;
  for (let i = 0; i < final.length; i++) largest = Math.max(largest, Math.abs(final[i]! - weights[i]!));
  expect(largest).toBeLessThan(weightTolerance);
  engine.dispose();
});
