import { parseRunSpec } from '@paceline/spec';
import { expect, it } from 'vitest';
import { specSizeIssues } from './spec-size.js';

function specWith(vocabulary: string[]) {
  const features = { inputs: { note: [{ kind: 'text', column: 'note', length: 4, vocabulary }] } };
  const parsed = parseRunSpec({ dataset: 'reviews', features });
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.issues));
  return parsed.spec;
}

it('a spec that is too large to be stored says what to make smaller', () => {
  const words = (count: number) => Array.from({ length: count }, (_, i) => `ö${i}`.padEnd(100, 'ö'));
  expect(specSizeIssues(specWith(words(10_000)))).toEqual([]);
  expect(specSizeIssues(specWith(words(11_000)))).toEqual([
    { path: 'features', message: expect.stringMatching(/^the spec has 2\d{6} bytes.*at most 2097152.*vocabularySize/) as string },
  ]);
});
