/**
 * Applies prisma/migrations. Idempotent, and safe when two apis start at once: a session-level advisory lock lets one of
 * them work while the other waits; then that one finds everything applied. What is applied is recorded where Prisma records it
 * (`_prisma_migrations`), so `prisma migrate status` agrees.
 */
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { PrismaPg } from '@prisma/adapter-pg';
import pg from 'pg';
import { UserError } from '@paceline/runtime';
import { isDatabaseOutage } from './outage.js';
import { createSchemaEngine, NO_FILTERS } from './schema-engine.js';

/** The same two levels up from src/database and from dist/database. */
export const PRISMA_FOLDER = join(import.meta.dirname, '..', '..', '..', '..', 'prisma');
const MIGRATIONS_FOLDER = join(PRISMA_FOLDER, 'migrations');
const LOCK_KEY = 7_264_101;
const LOCK_DEADLINE_MS = 60_000;

interface Migration {
  readonly name: string;
  readonly sql: string;
}

export function readMigrations(folder = MIGRATIONS_FOLDER): Migration[] {
  if (!existsSync(folder)) return [];
  return readdirSync(folder, { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map((entry) => ({ name: entry.name, sql: readFileSync(join(folder, entry.name, 'migration.sql'), 'utf8') }))
    .sort((a, b) => (a.name < b.name ? -1 : 1));
}

/** The list as the schema engine takes it. */
export function migrationsList(migrations: readonly Migration[]) {
  return {
    baseDir: MIGRATIONS_FOLDER,
    lockfile: { path: './migration_lock.toml', content: 'provider = "postgresql"\n' },
    shadowDbInitScript: '',
    migrationDirectories: migrations.map(({ name, sql }) => ({
      path: name,
      migrationFile: { path: 'migration.sql', content: { tag: 'ok' as const, value: sql } },
    })),
  };
}

/**
 * @returns names of the migrations that this call applied
 * @throws UserError DATABASE_NEWER when the database was migrated by a newer release, DATABASE_MIGRATION_FAILED; an outage as PostgreSQL tells it
 */
export async function migrate(databaseUrl: string): Promise<string[]> {
  const migrations = readMigrations();
  const client = new pg.Client({ connectionString: databaseUrl, connectionTimeoutMillis: 5_000, lock_timeout: LOCK_DEADLINE_MS });
  await client.connect();
  try {
    await client.query('SELECT pg_advisory_lock($1)', [LOCK_KEY]);
    if (await everythingApplied(client, migrations)) return [];
    const engine = await createSchemaEngine(new PrismaPg({ connectionString: databaseUrl }), [
      ['schema.prisma', readFileSync(join(PRISMA_FOLDER, 'schema.prisma'), 'utf8')],
    ]);
    try {
      const { appliedMigrationNames } = await engine.applyMigrations({ migrationsList: migrationsList(migrations), filters: NO_FILTERS });
      return appliedMigrationNames;
    } finally {
      engine.free();
    }
  } catch (cause) {
    if (cause instanceof UserError || isDatabaseOutage(cause)) throw cause;
    throw new UserError('DATABASE_MIGRATION_FAILED', `The database could not be brought up to date: ${(cause as Error).message}`, {
      hint: 'Nothing of a failed migration stays. Look at the message, then start again; a backup is prudent before a manual change.',
      exit: 'unavailable',
      cause,
    });
  } finally {
    await client.end().catch(() => undefined); // frees the lock; after an outage there is none
  }
}

/** By plain SQL: loading the engine takes half a second, and almost every start finds nothing to do. */
async function everythingApplied(client: pg.Client, migrations: readonly Migration[]): Promise<boolean> {
  const { rows: tables } = await client.query<{ found: string | null }>(`SELECT to_regclass('_prisma_migrations')::text AS found`);
  if (!tables[0]?.found) return false;
  const { rows } = await client.query<{ migration_name: string; checksum: string; done: boolean }>(
    'SELECT migration_name, checksum, finished_at IS NOT NULL AS done FROM _prisma_migrations WHERE rolled_back_at IS NULL',
  );
  const known = new Map(migrations.map(({ name, sql }) => [name, createHash('sha256').update(sql).digest('hex')]));
  const foreign = rows.find((row) => !known.has(row.migration_name));
  if (foreign) {
    throw new UserError('DATABASE_NEWER', `The database has the migration ${foreign.migration_name}, which this release does not know.`, {
      hint: 'Start the release that made it, or a newer one.',
      exit: 'configuration',
    });
  }
  const applied = new Map(rows.filter((row) => row.done).map((row) => [row.migration_name, row.checksum]));
  return [...known].every(([name, checksum]) => applied.get(name) === checksum);
}
