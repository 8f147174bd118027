/**
 * Exit codes of every process of Paceline. They follow BSD's sysexits.h, so that scripts can tell a mistake in the
 * command line from a service that is away. docs/reference/cli.md prints this table; a test compares the two.
 */
export const EXIT = {
  ok: 0,
  /** A run ended as FAILED or CANCELLED, or a check of `paceline doctor` failed: the command itself worked. */
  unsuccessful: 1,
  usage: 64,
  badSpec: 65,
  notFound: 66,
  unavailable: 69,
  internal: 70,
  /** A worker between two seats: its supervisor starts it again. */
  outgrown: 71,
  temporary: 75,
  keyRefused: 77,
  configuration: 78,
  interrupted: 130,
} as const;

export type ExitName = keyof typeof EXIT;
export type ExitCode = (typeof EXIT)[ExitName];

export const EXIT_MEANINGS: Readonly<Record<ExitName, string>> = {
  ok: 'Done.',
  unsuccessful: 'The command worked, but what it watched did not: the run failed or was cancelled, or a check of `doctor` failed.',
  usage: 'The command line is wrong: unknown command or flag, missing argument, or a value that cannot be read.',
  badSpec: 'The run spec, or the data of an import, is wrong: every field that is wrong is named.',
  notFound: 'There is no such run, dataset, file or cluster spec.',
  unavailable: 'A service cannot be reached: the api, PostgreSQL or Redis.',
  internal: 'A fault in Paceline. PACELINE_DEBUG=1 shows where.',
  outgrown: 'A worker holds memory that only its end gives back (a leak outside of its engine); its supervisor starts it again.',
  temporary: 'Something took longer than its deadline, or `up` runs already; trying again may help.',
  keyRefused: 'The api key is missing, wrong or revoked, or may not do this.',
  configuration: 'The configuration or the environment is wrong, or a port is taken.',
  interrupted: 'Stopped by Ctrl-C (SIGINT).',
};
