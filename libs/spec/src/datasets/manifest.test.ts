import { expect, it } from 'vitest';
import { columnSchema, givenManifestSchema } from './manifest.js';

it.each(['a\0b', 'a\ud800b', '\udc00'])('a category %j is refused', (name) => {
  const column = (vocabulary: string[]) => ({
    name: 'kind',
    kind: 'category',
    vocabulary,
    statistics: { count: 1, missing: 0, counts: [1] },
  });
  expect(columnSchema.safeParse(column(['\u{1f600} \t ö'])).success).toBe(true);
  expect(columnSchema.safeParse(column([name])).error?.issues[0]).toMatchObject({
    path: ['vocabulary', 0],
    message: 'must not contain U+0000 or halves of characters',
  });
});

it('a vocabulary has a count for each word', () => {
  const column = (name: string, words: number, counts = words) => ({
    name,
    kind: 'category',
    vocabulary: Array.from({ length: words }, (_, i) => `${i}`),
    statistics: { count: 1, missing: 0, counts: Array.from({ length: counts }, () => 0) },
  });
  const issuesOf = (...columns: object[]) =>
    givenManifestSchema.safeParse({
      format: 'paceline.dataset',
      version: 1,
      columns,
      splits: { train: { rows: 0, shards: [] } },
      dropped: { missing: 0 },
      isOrdered: false,
    }).error?.issues;
  expect(issuesOf(column('a', 3), column('b', 2))).toBeUndefined();
  expect(issuesOf(column('a', 3), column('b', 2, 3))).toMatchObject([
    { path: ['columns', 1, 'statistics', 'counts'], message: 'has 3 numbers, and the vocabulary has 2 words' },
  ]);
});
