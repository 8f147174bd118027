import { expect, test } from 'vitest';
import { CODECS, dgcDensity, encodedBits, isEncoded } from './codec-spec.js';
import { comparableConfig } from './comparable-config.js';
import { appliedByServers } from './local-update.js';
import { optimizerSlots } from './optimizer-slots.js';
import { parseRunSpec } from './run-spec.js';
import { gradientVectors, workerBytes } from './worker-memory.js';

const issuesOf = (input: object): string[] => {
  const parsed = parseRunSpec(input);
  return parsed.ok ? [] : parsed.issues.map(({ path, message }) => `${path}: ${message}`);
};

test.each(CODECS.filter((kind) => kind !== 'dgc' && kind !== 'power-sgd' && kind !== 'auto'))(
  'a run may have the codec %s in every mode',
  (kind) => {
    const codec = kind === 'threshold' ? { kind, threshold: 0.001 } : { kind };
    for (const mode of ['sync', 'async', 'ssp']) expect(issuesOf({ codec, strategy: { kind: 'parameter-server', mode } })).toEqual([]);
  },
);

test.each([
  [{ codec: { kind: 'int8', density: 0.1 } }, /codec\.density: belongs to top-k, random-k and dgc; the codec is int8/],
  [{ codec: { kind: 'int8', values: 'int2' } }, /codec\.values: belongs to top-k, threshold and random-k; the codec is int8/],
  [{ codec: { kind: 'dgc', values: 'int2' }, optimizer: { name: 'sgd' } }, /codec\.values: belongs to top-k/],
  [{ codec: { kind: 'auto', values: 'int2' } }, /codec\.values: is picked by auto/],
  [{ codec: { kind: 'top-k', threshold: 0.1 } }, /codec\.threshold: belongs to the codec threshold/],
  [{ codec: { kind: 'threshold' } }, /codec\.threshold: is needed/],
  [{ codec: { kind: 'top-k', density: 0 } }, /codec\.density/],
  [{ codec: { kind: 'top-k', density: 0.6 } }, /codec\.density: must be at most 0\.5/],
  [{ codec: { kind: 'none', errorFeedback: true } }, /codec\.errorFeedback: needs a codec/],
  [{ codec: { kind: 'sign', errorFeedback: true }, strategy: { kind: 'parameter-server', mode: 'async' } }, /needs mode sync.*async/],
  [{ codec: { kind: 'sign', errorFeedback: true }, strategy: { kind: 'parameter-server', backupReplicas: 1 } }, /backupReplicas/],
  [{ codec: { kind: 'sign', errorFeedback: true }, gradient: { nonFinite: 'skip' } }, /nonFinite skip/],
  [{ codec: { kind: 'zip' } }, /codec\.kind/],
  [{ codec: { kind: 'int8', rank: 2 } }, /codec\.rank: belongs to power-sgd/],
  [{ codec: { kind: 'power-sgd', errorFeedback: true } }, /codec\.errorFeedback: is part of power-sgd/],
  [{ codec: { kind: 'power-sgd' }, strategy: { kind: 'parameter-server', mode: 'ssp' } }, /codec\.kind: power-sgd needs mode sync/],
  [{ codec: { kind: 'auto' }, strategy: { kind: 'parameter-server', mode: 'async' } }, /codec\.kind: auto needs mode sync/],
  [
    { codec: { parameters: 'delta-int4' }, strategy: { kind: 'parameter-server', standby: 1 } },
    /codec\.parameters: delta-int4 does not go with standby/,
  ],
  [
    { codec: { parameters: 'delta-int2' }, optimizer: { name: 'sgd', emaMomentum: 0.9, emaOverwriteRounds: 5 } },
    /optimizer\.emaOverwriteRounds: does not go with codec\.parameters delta-int2/,
  ],
  [{ codec: { parameters: 'delta-int4' }, strategy: { kind: 'parameter-server', mode: 'ssp' } }, /codec\.parameters: needs mode sync/],
  [{ codec: { parameters: 'int8', parameterDensity: 0.1 } }, /codec\.parameterDensity: belongs to parameters delta-top-k/],
  [{ codec: { kind: 'auto', parameterDensity: 0.1 } }, /codec\.parameterDensity: is picked by auto/],
  [{ codec: { kind: 'auto' }, strategy: { kind: 'parameter-server', standby: 1 } }, /codec\.kind: auto does not go with standby/],
  [{ codec: { kind: 'auto', parameters: 'int8' } }, /codec\.parameters: is picked by auto/],
  [{ codec: { kind: 'top-k', feedbackRule: 'ef21' } }, /codec\.feedbackRule: belongs to errorFeedback/],
  [{ codec: { kind: 'dgc', feedbackRule: 'ef21' }, optimizer: { name: 'sgd' } }, /codec\.feedbackRule: belongs to errorFeedback/],
  [{ codec: { kind: 'auto', feedbackRule: 'residual' } }, /codec\.feedbackRule: is picked by auto/],
  [
    { codec: { kind: 'sign', errorFeedback: true, feedbackRule: 'ef21' }, strategy: { kind: 'parameter-server', mode: 'ssp' } },
    /needs mode sync/,
  ],
  [{ codec: { kind: 'auto', errorFeedback: true } }, /codec\.errorFeedback: does not go with auto/],
  [
    { codec: { kind: 'dgc' }, optimizer: { name: 'adam' } },
    /codec\.kind: dgc keeps the momentum at the replicas.*optimizer adam.*take the optimizer sgd/,
  ],
  [{ codec: { kind: 'dgc', errorFeedback: true }, optimizer: { name: 'sgd' } }, /codec\.errorFeedback: is part of dgc/],
  [{ codec: { kind: 'dgc', density: 0.3 }, optimizer: { name: 'sgd' } }, /codec\.density: must be at most 0\.25 with dgc/],
  [
    { codec: { kind: 'dgc' }, optimizer: { name: 'sgd' }, strategy: { kind: 'local-update' } },
    /codec\.kind: dgc does not go with local-update/,
  ],
  [
    { codec: { kind: 'dgc' }, optimizer: { name: 'sgd' }, strategy: { kind: 'parameter-server', mode: 'ssp' } },
    /codec\.kind: dgc needs mode sync/,
  ],
  [
    { codec: { kind: 'dgc' }, optimizer: { name: 'sgd' }, gradient: { nonFinite: 'skip' } },
    /codec\.kind: dgc does not go with nonFinite skip/,
  ],
  [{ codec: { kind: 'top-k', momentum: 0.5 } }, /codec\.momentum: belongs to dgc; the codec is top-k/],
  [{ codec: { parameters: 'zip' } }, /codec\.parameters/],
  [{ codec: { parameters: 'int8' }, strategy: { kind: 'parameter-server', mode: 'async' } }, /codec\.parameters: needs mode sync.*async/],
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

const specOf = (input: object) => {
  const parsed = parseRunSpec(input);
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.issues));
  return parsed.spec;
};

