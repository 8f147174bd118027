import { expect, test } from 'vitest';
import { batchTooLarge, exampleBytes } from './batch-memory.js';
import type { RowFormat } from './datasets/row-format.js';

const images = (side: number): RowFormat => ({
  inputs: [{ name: 'image', shape: [side, side, 3] }],
  targets: [{ name: 'label', kind: 'classes', shape: [], classes: 10 }],
  isWeighted: false,
});

test('the batch of a replica has to fit into a worker', () => {
  expect(exampleBytes(images(1024))).toBe(1024 * 1024 * 3 * 4 + 4);
  expect(batchTooLarge({ globalBatch: 256, replicas: 4 }, images(224))).toBeUndefined();
  expect(batchTooLarge({ globalBatch: 1024, replicas: 1 }, images(1024))).toBe(
    'gives each replica 1024 examples of 12.00 MiB; a worker takes 512 MiB for the batch of a replica: make it at most 42, use more replicas, or make the examples smaller',
  );
  expect(batchTooLarge({ globalBatch: 1024, replicas: 32 }, images(1024))).toBeUndefined();
  expect(batchTooLarge({ globalBatch: 1, replicas: 1 }, images(16384))).toMatch(/make the examples smaller$/);
});
