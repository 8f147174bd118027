/**
 * Writes the Prisma client of apps/api, offline. `prisma generate` looks for the schema engine, a binary that it would download and
 * does not use here; any executable in its place will do.
 */
import { execFileSync } from 'node:child_process';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const require = createRequire(import.meta.url);
const prisma = join(dirname(require.resolve('prisma/package.json')), 'build', 'index.js');

execFileSync(process.execPath, [prisma, 'generate', '--schema', join(here, 'schema.prisma'), '--no-hints'], {
  stdio: ['ignore', 'ignore', 'inherit'],
  cwd: dirname(here),
  env: { ...process.env, PRISMA_SCHEMA_ENGINE_BINARY: process.execPath, PRISMA_HIDE_UPDATE_MESSAGE: '1', CHECKPOINT_DISABLE: '1' },
});
