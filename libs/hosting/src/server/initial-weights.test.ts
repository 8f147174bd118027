import { causeOfComplaint, afterEnd } from '@paceline/control-plane';
import { createLayout } from '@paceline/learning';
import { initialWeightsKey } from '@paceline/storage';
import { expect, test } from 'vitest';
import { openInitialWeights } from './initial-weights.js';

const variable = { path: 'dense/kernel', shape: [2, 2], section: 'trainable', initializer: { className: 'Zeros', config: {} } } as const;
const layout = createLayout({ variables: [variable], parameterCount: 4, stateCount: 0 });
const RUN = '00000000-0000-4000-8000-000000000001';

/** A safetensors file with one variable of this shape. */
function file(shape: readonly number[]): Buffer {
  const bytes = shape.reduce((a, b) => a * b, 4);
  const header = Buffer.from(JSON.stringify({ 'dense/kernel': { dtype: 'F32', shape, data_offsets: [0, bytes] } }));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(header.length));
  return Buffer.concat([length, header, Buffer.alloc(bytes)]);
}

function opened(content?: Buffer): Promise<unknown> {
  const key = initialWeightsKey(RUN);
  const store = {
    list: () => Promise.resolve(content ? [{ key, bytes: content.length }] : []),
    read: (_key: string, from: number, to: number) => Promise.resolve(content!.subarray(from, to)),
  };
  return openInitialWeights(store as never, { runId: RUN }, layout);
}

test('weights that are missing or do not fit are no damaged checkpoint: the run fails with the reason', async () => {
  await expect(opened(file([2, 2]))).resolves.toBeDefined();
  for (const content of [undefined, file([2, 3])]) await expect(opened(content)).rejects.toMatchObject({ code: 'INITIAL_WEIGHTS_INVALID' });
  const run = {
    status: 'PROVISIONING',
    isCancelWanted: false,
    restarts: 3,
    count: { used: 0, total: 0, bestRound: 0 },
    committedRounds: 0,
  } as const;
  const end = { kind: 'failed', cause: causeOfComplaint('INITIAL_WEIGHTS_INVALID'), message: 'not there' } as const;
  expect(afterEnd(run, end, () => 0)).toMatchObject({ to: 'FAILED', reason: 'not there', restartAfterMs: null });
});
