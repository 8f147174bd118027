/** From an error to what people and programs see: a text with what to do, a JSON document, an exit code. No stack unless asked for. */
import { PacelineApiError } from '@paceline/client';
import { EXIT, type ExitName } from '@paceline/runtime/exit-codes';
import { UserError } from '@paceline/runtime/user-error';
import type { SpecIssue } from '@paceline/spec';
import { clean, cleanLines } from './terminal/clean.js';
import type { Terminal } from './terminal/terminal.js';

/** Wrong fields of a run spec, each with where it was written. */
export class SpecError extends UserError {
  override readonly name = 'SpecError';
  readonly issues: readonly LocatedIssue[];

  constructor(message: string, issues: readonly LocatedIssue[]) {
    super('SPEC_INVALID', message, {
      exit: 'badSpec',
      hint: 'The fields of a run spec are described in docs/reference/run-spec.md; `paceline train --help` lists the flags.',
    });
    this.issues = issues;
  }
}

export interface LocatedIssue extends SpecIssue {
  /** `spec.yaml:4:7` or `--learning-rate`. */
  readonly at?: string | undefined;
}

/** What went wrong after a run was there: programs are told which one. */
export class RunFailure extends Error {
  override readonly name = 'RunFailure';
  constructor(
    readonly runId: string,
    override readonly cause: unknown,
  ) {
    super(`run ${runId}`);
  }
}

export interface Failure {
  readonly code: string;
  readonly message: string;
  readonly hint: string | undefined;
  readonly issues: readonly LocatedIssue[];
  readonly exit: ExitName;
  readonly runId?: string;
}

export function describeFailure(error: unknown): Failure {
  if (error instanceof RunFailure) return Object.assign({}, describeFailure(error.cause), { runId: error.runId });
  if (error instanceof SpecError)
    return { code: error.code, message: error.message, hint: error.hint, issues: error.issues, exit: error.exit };
  if (error instanceof UserError) return { code: error.code, message: error.message, hint: error.hint, issues: [], exit: error.exit };
  if (error instanceof PacelineApiError) return describeApiError(error);
  const { code, message, path, syscall } = (error ?? {}) as NodeJS.ErrnoException;
  if (code !== undefined && path !== undefined && syscall !== undefined && code in DISK_CODES)
    return ofDisk(path, code as keyof typeof DISK_CODES);
  return {
    code: typeof code === 'string' ? code : 'INTERNAL',
    message: `A fault in Paceline: ${typeof message === 'string' ? message : String(error)}`,
    hint: 'PACELINE_DEBUG=1 shows where. Please report it with that output.',
    issues: [],
    exit: 'internal',
  };
}

/** What a disk has against a file, as Node says it. */
const DISK_CODES = {
  EACCES: 'you may not read or write it',
  EPERM: 'you may not change it',
  EROFS: 'its disk can only be read',
  ENOSPC: 'its disk is full',
  EDQUOT: 'your quota on its disk is used up',
  EIO: 'its disk is broken',
  ENOTDIR: 'a part of its path is no folder',
  EISDIR: 'it is a folder',
  ENOTEMPTY: 'it is a folder with something in it',
  ENAMETOOLONG: 'its name is too long',
  ELOOP: 'its symbolic links form a loop',
} as const;

const ofDisk = (path: string, code: keyof typeof DISK_CODES): Failure => ({
  code: 'FILE_UNUSABLE',
  message: `${path} cannot be used: ${DISK_CODES[code]} (${code}).`,
  hint: 'Choose another place, or make this one usable.',
  issues: [],
  exit: 'usage',
});

