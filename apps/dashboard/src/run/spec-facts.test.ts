import { describe, expect, it } from 'vitest';
import { parseRunSpec } from '@paceline/spec';
import { modelName, specFacts } from './spec-facts.js';

describe('spec facts', () => {
  it('has a readable line for every field of a real spec', () => {
    const parsed = parseRunSpec({});
    if (!parsed.ok) throw new Error('the empty spec must be valid');
    const facts = Object.fromEntries(specFacts(parsed.spec));
    expect(facts).toMatchObject({
      Model: 'mlp',
      Dataset: 'mnist',
      Optimizer: 'momentum, learning rate 0.05, momentum 0.9',
      'Global batch': '256',
      Strategy:
        'parameter-server, mode sync, servers 1, accumulate 1, staleness bound 4, delay compensation 0, backup replicas 0, standby 0',
      Length: '5 epochs',
      Checkpoint: 'final yes, every seconds 30, keep last 3, keep best yes',
      Restarts: '5',
      'Drop remainder': 'no',
    });
    expect(Object.keys(facts).length).toBe(Object.keys(parsed.spec).length - 1);
    expect(Object.keys(facts).filter((label) => /^[a-z]/.test(label))).toEqual([]);
  });
  it('counts the layers of a topology', () => {
    expect(modelName({ model: { topology: { class_name: 'Sequential', config: { layers: [{}, {}] } } } })).toBe('2 layers');
    expect(modelName({ model: { topology: {} } })).toBe('topology');
  });
  it('survives what is no spec', () => {
    for (const odd of [null, 'x', 7, [], { model: null }]) expect(() => [modelName(odd), specFacts(odd)]).not.toThrow();
    expect(specFacts({ 'a\u202Eb': '\u001b[31mred' })).toEqual([['ab', 'red']]);
  });
});
