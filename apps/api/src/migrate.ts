/** `node dist/migrate.js`: brings the database of DATABASE_URL up to date and exits. The api does the same at its start. */
import { exitWithError, readEnvironment, VARIABLES } from '@paceline/runtime';
import { migrate } from './database/migrations.js';

try {
  const { DATABASE_URL } = readEnvironment({ DATABASE_URL: VARIABLES.DATABASE_URL });
  const applied = await migrate(DATABASE_URL);
  const said = applied.length > 0 ? `applied ${applied.join(', ')}` : 'the database is up to date';
  // The schema engine leaves a timer of ten seconds behind, which would keep the process.
  process.stdout.write(`${said}\n`, () => process.exit());
} catch (error) {
  exitWithError(error);
}
