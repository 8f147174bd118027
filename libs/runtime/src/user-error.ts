import { EXIT, type ExitName } from './exit-codes.js';

/**
 * A mistake or an outage that a person can do something about. Printed without a stack trace: `message` says what is
 * wrong, `hint` what to do. Faults of Paceline itself are plain Errors and keep their stack.
 */
export class UserError extends Error {
  override readonly name: string = 'UserError';
  /** Stable, for programs: UPPER_SNAKE_CASE. */
  readonly code: string;
  readonly hint: string | undefined;
  readonly exit: ExitName;

  constructor(code: string, message: string, options: { hint?: string | undefined; exit?: ExitName; cause?: unknown } = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.hint = options.hint;
    this.exit = options.exit ?? 'internal';
  }

  get exitCode(): number {
    return EXIT[this.exit];
  }
}
