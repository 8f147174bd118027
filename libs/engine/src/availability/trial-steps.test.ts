import { parseRunSpec, type RunSpecInput } from '@paceline/spec';
import * as tf from '@tensorflow/tfjs-core';
import { expect, it, onTestFinished } from 'vitest';
import { startBackend } from '../backends/start-backend.js';
import { batchOf, IMAGES, sequential } from '../run.fixture.js';
import { agreesWithWasm, runTrial } from './trial-steps.js';
import { trialExamples, trialRows } from './trial-request.js';

const specOf = (model: RunSpecInput['model'], globalBatch: number, replicas = 1) => {
  const parsed = parseRunSpec({ model, globalBatch, replicas });
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.issues));
  return parsed.spec;
};

it('an engine that computes what wasm computes passes; one that does not is told from it', async () => {
  await startBackend('cpu');
  const request = { spec: specOf('mlp', 4), format: IMAGES, backend: 'cpu' } as const;
  await expect(agreesWithWasm(request)).resolves.toBeUndefined();
  const right = tf.getKernel(tf.BatchMatMul, 'cpu')!;
  tf.unregisterKernel(tf.BatchMatMul, 'cpu');
  onTestFinished(() => {
    tf.unregisterKernel(tf.BatchMatMul, 'cpu');
    tf.registerKernel(right);
  });
  tf.registerKernel({
    ...right,
    kernelFunc: (call) => {
      const product = right.kernelFunc(call) as tf.TensorInfo;
      const { values } = (call.backend as { data: Map<object, { values: Float32Array }> }).data.get(product.dataId)!;
      values[0] = values[0]! * 1.5 + 0.1;
      return product;
    },
  });
  await expect(agreesWithWasm(request)).rejects.toThrow(/the cpu engine computed another gradient of .* than wasm: .* apart/);
});

it.each([
  ['a bias in front of a batch normalisation', 'mlp-dropout'],
  [
    "the key's bias in an attention",
    sequential(
      ['InputLayer', { batch_input_shape: [null, 784] }],
      ['Reshape', { target_shape: [28, 28] }],
      ['Dense', { units: 8 }],
      ['MultiHeadAttention', { num_heads: 2, key_dim: 4 }],
      ['Flatten'],
      ['Dense', { units: 10 }],
    ),
  ],
] as const)('an engine may round the gradient of %s otherwise, which is 0', async (_, model) => {
  const request = { spec: specOf(model, 16), format: IMAGES, backend: 'cpu', rows: trialRows(batchOf(16), IMAGES) } as const;
  await expect(agreesWithWasm(request)).resolves.toBeUndefined();
});

it('takes the rows that it is given, or as many as a micro-batch has', async () => {
  const spec = specOf('mlp', 100, 5);
  expect(trialExamples(spec)).toBe(20);
  expect(trialExamples(specOf('mlp', 60_000))).toBe(256);
  const request = { spec, format: IMAGES, backend: 'wasm', measureMs: 1 } as const;
  expect((await runTrial(request)).examples).toBe(20);
  expect((await runTrial({ ...request, rows: trialRows({ ...batchOf(12), count: 7 }, IMAGES) })).examples).toBe(7);
});
