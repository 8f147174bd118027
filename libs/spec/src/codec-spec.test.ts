import { expect, test } from 'vitest';
import { CODECS, encodedBits, isEncoded } from './codec-spec.js';
import { comparableConfig } from './comparable-config.js';
import { parseRunSpec } from './run-spec.js';
import { gradientVectors, tooLargeFor } from './worker-memory.js';

const issuesOf = (input: object): string[] => {
  const parsed = parseRunSpec(input);
  return parsed.ok ? [] : parsed.issues.map(({ path, message }) => `${path}: ${message}`);
};

test.each(CODECS)('a run may have the codec %s in every mode', (kind) => {
  const codec = kind === 'threshold' ? { kind, threshold: 0.001 } : { kind };
  for (const mode of ['sync', 'async', 'ssp']) expect(issuesOf({ codec, strategy: { kind: 'parameter-server', mode } })).toEqual([]);
});

test.each([
  [{ codec: { kind: 'int8', density: 0.1 } }, /codec\.density: belongs to top-k and random-k; the codec is int8/],
  [{ codec: { kind: 'top-k', threshold: 0.1 } }, /codec\.threshold: belongs to the codec threshold/],
  [{ codec: { kind: 'threshold' } }, /codec\.threshold: is needed/],
  [{ codec: { kind: 'top-k', density: 0 } }, /codec\.density/],
  [{ codec: { kind: 'top-k', density: 0.6 } }, /codec\.density: must be at most 0\.5/],
  [{ codec: { kind: 'none', errorFeedback: true } }, /codec\.errorFeedback: needs a codec/],
  [{ codec: { kind: 'sign', errorFeedback: true }, strategy: { kind: 'parameter-server', mode: 'async' } }, /needs mode sync.*async/],
  [{ codec: { kind: 'sign', errorFeedback: true }, strategy: { kind: 'parameter-server', backupReplicas: 1 } }, /backupReplicas/],
  [{ codec: { kind: 'sign', errorFeedback: true }, gradient: { nonFinite: 'skip' } }, /nonFinite skip/],
  [{ codec: { kind: 'zip' } }, /codec\.kind/],
])('%j is refused with its field', (input, why) => {
  expect(issuesOf(input).join('\n')).toMatch(why);
});

test('a checkpoint is continued under the codec that it was written with; codec none is no codec', () => {
  const config = (input: object) => {
    const parsed = parseRunSpec(input);
    if (!parsed.ok) throw new Error(JSON.stringify(parsed.issues));
    expect(isEncoded(parsed.spec)).toBe(JSON.stringify(input).includes('int8'));
    return comparableConfig(parsed.spec);
  };
  expect(config({ codec: { kind: 'none' } })).toEqual(config({}));
  expect(config({ codec: { kind: 'int8' } })).not.toEqual(config({}));
});

test('what a worker holds follows from the codec', () => {
  const vectors = (codec: Parameters<typeof encodedBits>[0], replicas = 16) =>
    gradientVectors({ replicas, strategy: { mode: 'sync', backupReplicas: 0 }, codec });
  expect(vectors({ kind: 'none', errorFeedback: false })).toBe(5);
  expect(vectors({ kind: 'int8', errorFeedback: false })).toBe(6);
  expect(vectors({ kind: 'sign', errorFeedback: false })).toBe(2);
  expect(vectors({ kind: 'top-k', density: 0.01, errorFeedback: true })).toBe(34);
  const async = { replicas: 4, strategy: { mode: 'async' as const, backupReplicas: 0 } };
  expect(gradientVectors({ ...async, codec: { kind: 'threshold', threshold: 1, errorFeedback: false } })).toBe(4);
  expect(gradientVectors({ ...async, codec: { kind: 'int8', errorFeedback: false } })).toBe(3);
  const large = { replicas: 16, strategy: { mode: 'sync', backupReplicas: 0 }, codec: { kind: 'sign', errorFeedback: true } } as const;
  expect(tooLargeFor(large, 20_000_000)).toMatch(/all 16 replicas, with the codec sign and error feedback, holds 34 gradients/);
});
