import { join } from 'node:path';
import { expect, it } from 'vitest';
import { cliReference } from './reference.js';

it('docs/reference/cli.md says what the command line does (write it anew with -u)', async () => {
  await expect(await cliReference()).toMatchFileSnapshot(join(import.meta.dirname, '../../../docs/reference/cli.md'));
});
