import { expect } from 'vitest';
import type { ZodType } from 'zod';

/** A body is as its schema says, with no field more: what the schema does not name is missing from what it gives. */
export function isDescribed(schema: ZodType, body: unknown): void {
  expect(JSON.parse(JSON.stringify(schema.parse(body)))).toEqual(body);
}
