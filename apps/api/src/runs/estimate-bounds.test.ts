/** Which runs may have EF21: by what a server has to write into a checkpoint. */
import { parseRunSpec, type RunSpecInput } from '@paceline/spec';
import { expect, test } from 'vitest';
import { estimateIssue } from './estimate-bounds.js';

const MIB = 2 ** 20;
const modelOf = (parameters: number) =>
  ({ variables: [{ path: 'kernel', shape: [parameters], section: 'trainable' }], parameterCount: parameters, stateCount: 0 }) as never;

function issueOf(parameters: number, input: RunSpecInput): string | undefined {
  const codec = { kind: 'top-k', errorFeedback: true, feedbackRule: 'ef21' } as const;
  const parsed = parseRunSpec({ codec, globalBatch: 1024, ...input });
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.issues));
  return estimateIssue(parsed.spec, modelOf(parameters))?.message;
}

test('the estimates of all replicas have to fit what a server may write, in bytes and tensors', () => {
  expect(issueOf(4 * MIB, { replicas: 16 })).toBeUndefined();
  expect(issueOf(5 * MIB, { replicas: 16 })).toMatch(
    /all 16 replicas in checkpoints, which is 320 MiB .* at most 256 MiB and 8192 tensors/,
  );
  expect(issueOf(5 * MIB, { replicas: 16, strategy: { kind: 'parameter-server', servers: 2 } })).toBeUndefined();
  expect(issueOf(5 * MIB, { replicas: 16, strategy: { kind: 'multi-worker-mirrored', workers: 2 } })).toBeUndefined();
  expect(issueOf(5 * MIB, { replicas: 16, strategy: { kind: 'multi-worker-mirrored', workers: 1 } })).toMatch(/320 MiB/);
  expect(issueOf(5 * MIB, { replicas: 16, codec: { kind: 'top-k', errorFeedback: true } })).toBeUndefined();
});
