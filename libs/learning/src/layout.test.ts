import { LIMITS, type VariableSpec } from '@paceline/spec';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { LearningError, type LearningErrorCode } from './errors.js';
import { LARGEST_CHUNK_FLOATS, SMALLEST_CHUNK_FLOATS, createLayout, shardChunks } from './layout.js';

const zeros = { className: 'Zeros', config: {} };
const variable = (path: string, shape: number[], section: VariableSpec['section'] = 'trainable'): VariableSpec => ({
  path,
  shape,
  section,
  initializer: zeros,
});
const elements = (variables: VariableSpec[], section: string): number =>
  variables.filter((v) => v.section === section).reduce((sum, v) => sum + v.shape.reduce((p, d) => p * d, 1), 0);
const describe_ = (variables: VariableSpec[]) => ({
  variables,
  parameterCount: elements(variables, 'trainable'),
  stateCount: elements(variables, 'state'),
});

const model = fc
  .tuple(
    fc.array(fc.array(fc.integer({ min: 1, max: 90 }), { maxLength: 3 }), { minLength: 1, maxLength: 12 }),
    fc.array(fc.integer({ min: 1, max: 40_000 }), { maxLength: 5 }),
  )
  .map(([trainable, state]) =>
    describe_([
      ...trainable.map((shape, i) => variable(`t${i}/kernel`, shape)),
      ...state.map((n, i) => variable(`s${i}/moving`, [n], 'state')),
    ]),
  );

function codeOf(run: () => unknown): LearningErrorCode | undefined {
  try {
    run();
  } catch (error) {
    if (error instanceof LearningError) return error.code;
    throw error;
  }
  return undefined;
}

describe('the layout', () => {
  it('places every variable once, in order, without gaps, and cuts all of it into chunks of one section each', () => {
    fc.assert(
      fc.property(model, (description) => {
        const layout = createLayout(description);
        let offset = 0;
        layout.variables.forEach((placed, i) => {
          expect(placed.offset).toBe(offset);
          expect(placed.path).toBe(description.variables[i]!.path);
          offset += placed.length;
        });
        expect(offset).toBe(layout.totalLength);
        expect(layout.trainableLength).toBe(description.parameterCount);
        expect(layout.stateLength).toBe(description.stateCount);
        let end = 0;
        layout.chunks.forEach((chunk, i) => {
          expect(chunk.index).toBe(i);
          expect(chunk.offset).toBe(end);
          end += chunk.length;
          const [from, to] = chunk.section === 'trainable' ? [0, layout.trainableLength] : [layout.trainableLength, layout.totalLength];
          expect(chunk.offset >= from && chunk.offset + chunk.length <= to && chunk.length > 0).toBe(true);
          const lastOfSection = chunk.offset + chunk.length === to;
          expect(chunk.length <= LARGEST_CHUNK_FLOATS && (chunk.length >= SMALLEST_CHUNK_FLOATS || lastOfSection)).toBe(true);
        });
        expect(end).toBe(layout.totalLength);
      }),
    );
  });

  it('has about 1 MiB chunks for large models, smaller ones for small models, never below 64 KiB', () => {
    const chunksOf = (n: number) => createLayout(describe_([variable('w', [n])])).chunks;
    expect(chunksOf(1)).toEqual([{ index: 0, section: 'trainable', offset: 0, length: 1 }]);
    expect(chunksOf(235_146).map((chunk) => chunk.length)).toEqual([...new Array<number>(14).fill(16_384), 5770]);
    expect(chunksOf(1_000_000).length).toBeGreaterThanOrEqual(16);
    expect(chunksOf(1_000_000)[0]!.length).toBe(62_464);
    expect(chunksOf(25_000_000)[0]!.length).toBe(262_144);
  });

  it('accepts scalars', () => {
    expect(createLayout(describe_([variable('scale', [])])).totalLength).toBe(1);
  });

  it.each<[LearningErrorCode, () => unknown]>([
    ['LAYOUT_EMPTY', () => createLayout(describe_([]))],
    ['LAYOUT_EMPTY', () => createLayout(describe_([variable('a', [1], 'state')]))],
    ['LAYOUT_SHAPE', () => createLayout(describe_([variable('a', [0])]))],
    ['LAYOUT_SHAPE', () => createLayout(describe_([variable('a', [-4, -4])]))],
    ['LAYOUT_SHAPE', () => createLayout(describe_([variable('a', [1.5])]))],
    ['LAYOUT_SHAPE', () => createLayout(describe_([variable('a', [NaN])]))],
    ['LAYOUT_SHAPE', () => createLayout(describe_([variable('a', [1, 1, 1, 1, 1, 1, 1, 1, 1])]))],
    ['LAYOUT_TOO_LARGE', () => createLayout(describe_([variable('a', new Array<number>(8).fill(2 ** 31))]))],
    ['LAYOUT_TOO_LARGE', () => createLayout(describe_([variable('a', [LIMITS.modelParameters]), variable('b', [1])]))],
    ['LAYOUT_TOO_MANY', () => createLayout(describe_(Array.from({ length: LIMITS.modelVariables + 1 }, (_, i) => variable(`v${i}`, [1]))))],
    ['LAYOUT_DUPLICATE', () => createLayout(describe_([variable('a', [1]), variable('a', [2])]))],
    ['LAYOUT_ORDER', () => createLayout(describe_([variable('a', [1]), variable('b', [1], 'state'), variable('c', [1])]))],
    ['LAYOUT_ORDER', () => createLayout(describe_([variable('b', [1], 'state'), variable('c', [1])]))],
    ['LAYOUT_COUNT', () => createLayout({ ...describe_([variable('a', [3])]), parameterCount: 4 })],
    ['LAYOUT_COUNT', () => createLayout({ ...describe_([variable('a', [3])]), stateCount: 1 })],
  ])('refuses a hostile description: %s', (code, run) => {
    expect(codeOf(run)).toBe(code);
  });

  it('takes a path like any other text', () => {
    expect(createLayout(describe_([variable('__proto__', [2]), variable('constructor', [3])])).totalLength).toBe(5);
  });
});

describe('shards', () => {
  it('own every chunk exactly once, in contiguous balanced ranges, also with more servers than chunks', () => {
    fc.assert(
      fc.property(model, fc.integer({ min: 1, max: LIMITS.servers }), (description, servers) => {
        const layout = createLayout(description);
        const owned = Array.from({ length: servers }, (_, index) => shardChunks(layout, servers, index));
        expect(owned.flat().sort((a, b) => a - b)).toEqual(layout.chunks.map((chunk) => chunk.index));
        for (const section of ['trainable', 'state']) {
          const parts = owned.map((chunks) => chunks.filter((index) => layout.chunks[index]!.section === section));
          const sizes = parts.map((part) => part.length);
          expect(Math.max(...sizes) - Math.min(...sizes)).toBeLessThanOrEqual(1);
          expect(parts.flat()).toEqual(layout.chunks.filter((chunk) => chunk.section === section).map((chunk) => chunk.index));
        }
      }),
    );
  });

  it('do not exist outside of 0 .. servers − 1', () => {
    const layout = createLayout(describe_([variable('a', [1])]));
    for (const [servers, index] of [
      [0, 0],
      [1, 1],
      [2, -1],
      [1.5, 0],
    ] as const)
      expect(() => shardChunks(layout, servers, index)).toThrow(RangeError);
  });
});
