/** Writes the reference pages of the api into docs/. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { referencePages } from './reference.js';

const docs = join(import.meta.dirname, '..', '..', '..', 'docs');
for (const [name, text] of Object.entries(await referencePages())) {
  writeFileSync(join(docs, name), text);
  process.stdout.write(`docs/${name}\n`);
}
