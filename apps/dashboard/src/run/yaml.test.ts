import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { toYaml, visibleJson } from './yaml.js';

describe('YAML', () => {
  it('is read back as the same JSON value', () => {
    fc.assert(
      fc.property(fc.jsonValue(), (value) => {
        const json = JSON.parse(JSON.stringify(value)) as unknown;
        expect(parse(toYaml(json))).toEqual(json);
      }),
      { numRuns: 300 },
    );
  });
  it('looks as a person would write it, and hides nothing', () => {
    const spec = { name: 'first try', optimizer: { name: 'adam', epsilon: 1e-7 }, metrics: ['accuracy'], layers: [{ a: 1, b: 'no' }] };
    expect(toYaml(spec)).toBe(
      'name: first try\noptimizer:\n  name: adam\n  epsilon: 1.0e-7\nmetrics:\n  - accuracy\nlayers:\n  - a: 1\n    b: "no"\n',
    );
    const hidden = { name: 'a\u202Eb \u{e0001}', empty: {} };
    expect(visibleJson(hidden)).toBe('{\n  "name": "a\\u202eb \\udb40\\udc01",\n  "empty": {}\n}');
    expect(JSON.parse(visibleJson(hidden))).toEqual(hidden);
    expect(toYaml({ name: 'a\u202Eb', empty: {}, none: [] })).toBe('name: "a\\u202eb"\nempty: {}\nnone: []\n');
  });
});
