/** Pieces of which the OpenAPI document is made. */
import type { z } from 'zod';
import { nameOf, Problem, type Json } from './bodies.js';

export const ref = (name: string): Json => ({ $ref: `#/components/schemas/${name}` });
export const json = (schema: Json, description: string): Json => ({ description, content: { 'application/json': { schema } } });
export const answer = (body: z.ZodType, description: string): Json => json(ref(nameOf(body)), description);
export const problem = (description: string): Json => ({
  description,
  content: { 'application/problem+json': { schema: ref(nameOf(Problem)) } },
});
export const text = { type: 'string' };
export const integer = { type: 'integer' };

export const query = (name: string, description: string, schema: Json): Json => ({
  name,
  in: 'query',
  required: false,
  description,
  schema,
});
export const first = query('first', 'Size of the page.', { type: 'integer', minimum: 0, maximum: 100 });
export const after = query('after', 'nextCursor of the page before.', text);

export const refusals: Json = {
  '401': problem('No key, or a wrong one.'),
  '429': problem('Too many wrong keys, or too much at once; see Retry-After.'),
  '503': problem('PostgreSQL or Redis is away; see Retry-After.'),
};
