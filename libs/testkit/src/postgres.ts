/**
 * A PostgreSQL for a test, as a copy of one that was made before: a cluster with an empty database that has every migration. Copying takes a
 * tenth of the processor time of initdb and the migrations. The template lies in .nx, beside what builds leave, under a name that says what it
 * was made of. An api migrates what it finds, so a template that is behind is no fault.
 */
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { endProcess, guardDirectory, startPostgres, type RunningService, type ServiceOptions } from '@paceline/runtime';

const ROOT = fileURLToPath(new URL('../../../', import.meta.url));
const MIGRATIONS = path.join(ROOT, 'prisma/migrations');
const MIGRATE = path.join(ROOT, 'apps/api/dist/migrate.js');

/** `startPostgres`, and a data folder that is not there yet begins with all migrations. */
export async function startMigratedPostgres(options: ServiceOptions): Promise<RunningService> {
  if (existsSync(options.dataDir) || !existsSync(MIGRATE)) return startPostgres(options);
  const template = templateFolder();
  if (!existsSync(template)) await makeTemplate(template);
  const incomplete = `${path.resolve(options.dataDir)}.new`;
  const keep = guardDirectory(incomplete);
  try {
    await copy(template, incomplete);
    renameSync(incomplete, options.dataDir);
  } finally {
    rmSync(incomplete, { recursive: true, force: true });
    keep();
  }
  try {
    return await startPostgres(options);
  } catch (error) {
    rmSync(options.dataDir, { recursive: true, force: true });
    throw error;
  }
}

/** The template for this user, this PostgreSQL and these migrations. */
function templateFolder(): string {
  const hash = createHash('sha256').update(`${process.platform} ${process.arch} ${process.getuid?.() ?? ''}`);
  hash.update(readFileSync(path.join(ROOT, 'libs/runtime/package.json')));
  for (const name of readdirSync(MIGRATIONS).sort()) {
    const file = path.join(MIGRATIONS, name, 'migration.sql');
    if (existsSync(file)) hash.update(name).update(readFileSync(file));
  }
  return path.join(ROOT, '.nx', `paceline-postgres-${hash.digest('hex').slice(0, 16)}`);
}

async function makeTemplate(folder: string): Promise<void> {
  const temp = mkdtempSync(path.join(tmpdir(), 'paceline-template-'));
  chmodSync(temp, 0o711); // PostgreSQL runs as another user when root starts it
  const keep = guardDirectory(temp);
  const staging = `${folder}.${process.pid}`;
  try {
    const dataDir = path.join(temp, 'postgres');
    const postgres = await startPostgres({ dataDir, temporary: true });
    try {
      await migrate(postgres.url);
      await endProcess(postgres.pid, { signal: 'SIGINT', deadlineMs: 30_000, killSignal: 'SIGQUIT' });
      await postgres.ended;
      await copy(dataDir, staging);
    } finally {
      await postgres.stop();
    }
    try {
      renameSync(staging, folder);
    } catch (error) {
      if (!existsSync(folder)) throw error; // else another process has made it meanwhile
    }
  } finally {
    for (const made of [temp, staging]) rmSync(made, { recursive: true, force: true });
    keep();
  }
}

async function migrate(url: string): Promise<void> {
  const env = { PATH: process.env['PATH'] ?? '', DATABASE_URL: url };
  const child = spawn(process.execPath, [MIGRATE], { env, stdio: ['ignore', 'ignore', 'inherit'] });
  const [code] = (await once(child, 'exit')) as [number | null];
  if (code !== 0) throw new Error(`${MIGRATE} ended with ${code}: there is no database to test with`);
}

/** With owners and modes, which PostgreSQL looks at. */
async function copy(from: string, to: string): Promise<void> {
  mkdirSync(to, { recursive: true });
  const parts = ['cluster', 'password'].map((name) => path.join(from, name));
  const child = spawn('cp', ['-a', ...parts, to], { stdio: ['ignore', 'ignore', 'inherit'] });
  const [code] = (await once(child, 'exit')) as [number | null];
  if (code !== 0) throw new Error(`cp of ${from} ended with ${code}`);
}
