import type { RunResult } from '../graphql/generated/operations.js';

/** A run as its page shows it. */
export type RunDetails = NonNullable<RunResult['run']>;
