import { describeSurface } from '@paceline/spec';
import { expect, it } from 'vitest';
import { describe } from './run-spec.input.js';

it('a field whose values are no names of GraphQL says why it is a string, and no other does', () => {
  const fields = describeSurface();
  const explained = fields.filter((field) => describe(field).includes('cannot be an enum value of GraphQL'));
  expect(explained).toEqual(fields.filter(({ enumValues }) => enumValues?.some((value) => value.includes('-'))));
  expect(explained.map(({ path }) => path)).toEqual(expect.arrayContaining(['model', 'engine', 'strategy.kind']));
  expect(describe(fields.find(({ path }) => path === 'model')!)).toContain('transformer. A string, because mlp-dropout cannot be');
});
