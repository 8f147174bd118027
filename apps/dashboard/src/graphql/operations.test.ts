import { describe, expect, it } from 'vitest';
import { generate, present } from '../../generate-operations.mjs';

describe('operations', () => {
  it('fit the schema of the api and are generated from it as they stand', async () => {
    expect(present(), 'run: npm run generate -w @paceline/dashboard').toBe(await generate());
  });
});
