/**
 * `node prisma/make-migration.mjs NAME` (after `npm run build -w @paceline/api`): writes the SQL from the schema of the last migration to
 * prisma/schema.prisma. Read it before you commit it. Each migration keeps the schema that it leads to, because the engine cannot
 * read a database back (its WebAssembly build does not know the type "char" of the system catalogue).
 */
import { existsSync, mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PrismaPg } from '@prisma/adapter-pg';
import { startPostgres } from '@paceline/runtime';
import { readMigrations } from '../apps/api/dist/database/migrations.js';
import { createSchemaEngine, NO_FILTERS } from '../apps/api/dist/database/schema-engine.js';

const name = process.argv[2];
if (!/^[a-z][a-z0-9_]{2,60}$/.test(name ?? '')) {
  console.error('usage: node prisma/make-migration.mjs NAME   (a-z, 0-9, _)');
  process.exit(64);
}
const migrations = join(import.meta.dirname, 'migrations');
const read = (path) => ({ path, content: readFileSync(path, 'utf8') });
const last = readMigrations().at(-1);
const lastSchema = last && join(migrations, last.name, 'schema.prisma');
if (lastSchema && !existsSync(lastSchema)) throw new Error(`${lastSchema} is missing`);
const wanted = read(join(import.meta.dirname, 'schema.prisma'));

// The engine connects when it is made, though a difference of two schemas asks the database nothing.
const postgres = await startPostgres({ dataDir: mkdtempSync(join(tmpdir(), 'paceline-migration-')), temporary: true });
let stdout;
try {
  const engine = await createSchemaEngine(new PrismaPg({ connectionString: postgres.url }), [[wanted.path, wanted.content]]);
  const from = lastSchema ? { tag: 'schemaDatamodel', files: [read(lastSchema)] } : { tag: 'empty' };
  ({ stdout } = await engine.diff({
    from,
    to: { tag: 'schemaDatamodel', files: [wanted] },
    script: true,
    exitCode: null,
    filters: NO_FILTERS,
  }));
  engine.free();
} finally {
  await postgres.stop();
}
if (!stdout || stdout.includes('This is an empty migration')) {
  console.log('The migrations already lead to this schema.');
} else {
  const stamp = new Date().toISOString().replace(/\D/g, '').slice(0, 14);
  const folder = join(migrations, `${stamp}_${name}`);
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'migration.sql'), stdout);
  writeFileSync(join(folder, 'schema.prisma'), wanted.content);
  writeFileSync(join(migrations, 'migration_lock.toml'), 'provider = "postgresql"\n');
  console.log(folder);
}
