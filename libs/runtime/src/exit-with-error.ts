/** The end of a process that could not start: one line of what is wrong and what to do, and an exit code that says whose fault it is. */
import { EXIT } from './exit-codes.js';
import { UserError } from './user-error.js';

/** Codes of start-up errors that are settings, not faults: another address or port solves them. */
const CONFIGURATION_CODES: ReadonlySet<unknown> = new Set(['PORT_IN_USE', 'PATH_IN_USE', 'NO_PERMISSION', 'BAD_ADDRESS']);

export function exitWithError(error: unknown): never {
  const { message, code } = error as Error & { code?: unknown };
  if (error instanceof UserError) {
    process.stderr.write(`${error.code}: ${error.message}${error.hint ? `\n${error.hint}` : ''}\n`);
    process.exit(error.exitCode);
  }
  if (CONFIGURATION_CODES.has(code)) {
    process.stderr.write(`${String(code)}: ${message}\n`);
    process.exit(EXIT.configuration);
  }
  process.stderr.write(`${(error as Error).stack ?? String(error)}\n`);
  process.exit(EXIT.internal);
}
