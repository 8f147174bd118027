import { expect, it } from 'vitest';
import { columnSchema } from './manifest.js';

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
