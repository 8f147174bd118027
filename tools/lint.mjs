/**
 * The part `lint` of the suite, and `npm run lint`: what the compiler says of every source, test, tool and bench, with the rules that need types
 * (oxlint, whose type checker is TypeScript's in Go: a tenth of the time of ESLint with types), and then ESLint for syntax, sizes and import
 * directions.
 */
import { spawnSync } from 'node:child_process';
import { delimiter, join } from 'node:path';

const root = join(import.meta.dirname, '..');
const LINTERS = [
  ['oxlint', '--config', 'oxlint.config.json', '--type-aware', '--type-check', '.'],
  ['eslint', '.', '--max-warnings', '0'],
];

const PATH = join(root, 'node_modules', '.bin') + delimiter + process.env.PATH;
for (const [command, ...args] of LINTERS) {
  const { status, error } = spawnSync(command, args, { cwd: root, stdio: 'inherit', env: Object.assign({}, process.env, { PATH }) });
  if (error) process.stderr.write(`${command}: ${error.message}\n`);
  if (status !== 0) process.exitCode = 1;
}
