import { describe, expect, it } from 'vitest';
import { MODES, augmentationSchema, learningRateSchema, parseRunSpec } from '@paceline/spec';
import { parse } from 'yaml';
import { AUGMENTATION_DEFAULTS, LEARNING_RATE_DEFAULTS, OPTIMIZER_DEFAULTS, SPEC_DEFAULTS, STRATEGY_DEFAULTS } from './spec-defaults.js';
import { modelName, optimizerName, setFields, specFacts, stepsText } from './spec-facts.js';
import { toYaml } from './yaml.js';

const topology = { class_name: 'Sequential', config: { layers: [{}, {}] } };

function specOf(input: object) {
  const parsed = parseRunSpec(input);
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.issues));
  return parsed.spec;
}
const shown = (spec: unknown, isSet: boolean) =>
  Object.fromEntries(
    specFacts(spec)
      .filter((fact) => fact.isSet === isSet)
      .map(({ label, value }) => [label, value]),
  );

describe('the defaults of the page', () => {
  it('are those of the schema', () => {
    expect(SPEC_DEFAULTS).toEqual(specOf({}));
    for (const name of Object.keys(OPTIMIZER_DEFAULTS)) expect(OPTIMIZER_DEFAULTS[name]).toEqual(specOf({ optimizer: { name } }).optimizer);
    for (const kind of Object.keys(STRATEGY_DEFAULTS))
      expect(STRATEGY_DEFAULTS[kind]).toEqual(specOf({ strategy: { kind }, replicas: kind === 'one-device' ? 1 : 4 }).strategy);
    expect(LEARNING_RATE_DEFAULTS).toEqual(learningRateSchema.parse({}));
    expect({ ...AUGMENTATION_DEFAULTS, mirror: true }).toEqual(augmentationSchema.parse({ mirror: true }));
  });
});

describe('spec facts', () => {
  it('tells dataset, schedule, frozen variables and the run that a fine-tuning begins with', () => {
    const spec = Object.assign(
      specOf({
        dataset: `flowers@${'0123456789abcdef'.repeat(4)}`,
        learningRate: { warmupRounds: 30, schedule: 'cosine' },
        weights: { run: '01a205e9-5749-729c-8cef-9bcbf81f97aa', round: 500, reinitialize: ['dense_2/*'] },
        freeze: ['conv2d_1', 'dense_*'],
      }),
    );
    expect(shown(spec, true)).toEqual({
      Dataset: 'flowers@0123456789ab',
      'Rate schedule': 'cosine, warmup rounds 30',
      'Begins with weights of': 'run 01a205e9-5749-729c-8cef-9bcbf81f97aa, round 500; begin anew: dense_2/*',
      'Frozen variables': 'conv2d_1, dense_*',
    });
  });
  it('tells what was set from what is so by default', () => {
    const spec = specOf({ name: 'x', optimizer: { name: 'adam', learningRate: 0.01 }, strategy: { kind: 'parameter-server', servers: 2 } });
    expect(shown(spec, true)).toEqual({ Optimizer: 'adam', 'Learning rate': '0.01', 'Parameter servers': '2' });
    expect(shown(spec, false)).toMatchObject({
      'Beta 1': '0.9',
      Mode: 'sync',
      'Global batch': '256',
      Epochs: '5',
      'Drop remainder': 'no',
      'Checkpoint every (s)': '30',
      'Non-finite gradient': 'fail',
    });
    expect(Object.keys(shown(spec, false)).filter((label) => !/^[A-Z]/.test(label))).toEqual([]);
    expect(shown(specOf({}), true)).toEqual({});
    const local = specOf({ strategy: { kind: 'local-update', outerOptimizer: 'nesterov' } });
    expect(shown(local, true)).toEqual({ Strategy: 'local-update', 'Outer optimizer': 'nesterov' });
    expect([stepsText(local), stepsText(specOf({}))]).toEqual([', 20 local steps each', '']);
    expect(shown(local, false)).toMatchObject({ 'Local steps per round': '20', 'Inner state': 'reset' });
  });
  it('leaves out what means nothing in the mode of the run', () => {
    const labels = (mode: string) =>
      specFacts(specOf({ strategy: { kind: 'parameter-server', mode } }))
        .map(({ label }) => label)
        .filter((label) => /stale|delay|backup/i.test(label));
    expect(MODES.map(labels)).toEqual([
      ['Backup replicas'],
      ['Staleness scaled rate', 'Delay compensation'],
      ['Staleness bound', 'Staleness scaled rate', 'Delay compensation'],
    ]);
  });
  it('counts the layers of a topology', () => {
    expect(modelName({ model: { topology } })).toBe('2 layers');
    expect(modelName({ model: { topology: {} } })).toBe('topology');
    expect(optimizerName(specOf({}))).toBe('momentum 0.05');
  });
  it('survives what is no spec', () => {
    for (const odd of [null, 'x', 7, [], { model: null }, { optimizer: 3, strategy: [] }])
      expect(() => [modelName(odd), optimizerName(odd), specFacts(odd), setFields(odd)]).not.toThrow();
    expect(specFacts({ 'a\u202Eb': '\u001b[31mred' })).toEqual([{ label: 'Ab', value: 'red', isSet: true }]);
  });
});

describe('the spec as a file', () => {
  it('asks for the same run with nothing but what was set', () => {
    const inputs = [
      {},
      { name: 'two words', length: { rounds: 150 }, seed: 7 },
      { optimizer: { name: 'adam' }, gradient: { clipNorm: 1, nonFinite: 'skip' } },
      { optimizer: { name: 'momentum', nesterov: true }, checkpoint: { everyRounds: 10, final: false }, metrics: [] },
      { strategy: { kind: 'parameter-server', mode: 'ssp', stalenessBound: 2 }, augmentation: { mirror: true } },
      { strategy: { kind: 'local-update' } },
      { strategy: { kind: 'auto', servers: 2 } },
      { strategy: { kind: 'local-update', outerOptimizer: 'elastic', movingRate: 0.1 } },
      { strategy: { kind: 'local-update', localSteps: 7, outerOptimizer: 'momentum', outerMomentum: 0.5 } },
    ];
    for (const input of inputs) {
      const spec = specOf(input);
      expect(specOf(parse(toYaml(setFields(spec))) as object)).toEqual(spec);
    }
    expect(setFields(specOf({ name: 'x', optimizer: { name: 'adam' }, globalBatch: 64 }))).toEqual({
      name: 'x',
      optimizer: { name: 'adam' },
      globalBatch: 64,
    });
  });
});
