import { describe, expect, it } from 'vitest';
import { FILES, generate, present } from '../../generate-operations.mjs';

describe('operations', () => {
  it.each(FILES)('of %s fit the schema of the api and are generated from it as they stand', async (name) => {
    expect(present(name), 'run: npm run generate -w @paceline/dashboard').toBe(await generate(name));
  });
});