test('dgc goes with sgd; its warm-up falls from a quarter to the density', () => {
  const codec = { kind: 'dgc', density: 0.01, warmupRounds: 4 } as const;
  expect(issuesOf({ codec, optimizer: { name: 'sgd' } })).toEqual([]);
  const shares = [0, 2, 4, 100].map((round) => dgcDensity({ ...codec, errorFeedback: false }, round));
  expect(shares).toEqual([0.25, 0.05, 0.01, 0.01].map((share) => expect.closeTo(share, 12)));
});

test('parameters may be encoded without gradients, and that is part of what a checkpoint is continued under', () => {
  expect(issuesOf({ codec: { parameters: 'bf16' } })).toEqual([]);
  const config = (codec: object) => JSON.stringify(comparableConfig(specOf({ codec })));
  expect(config({ parameters: 'bf16' })).not.toBe(config({}));
  expect(config({ parameters: 'float32' })).toBe(config({}));
  expect(isEncoded(specOf({ codec: { parameters: 'bf16' } }))).toBe(false);
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
  expect(workerBytes(large, 20_000_000)).toBe(4 * 20_000_000 * (2 + 2 + 34 + 2 * 16));
});

test('with EF21 servers have a slot more, whatever they apply', () => {
  const slots = (input: object): string[] => {
    const parsed = parseRunSpec({ codec: { kind: 'top-k', errorFeedback: true, feedbackRule: 'ef21' }, ...input });
    if (!parsed.ok) throw new Error(JSON.stringify(parsed.issues));
    return optimizerSlots(appliedByServers(parsed.spec).optimizer);
  };
  expect(slots({ optimizer: { name: 'adam', emaMomentum: 0.9 } })).toEqual(['m', 'v', 'average', 'estimate']);
  expect(slots({ strategy: { kind: 'local-update', outerOptimizer: 'nesterov' } })).toEqual(['velocity', 'estimate']);
  expect(slots({ optimizer: { name: 'sgd' }, codec: { kind: 'top-k', errorFeedback: true } })).toEqual([]);
});
