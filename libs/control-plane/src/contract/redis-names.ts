/**
 * Names of everything in Redis: three queues, the report stream, one control hash per run. Redis carries, PostgreSQL remembers:
 * every key here may vanish (FLUSHALL), and the reconciler of the api makes it again.
 */
export const PLACEMENT_QUEUE = 'paceline-placements';

/** Placements of runs whose workers hold the shards themselves. */
export const WORKER_PLACEMENT_QUEUE = 'paceline-worker-placements';

export const STEP_TASK_QUEUE = 'paceline-step-tasks';

const KEY_PREFIX = 'paceline';

export const REPORT_STREAM = `${KEY_PREFIX}:reports`;

export const controlKey = (runId: string): string => `${KEY_PREFIX}:control:${runId}`;

/** What processes have recorded of a trace, until whoever asked for it has read it. */
export const traceKey = (traceId: string): string => `${KEY_PREFIX}:trace:${traceId}`;

/** There while the run is traced; it holds the id of the trace. */
export const tracedRunKey = (runId: string): string => `${KEY_PREFIX}:traced-run:${runId}`;

/** Entries kept in the report stream (approximate trim); the journals hold what the api has not acknowledged. */
export const REPORT_STREAM_MAX_ENTRIES = 50_000;
