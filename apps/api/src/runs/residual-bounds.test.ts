/** Which runs may keep something of replicas: by what a server has to write into a checkpoint. */
import { parseRunSpec, type RunSpecInput } from '@paceline/spec';
import { expect, test } from 'vitest';
import { residualIssue } from './residual-bounds.js';

const MIB = 2 ** 20;
const modelOf = (parameters: number) =>
  ({ variables: [{ path: 'kernel', shape: [parameters], section: 'trainable' }], parameterCount: parameters, stateCount: 0 }) as never;

const TOP_K = { kind: 'top-k', errorFeedback: true } as const;
const EF21 = { ...TOP_K, feedbackRule: 'ef21' } as const;

function issueOf(parameters: number, input: RunSpecInput, bounds?: Parameters<typeof residualIssue>[2]): string | undefined {
  const parsed = parseRunSpec({ codec: EF21, globalBatch: 1024, ...input });
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.issues));
  return residualIssue(parsed.spec, modelOf(parameters), bounds)?.message;
}

test('what is kept of all replicas has to fit what a server may write, in bytes and tensors', () => {
  const bounds = { bytes: 256 * MIB, tensors: 8192 };
  expect(issueOf(4 * MIB, { replicas: 16 }, bounds)).toBeUndefined();
  expect(issueOf(5 * MIB, { replicas: 16 }, bounds)).toBe(
    'top-k with ef21 keeps a part of each of the 16 replicas, which checkpoints have: one of 1 server would have to write 320 MiB of it in 320 tensors, ' +
      'and at most 256 MiB and 8192 tensors are written: use more servers, fewer replicas, or int8, which keeps nothing',
  );
  expect(issueOf(5 * MIB, { replicas: 16, strategy: { kind: 'parameter-server', servers: 2 } }, bounds)).toBeUndefined();
  expect(issueOf(5 * MIB, { replicas: 16, strategy: { kind: 'multi-worker-mirrored', workers: 2 } }, bounds)).toBeUndefined();
  expect(issueOf(5 * MIB, { replicas: 16, strategy: { kind: 'multi-worker-mirrored', workers: 1 } }, bounds)).toMatch(/320 MiB/);
  expect(issueOf(5 * MIB, { replicas: 16, codec: TOP_K }, bounds)).toMatch(/error feedback .* or no error feedback$/);
  expect(issueOf(2 * MIB, { replicas: 16, codec: { kind: 'power-sgd' } }, bounds)).toBeUndefined();
  expect(issueOf(5 * MIB, { replicas: 16, codec: { kind: 'power-sgd' } }, bounds)).toMatch(/^power-sgd keeps .* or int8/);
  const dgc = { codec: { kind: 'dgc' }, optimizer: { name: 'sgd' } } as const;
  expect(issueOf(2 * MIB, { replicas: 16, ...dgc }, bounds)).toBeUndefined();
  expect(issueOf(3 * MIB, { replicas: 16, ...dgc }, bounds), 'a velocity too').toMatch(/384 MiB/);
  expect(issueOf(5 * MIB, { replicas: 16, codec: { kind: 'int8' } }, bounds)).toBeUndefined();
  expect(issueOf(MIB, { replicas: 16 }, { bytes: 256 * MIB, tensors: 15 })).toMatch(/in \d+ tensors/);
});

test('a gigabyte of parameters with eight replicas is held by one server, and with 64 by eight', () => {
  expect(issueOf(2 ** 28, { replicas: 8, codec: TOP_K })).toBeUndefined();
  expect(issueOf(2 ** 28, { replicas: 16, codec: TOP_K })).toMatch(/16384 MiB of it in 16384 tensors, and at most 8192 MiB/);
  expect(issueOf(2 ** 28, { replicas: 64, codec: TOP_K, strategy: { kind: 'parameter-server', servers: 8 } })).toBeUndefined();
  expect(issueOf(235_000, { replicas: 1024, codec: TOP_K }), 'many replicas of a small model').toBeUndefined();
});
