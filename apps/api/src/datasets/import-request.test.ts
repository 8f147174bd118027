import { expect, it } from 'vitest';
import { readImportRequest } from './import-request.js';

it.each([
  ['options.format', { format: 'csv\0' }],
  ['options.label', { label: 'a\ud800' }],
  ['options.columns', { columns: { 'a\0': 'category' } }],
  ['options.columns', { columns: { a: 'category\ud800' } }],
])('%s: what PostgreSQL does not store is refused', (path, options) => {
  expect(readImportRequest({ name: 'flowers', url: 'https://example.org/a.csv', options })).toEqual({
    issues: [{ path, message: 'must not contain U+0000 or halves of characters' }],
  });
});