const API_CODES: Readonly<Record<string, { readonly exit: ExitName; readonly hint?: string }>> = {
  UNREACHABLE: { exit: 'unavailable', hint: 'Is it running? `paceline up` starts a local one; PACELINE_URL points to another.' },
  TIMEOUT: { exit: 'temporary', hint: 'Try again; `paceline doctor` checks what the api needs.' },
  BAD_ANSWER: { exit: 'unavailable', hint: 'Check PACELINE_URL.' },
  INVALID_URL: { exit: 'configuration', hint: 'Check PACELINE_URL.' },
  UNAVAILABLE: { exit: 'unavailable', hint: 'Try again; `paceline doctor` checks what the api needs.' },
  SERVICE_UNAVAILABLE: { exit: 'unavailable' },
  TOO_BUSY: { exit: 'temporary' },
  RATE_LIMITED: { exit: 'temporary' },
  TOO_MANY_ATTEMPTS: { exit: 'keyRefused' },
  UNAUTHENTICATED: { exit: 'keyRefused', hint: 'Set PACELINE_API_KEY to a valid key; `paceline up` writes one for the local stack.' },
  FORBIDDEN: { exit: 'keyRefused' },
  NOT_FOUND: { exit: 'notFound' },
  INVALID_INPUT: { exit: 'badSpec' },
  TOO_LARGE: { exit: 'badSpec' },
  REQUEST_TIMEOUT: { exit: 'temporary', hint: 'The connection to the api was too slow. Try again.' },
  CONFLICT: { exit: 'unsuccessful' },
  LIMIT_REACHED: { exit: 'unsuccessful' },
};

/** GraphQL's own words about a request that the api does not understand: for the author of a request, not for who typed a command. */
const NOT_UNDERSTOOD: ReadonlySet<string> = new Set(['BAD_USER_INPUT', 'BAD_REQUEST', 'GRAPHQL_VALIDATION_FAILED', 'GRAPHQL_PARSE_FAILED']);

function describeApiError(error: PacelineApiError): Failure {
  if (NOT_UNDERSTOOD.has(error.code)) {
    return {
      code: error.code,
      message: 'The api does not understand what this command asks of it.',
      hint: 'They may be of different releases: compare `paceline --version` with that of the api. --debug shows the words of the api.',
      issues: [],
      exit: 'unavailable',
    };
  }
  const known = API_CODES[error.code];
  const wait = error.retryAfterMs === undefined ? '' : ` Wait ${Math.ceil(error.retryAfterMs / 1000)} s.`;
  const hint = `${known?.hint ?? ''}${wait}`.trim();
  return {
    code: error.code,
    message: error.message,
    hint: hint || undefined,
    issues: error.issues,
    exit: known?.exit ?? (error.isTemporary ? 'unavailable' : 'internal'),
  };
}

/** The api puts its issues into the message too: said once, under the message, or as the message when there is one alone without a place. */
function withoutRepetition({ message, issues }: Failure): Pick<Failure, 'message' | 'issues'> {
  const [first] = issues;
  // oxlint-disable-next-line messages/decide-nothing -- only whether a text is printed twice
  if (!first || !message.includes(first.message)) return { message, issues };
  if (issues.length === 1 && first.at === undefined) return { message: `${first.path}: ${first.message}`, issues: [] };
  return { message: 'This cannot be done as it was asked for.', issues };
}

/** Prints it in the terminal's form. @returns the exit code */
export function reportFailure(error: unknown, terminal: Terminal): number {
  const failure = describeFailure(error);
  const { code, exit, runId } = failure;
  const hint = failure.hint === undefined ? undefined : terminal.typed(failure.hint);
  const { message, issues } = withoutRepetition(failure);
  if (terminal.json) {
    terminal.document({
      ...(runId === undefined ? {} : { runId }),
      error: { code, message, ...(hint ? { hint } : {}), ...(issues.length > 0 ? { issues } : {}) },
    });
  } else {
    terminal.note(
      `${terminal.style('red', 'error', 'stderr')} ${terminal.typed(cleanLines(message))} ${terminal.style('dim', `[${clean(code)}]`, 'stderr')}`,
    );
    for (const issue of issues) {
      const at = issue.at ? `${clean(issue.at)}  ` : '';
      terminal.note(
        `  ${terminal.style('dim', at, 'stderr')}${terminal.style('bold', clean(issue.path), 'stderr')}: ${clean(issue.message, 1000)}`,
      );
    }
    if (hint) terminal.note(cleanLines(hint));
  }
  if (terminal.debug && error instanceof Error)
    terminal.note(
      `\n${error.stack ?? error.message}${error.cause === undefined ? '' : `\ncaused by ${String((error.cause as Error).stack ?? error.cause)}`}`,
    );
  return EXIT[exit];
}
