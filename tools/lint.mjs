/**
 * The part `lint` of the suite, and `npm run lint`: what the compiler says of every source, test, tool and bench, the rules that need types, and those
 * that need syntax alone (oxlint.config.json). oxlint parses in Rust, and checks types with TypeScript in Go.
 */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';

const root = join(import.meta.dirname, '..');
const flags = ['--config', 'oxlint.config.json', '--type-aware', '--type-check', '--report-unused-disable-directives-severity=error'];
const { status, error } = spawnSync(join(root, 'node_modules', '.bin', 'oxlint'), [...flags, '.'], { cwd: root, stdio: 'inherit' });
if (error) process.stderr.write(`oxlint: ${error.message}\n`);
process.exitCode = status ?? 1;
