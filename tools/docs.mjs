/** `npm run docs`: writes the pages that are printed from the code. Tests compare each with its source. Needs a build. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { printProtocolTables } from '@paceline/exchange';
import { ALLOWED_CELLS, ALLOWED_LAYERS, describeSurface, LEFT_OUT } from '@paceline/spec';
import { referencePages } from '../apps/api/dist/reference.js';
import { cliReference } from '../apps/cli/dist/reference.js';
import { printRunSpecPage } from './run-spec-page.mjs';

const docs = join(import.meta.dirname, '..', 'docs');
const pages = {
  'protocol-tables.md': printProtocolTables(),
  'reference/run-spec.md': printRunSpecPage(describeSurface(), ALLOWED_LAYERS, ALLOWED_CELLS, LEFT_OUT),
  'reference/cli.md': await cliReference(),
  ...(await referencePages()),
};
for (const [name, text] of Object.entries(pages)) {
  writeFileSync(join(docs, name), text);
  console.log(`docs/${name}`);
}
