import { describe, expect, it } from 'vitest';
import { binsOf, cellText, columnFacts, frequentClasses, isPicture, untrainedText, type DatasetColumn } from './statistics.js';

const column = (given: Partial<DatasetColumn> & Pick<DatasetColumn, 'kind'>): DatasetColumn =>
  Object.assign({ name: 'x', dtype: null, shape: null, vocabularySize: null, vocabulary: null, statistics: null }, given);

const price = column({
  kind: 'number',
  statistics: { count: 996, missing: 4, mean: 436_804.2, deviation: 156.381, minimum: 1890, maximum: 2022, histogram: [1, 0, 3] },
});

describe('the facts of a column', () => {
  it('are those of its kind', () => {
    expect(columnFacts(price)).toMatchObject({ mean: '436,804 ± 156.4', extremes: '1890 to 2022', missing: '4 (<\u202f1\u202f%)' });
    const image = { heights: { missing: 0, minimum: 28, maximum: 28 }, widths: { minimum: 20, maximum: 32 }, channels: [1, 3] };
    expect(columnFacts(column({ kind: 'image', statistics: image })).extremes).toBe('20 to 32 × 28 px, grey or colour');
    const text = { lengths: { count: 5, missing: 5, minimum: 3, maximum: 90 } };
    expect(columnFacts(column({ kind: 'text', statistics: text }))).toMatchObject({
      extremes: '3 to 90 characters',
      missing: '5 (50\u202f%)',
    });
    expect(columnFacts(column({ kind: 'category', vocabularySize: 1234, statistics: { missing: 0 } })).classes).toBe('1,234');
  });
  it('are warned of classes that nothing can learn, the first ten by name', () => {
    expect(untrainedText({ label: 'colour', untrainedClasses: [] })).toBe('');
    const text = untrainedText({ label: 'colour', untrainedClasses: Array.from({ length: 12 }, (_, i) => `c${i}`) });
    expect(text).toMatch(/^No row of the training split has these classes of colour, .*: “c0”, .*“c9” and 2 more\. Are the words right\?$/);
  });
  it('are dashes where the server says nothing that can be read', () => {
    for (const statistics of [null, 'x', [], { mean: 'y' }])
      expect(columnFacts(column({ kind: 'number', statistics }))).toMatchObject({ missing: '–', mean: '– ± –', extremes: '–' });
    expect(binsOf(column({ kind: 'number' }))).toEqual([]);
  });
});

describe('distributions', () => {
  it('are bins from the lowest to the highest value', () => {
    expect(binsOf(price)).toEqual([
      { from: 1890, to: 1934, count: 1 },
      { from: 1934, to: 1978, count: 0 },
      { from: 1978, to: 2022, count: 3 },
    ]);
    const one = column({ kind: 'number', statistics: { minimum: 2, maximum: 2, histogram: [7, 0] } });
    expect(binsOf(one)).toEqual([{ from: 2, to: 2, count: 7 }]);
  });
  it('name the most frequent classes first', () => {
    const flowers = column({ kind: 'category', vocabulary: ['a', 'b', 'c'], statistics: { count: 10, counts: [1, 7, 2] } });
    expect(frequentClasses(flowers, 2)).toEqual([
      { name: 'b', count: 7, share: 0.7 },
      { name: 'c', count: 2, share: 0.2 },
    ]);
  });
});

describe('a cell of a preview', () => {
  it('is one line, and a long list is cut', () => {
    expect([cellText(null), cellText(1956), cellText('a\nb'), cellText([1, 2])]).toEqual(['–', '1956', 'a b', '[1, 2]']);
    expect(cellText(Array.from({ length: 784 }, () => 0))).toBe('[0, 0, 0, 0, 0, 0, … 784 values]');
  });
  it('is a picture only when it is a data address of one', () => {
    expect(isPicture('data:image/png;base64,iVBORw0KGgo=')).toBe(true);
    for (const other of ['data:image/svg+xml;base64,AAAA', 'https://example.org/x.png', 'data:image/png;base64,"onerror=', null])
      expect(isPicture(other)).toBe(false);
  });
});
