import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { MEASURED_NAMES } from './metric-names.js';
import { parseRunSpec, runSpecSchema, type RunSpec } from './run-spec.js';
import { describeSurface, specFromSurface, specJsonSchema } from './surface.js';

const fields = describeSurface();
const field = (path: string) => fields.find((candidate) => candidate.path === path);

describe('the surface of the run spec', () => {
  it('has every field of the schema, with its kind, bounds, default and a sentence', () => {
    expect(Object.keys(runSpecSchema.shape).filter((key) => !field(key))).toEqual([]);
    expect(field('globalBatch')).toMatchObject({
      kind: 'integer',
      minimum: 1,
      maximum: 65_536,
      default: 256,
      required: false,
      onlyWith: [],
    });
    expect(field('seed')).toMatchObject({ kind: 'integer', minimum: 0, maximum: 2 ** 32 - 1 });
    expect(field('name')).toMatchObject({ kind: 'string', maxLength: 100, default: 'run' });
    expect(field('dropRemainder')).toMatchObject({ kind: 'boolean', default: false });
    expect(field('metrics')).toMatchObject({ kind: 'enum-list', enumValues: MEASURED_NAMES });
    for (const { path, description } of fields.filter(({ enumValues }) => !enumValues)) expect(description, path).toMatch(/\.$/);
  });

  it('refuses an engine that is none with the list', () => {
    const unknown = { ok: false, issues: [{ path: 'engine', message: expect.stringContaining('webgpu') as string }] };
    for (const engine of ['metal', 'constructor']) expect(parseRunSpec({ engine } as never)).toMatchObject(unknown);
  });

  it('refuses ftrl with nothing below its fraction: a weight whose gradient is 0 would become NaN', () => {
    const ftrl = (rest: object) => parseRunSpec({ optimizer: { name: 'ftrl', initialAccumulator: 0, ...rest } });
    const message = expect.stringMatching(/for example initialAccumulator: 0\.1$/) as string;
    expect(ftrl({})).toMatchObject({ ok: false, issues: [{ path: 'optimizer.initialAccumulator', message }] });
    for (const one of [{ initialAccumulator: 0.1 }, { l2: 0.1 }, { beta: 1 }]) expect(ftrl(one)).toMatchObject({ ok: true });
  });

  it('takes the short names of metrics', () => {
    expect(parseRunSpec({ metrics: ['acc'] as never })).toMatchObject({ ok: true, spec: { metrics: ['accuracy'] } });
    expect(parseRunSpec({ metrics: ['f2'] as never })).toMatchObject({ ok: false, issues: [{ path: 'metrics.0' }] });
  });

  it('refuses an augmentation that changes nothing, and takes one without the rest', () => {
    expect(parseRunSpec({ augmentation: {} })).toMatchObject({
      ok: false,
      issues: [{ path: 'augmentation', message: expect.stringMatching(/^asks for no change: set shiftPixels/) as string }],
    });
    const { spec } = parseRunSpec({ augmentation: { zoom: 0.1 } }) as { spec: RunSpec };
    expect(spec.augmentation).toEqual({ shiftPixels: 0, rotateDegrees: 0, zoom: 0.1, mirror: false });
    for (const wrong of [{ shiftPixels: 1.5 }, { rotateDegrees: 90 }, { zoom: -0.1 }, { flip: true }])
      expect(parseRunSpec({ augmentation: wrong } as never)).toMatchObject({ ok: false });
  });

  it('lays unions of objects flat: every member has its fields, a shared one is one field', () => {
    expect(field('optimizer')).toMatchObject({ kind: 'group', default: { name: 'momentum' } });
    expect(field('optimizer.name')).toMatchObject({ kind: 'enum', onlyWith: [] });
    expect(field('optimizer.name')!.enumValues).toHaveLength(14);
    expect(field('optimizer.learningRate')).toMatchObject({ kind: 'number', exclusiveMinimum: 0, maximum: 1000, onlyWith: [] });
    expect(field('optimizer.learningRate')).not.toHaveProperty('default'); // each member has its own
    expect(field('optimizer.momentum')).toMatchObject({
      minimum: 0,
      exclusiveMaximum: 1,
      onlyWith: ['name: momentum', 'name: rmsprop', 'name: lars'],
    });
    expect(field('length.epochs')).toMatchObject({ kind: 'integer', minimum: 1, required: false });
  });

  it('puts the object of a mixed union beside its scalar, and back', () => {
    const zoo = ['mlp', 'mlp-dropout', 'cnn', 'linear', 'lenet', 'resnet', 'mobilenet', 'lstm', 'gru', 'transformer'];
    expect(field('model')).toMatchObject({ kind: 'enum', enumValues: zoo });
    expect(field('modelTopology')).toMatchObject({ kind: 'json', specPath: 'model.topology' });
    expect(specFromSurface({ modelTopology: { class_name: 'Sequential' } })).toEqual({ model: { topology: { class_name: 'Sequential' } } });
    // Both at once is left for the schema to refuse.
    expect(parseRunSpec(specFromSurface({ model: 'mlp', modelTopology: {} }))).toMatchObject({
      ok: false,
      issues: [{ path: 'modelTopology', message: expect.stringContaining('unknown field') }],
    });
  });

  it('takes null as not given, except inside JSON', () => {
    expect(specFromSurface({ seed: null, optimizer: { name: 'sgd', momentum: null }, modelTopology: { a: null } })).toEqual({
      optimizer: { name: 'sgd' },
      model: { topology: { a: null } },
    });
    expect(parseRunSpec(specFromSurface({ length: { rounds: 3, epochs: null } }))).toMatchObject({
      ok: true,
      spec: { length: { rounds: 3 } },
    });
    for (const odd of [null, 5, 'x', [1]]) expect(specFromSurface(odd)).toEqual(odd);
  });

  it('refuses a schema that it cannot show, loudly', () => {
    expect(() => describeSurface(z.strictObject({ when: z.date() }))).toThrow(/when: a surface cannot show a date/);
    expect(() => describeSurface(z.strictObject({ x: z.union([z.string(), z.number()]) }))).toThrow(/x: a union of several scalars/);
  });

  it('is a JSON Schema in which defaults may be left out', () => {
    const schema = specJsonSchema() as { required?: string[]; properties: Record<string, object> };
    expect(schema.required).toBeUndefined();
    expect(schema.properties['globalBatch']).toMatchObject({ type: 'integer', minimum: 1, maximum: 65_536, default: 256 });
  });
});
