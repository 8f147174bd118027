/**
 * Everything that passes between api, servers and workers through Redis, and nothing else does.
 *
 *   queue  paceline-placements   api → ps       "claim server `index` of this attempt" (short claim jobs)
 *   queue  paceline-step-tasks   api → worker   one seat in a run for a slice of 2–5 s
 *   stream {prefix}:reports      ps, worker → api   journal entries, heartbeats, claims
 *   hash   {prefix}:control:{runId}   api → coordinator   acknowledged journal number, wanted action
 *
 * Redis carries, PostgreSQL remembers: every key here may vanish (FLUSHALL) and the reconciler of the api makes it again.
 * Payloads are schema-checked on both sides; a forged or oversized one is refused and counted.
 */
import type { FailureCause } from '@paceline/protocol';
import { z } from 'zod';
import { runDataSchema, runSpecSchema, type ModelDescription } from '@paceline/spec';

export const PLACEMENT_QUEUE = 'paceline-placements';
export const STEP_TASK_QUEUE = 'paceline-step-tasks';
export const KEY_PREFIX = 'paceline';
export const REPORT_STREAM = `${KEY_PREFIX}:reports`;
export const controlKey = (runId: string): string => `${KEY_PREFIX}:control:${runId}`;
/** Entries kept in the report stream (approximate trim); the journals hold what the api has not acknowledged. */
export const REPORT_STREAM_MAX_ENTRIES = 50_000;

const uuid = z.uuid();
const shape = z
  .array(
    z
      .int()
      .min(0)
      .max(2 ** 31),
  )
  .max(8);

const ends = z
  .array(z.strictObject({ name: z.string().min(1).max(300), shape }))
  .min(1)
  .max(32);

export const modelDescriptionSchema: z.ZodType<ModelDescription> = z.strictObject({
  variables: z
    .array(
      z.strictObject({
        path: z.string().min(1).max(300),
        shape,
        section: z.enum(['trainable', 'state']),
        initializer: z.strictObject({ className: z.string().max(100), config: z.record(z.string(), z.unknown()) }),
      }),
    )
    .min(1)
    .max(10_000),
  inputs: ends,
  outputs: ends,
  parameterCount: z.int().min(1),
  stateCount: z.int().min(0),
});

/** Where a server listens: both are tried, the Unix socket first when it exists on this host. */
export const serverAddressSchema = z.strictObject({
  index: z.int().min(0).max(1023),
  serverId: z.string().min(1).max(100),
  host: z.string().min(1).max(255),
  port: z.int().min(1).max(65_535),
  unixPath: z.string().max(107).nullable(),
});
export type ServerAddress = z.output<typeof serverAddressSchema>;

/**
 * Claim job for server `index` of (run, attempt). All claims of an attempt must be taken before any can start: the ps that takes one
 * reports `server.claimed` with its address at once; the api then enqueues `start` = the peers' addresses through the control hash.
 */
export const placementJobSchema = z.strictObject({
  kind: z.literal('placement'),
  runId: uuid,
  attempt: z.int().min(1),
  index: z.int().min(0),
  servers: z.int().min(1),
  spec: runSpecSchema,
  model: modelDescriptionSchema,
  data: runDataSchema,
  /** The checkpoint that the attempt begins with (of any attempt or run, for the same model); null begins at round 0. */
  restore: z.strictObject({ runId: uuid, attempt: z.int().min(1), round: z.int().min(0) }).nullable(),
  /** With `strategy.standby` a shard has two placements; without it there are primaries alone. */
  role: z.enum(['primary', 'standby']).optional(),
  /** Engine fingerprint of the run's earlier attempts, which this one goes on with (`engine: auto`). */
  fingerprint: z.string().max(300).optional(),
  /** Token this server shows to the coordinator (role `server`). */
  token: z.string().max(4096),
});
export type PlacementJob = z.output<typeof placementJobSchema>;

/** A seat: `seat` is 0..R-1 and `n` counts how often the seat was made; the coordinator owns seats (ROUNDS §7). */
export const stepTaskJobSchema = z.strictObject({
  kind: z.literal('step-task'),
  stepTaskId: uuid,
  runId: uuid,
  attempt: z.int().min(1),
  seat: z.int().min(0),
  n: z.int().min(0),
  spec: runSpecSchema,
  model: modelDescriptionSchema,
  data: runDataSchema,
  servers: z.array(serverAddressSchema).min(1),
  /** Second addresses, of the shards that have a standby. */
  standbys: z.array(serverAddressSchema).optional(),
  /** After this long in the seat the worker looks whether a waiting task should have it instead. */
  sliceMs: z.int().min(100).max(600_000),
  /** Engine fingerprint that the run is pinned to, as far as the api knows (`engine: auto`). */
  fingerprint: z.string().max(300).optional(),
  /** Seats held in this run when the task was made: the fairness rule of `shouldYield` compares them. */
  heldSeats: z.int().min(0),
  /** Token for HELLO (role `worker`). */
  token: z.string().max(4096),
});
export type StepTaskJob = z.output<typeof stepTaskJobSchema>;

/** Claims of the data-plane token (JWT, HS256, signed by api with PACELINE_TOKEN_SECRET, checked by ps at HELLO). */
export const tokenClaimsSchema = z.object({
  run: uuid,
  attempt: z.int().min(1),
  role: z.enum(['worker', 'server']),
  /** Seconds since the epoch; longer than any api outage that a run should survive (default 24 h). */
  exp: z.int(),
});
export type TokenClaims = z.output<typeof tokenClaimsSchema>;
export const TOKEN_ISSUER = 'paceline-api';
export const TOKEN_AUDIENCE = 'paceline-data-plane';

/* ---------- reports: ps, worker → api ---------- */

/** Numbers by name: the loss and the metrics of a run. */
export const measuresSchema = z.record(z.string().min(1).max(200), z.number().nullable());
export type MeasuresRecord = z.output<typeof measuresSchema>;
/** What was measured on the evaluation split with the COMMIT of a round. */
export const validationSchema = z.strictObject({ round: z.int().min(0), examples: z.int().min(0), values: measuresSchema });
export type ValidationRecord = z.output<typeof validationSchema>;

const entryBase = { n: z.int().min(1), atMs: z.int() };
/** Numbered entries of a coordinator's journal: published again until the api has acknowledged them (`ackFieldName` in the control hash). */
export const journalEntrySchema = z.discriminatedUnion('kind', [
  z.strictObject({
    ...entryBase,
    kind: z.literal('event'),
    type: z.enum([
      'training.started',
      'worker.joined',
      'worker.left',
      'worker.away',
      'worker.back',
      'worker.lost',
      'view.changed',
      'evaluation.started',
      'weights.written',
      'run.finished',
      'run.cancelled',
      'run.failed',
      'frame.refused',
      'journal.gap',
      'checkpoint.written',
      'checkpoint.failed',
      'run.paused',
      'run.restored',
      'round.skipped',
      'round.stalled',
      'replica.dropped',
      'token.reissued',
      'scale.changed',
      'training.stopped-early',
      'rate.reduced',
      'weights.best-missing',
      'standby.ready',
      'standby.lost',
      'standby.promoted',
    ]),
    message: z.string().max(2000),
    data: z.record(z.string(), z.unknown()),
  }),
  z.strictObject({
    ...entryBase,
    kind: z.literal('metric'),
    round: z.int().min(0),
    /** How many rounds this row stands for: 1, or more after the journal had to thin. */
    rounds: z.int().min(1),
    epoch: z.int().min(0),
    /** Loss and metrics over the examples of the round(s); of several rounds a metric that is no mean is that of the newest. */
    values: measuresSchema,
    /** Of a run that validates: what was measured on the evaluation split after round `round`. */
    validation: validationSchema.optional(),
    examples: z.int().min(0),
    examplesPerSecond: z.number().min(0),
    roundMs: z.number().min(0),
    /** Modes async and ssp: mean staleness of the updates, and how many had 0, 1, 2, …; the last place counts the rest. */
    staleness: z.number().min(0).optional(),
    stalenessCounts: z.array(z.int().min(0)).max(64).optional(),
  }),
  z.strictObject({
    ...entryBase,
    kind: z.literal('ledger'),
    /** Committed rounds [fromRound, toRound], both inclusive, with the examples counted from (round, replica) rows. */
    fromRound: z.int().min(0),
    toRound: z.int().min(0),
    examples: z.int().min(0),
    /** Examples of these rounds that are in no update: of replicas that were too late, or of rounds that were left out. */
    dropped: z.int().min(0).optional(),
  }),
]);
export type JournalEntry = z.output<typeof journalEntrySchema>;

/** What a worker could compute with; the speed is of the model that it measured last. */
export const engineRecordSchema = z.strictObject({
  name: z.string().max(30),
  fingerprint: z.string().max(300).nullable(),
  examplesPerSecond: z.number().min(0).nullable(),
  isChosen: z.boolean(),
});
export type EngineRecord = z.output<typeof engineRecordSchema>;

export const engineDeviceSchema = z.strictObject({ name: z.string().max(200), type: z.string().max(30), memoryBytes: z.number().min(0) });
export type EngineDeviceRecord = z.output<typeof engineDeviceSchema>;

export const fleetMemberSchema = z.strictObject({
  id: z.string().min(1).max(100),
  host: z.string().max(255),
  pid: z.int().min(1),
  protocolVersion: z.int().min(0),
  version: z.string().max(50),
  startedAtMs: z.int(),
  /** Engine fingerprint of a worker: engine, version, instruction set, threads, flags. Null for servers. */
  fingerprint: z.string().max(300).nullable(),
  /** Of a worker. */
  engines: z.array(engineRecordSchema).max(8).optional(),
  /** That its engine computes on, as far as it says; GPUs among them. */
  devices: z.array(engineDeviceSchema).max(16).optional(),
  rssBytes: z.int().min(0),
  /** It may use so much: of the machine, or of its container. */
  memoryBytes: z.int().min(1).optional(),
  /** Of a worker: identity of the data store that it sees; null without one. */
  dataStore: z.string().max(300).nullable().optional(),
  runId: uuid.nullable(),
});
export type FleetMember = z.output<typeof fleetMemberSchema>;

export const reportSchema = z.discriminatedUnion('kind', [
  /** Every 1 s from each worker and server process. Unnumbered: the newest wins. */
  z.strictObject({ kind: z.literal('heartbeat'), role: z.enum(['worker', 'server']), member: fleetMemberSchema }),
  z.strictObject({ kind: z.literal('goodbye'), role: z.enum(['worker', 'server']), id: z.string().max(100) }),
  z.strictObject({
    kind: z.literal('server.claimed'),
    runId: uuid,
    attempt: z.int(),
    role: z.enum(['primary', 'standby']).optional(),
    /** Of the placement that it took: a claim of one that was made again counts no more. */
    made: z.int().min(0).optional(),
    address: serverAddressSchema,
    /** It has taken the part, and still loads the parameters that it begins with; it says so again when it has. */
    loading: z.boolean().optional(),
    /** Identity of the checkpoint store that the server sees: equal on all servers of an attempt, or the attempt is refused. */
    storage: z.string().max(300).optional(),
  }),
  /**
   * A primary wants its standby dropped, or a standby wants to be promoted: one of the two wins. The answer goes to the control hash
   * (`leadFieldName`); asked again until it is there.
   */
  z.strictObject({
    kind: z.literal('lead.asked'),
    runId: uuid,
    attempt: z.int(),
    index: z.int().min(0),
    serverId: z.string().min(1).max(100),
    want: z.enum(['drop', 'promote']),
    /** That the server is in. */
    term: z.int().min(0),
  }),
  /** A server could not start its part; the attempt ends with this reason. */
  z.strictObject({
    kind: z.literal('server.failed'),
    runId: uuid,
    attempt: z.int(),
    index: z.int(),
    /** Which of the two, where the shard has a standby. */
    serverId: z.string().max(100).optional(),
    code: z.string().max(100),
    message: z.string().max(2000),
  }),
  /** From a worker: the process in whose place it was started has ended by itself. `how` is in words: `ended by SIGSEGV`. */
  z.strictObject({ kind: z.literal('worker.died'), workerId: z.string().min(1).max(100), how: z.string().max(300) }),
  /** From a worker: its memory grows, so it begins anew: its compute thread, or the whole process when memory remains without one. */
  z.strictObject({
    kind: z.literal('worker.recycled'),
    runId: uuid,
    attempt: z.int(),
    workerId: z.string().min(1).max(100),
    what: z.enum(['thread', 'process']),
    /** The layer or operation that is suspected, in words. */
    suspect: z.string().max(300).nullable(),
    message: z.string().max(1000),
  }),
  /** From a worker: it cannot take or keep its seat (engine missing, model refused, server unreachable for 3 s...). */
  z.strictObject({
    kind: z.literal('seat.failed'),
    runId: uuid,
    attempt: z.int(),
    seat: z.int(),
    /** How often the seat was made: one that failed says nothing of the next. */
    n: z.int(),
    workerId: z.string().max(100),
    code: z.string().max(100),
    message: z.string().max(2000),
    serverIndex: z.int().nullable(),
  }),
  z.strictObject({
    kind: z.literal('seat.left'),
    runId: uuid,
    attempt: z.int(),
    seat: z.int(),
    n: z.int(),
    workerId: z.string().max(100),
    reason: z.string().max(300),
  }),
  /** From a coordinator: journal entries, oldest first, at most 200, plus its present state. At least every 1 s. */
  z.strictObject({
    kind: z.literal('journal'),
    runId: uuid,
    attempt: z.int(),
    entries: z.array(journalEntrySchema).max(200),
    /** Of the coordinator that writes the journal; what one of an older term says is refused. */
    term: z.int().min(1).optional(),
    /**
     * Number of the entry before the first one, 0 when the report begins with the oldest unacknowledged entry: nothing between the two is
     * left in the journal. Tells gaps of a journal that had to thin from reports that were lost.
     */
    after: z.int().min(0).optional(),
    state: z.strictObject({
      phase: z.enum(['waiting', 'training', 'pausing', 'evaluating', 'finished', 'paused', 'cancelled', 'failed']),
      round: z.int().min(0),
      totalRounds: z.int().min(0),
      view: z.int().min(0),
      /** Seats that are held, with who holds them and which replicas they compute. */
      seats: z.array(z.strictObject({ seat: z.int(), n: z.int(), workerId: z.string().max(100), replicas: z.array(z.int()) })).max(1024),
      refusedFrames: z.int().min(0),
      refusedConnections: z.int().min(0),
      waitingFor: z.string().max(300).nullable(),
    }),
  }),
]);
export type Report = z.output<typeof reportSchema>;
export type CoordinatorState = Extract<Report, { kind: 'journal' }>['state'];

/** `data` of the `run.finished` event. */
export const runResultSchema = z.strictObject({
  rounds: z.int(),
  /** Loss and metrics on the evaluation split; null where the dataset has none. */
  values: measuresSchema,
  /** Rounds in the weights, where early stopping has restored those of an earlier round. */
  weightsRound: z.int().min(0).optional(),
  examplesPerSecond: z.number(),
  trainedExamples: z.int(),
  weightsSha256: z.string().regex(/^[0-9a-f]{64}$/),
  /** Path of the safetensors file on the coordinator's host, null when checkpoint.final is false. */
  weightsFile: z.string().nullable(),
  trainingMs: z.number(),
});
export type RunResult = z.output<typeof runResultSchema>;

/** `data` of the `checkpoint.written` event. */
export const checkpointRecordSchema = z.strictObject({
  attempt: z.int().min(1),
  /** Generation: rounds that are committed in it. */
  round: z.int().min(0),
  bytes: z.int().min(0),
  /** Of the manifest. */
  sha256: z.string().regex(/^[0-9a-f]{64}$/),
  /** Mean training loss since the checkpoint before; null where there is none. */
  loss: z.number().nullable(),
  reason: z.enum(['cadence', 'best', 'pause', 'final', 'shutdown']),
  /** Of all generations that were validated before. */
  isBest: z.boolean().optional(),
});
export type CheckpointRecord = z.output<typeof checkpointRecordSchema>;

/**
 * Why an attempt failed, in `data.cause` of the `run.failed` event. The control plane starts a new attempt from the newest
 * checkpoint after a recoverable one, as long as the run's restart budget lasts.
 */
export const FAILURE_CAUSES = {
  SERVER_LOST: { isRecoverable: true, meaning: 'a parameter server of the attempt is gone' },
  STOPPED: { isRecoverable: true, meaning: 'a parameter server was told to stop' },
  STALLED: { isRecoverable: true, meaning: 'a round stood still for long, though all its members were there' },
  NON_FINITE_ROLLBACK: { isRecoverable: true, meaning: 'a gradient had NaN or infinity, and the run wants to go back' },
  NON_FINITE: { isRecoverable: false, meaning: 'a gradient had NaN or infinity' },
  POISON_ROUND: { isRecoverable: false, meaning: 'one replica has lost its worker again and again in one round' },
  INTERNAL: { isRecoverable: true, meaning: 'something broke inside a server' },
} as const satisfies Record<FailureCause, { readonly isRecoverable: boolean; readonly meaning: string }>;

/* ---------- control: api → coordinator, a Redis hash per run, read by polling (every 250 ms) ---------- */

/** Fields of `controlKey(runId)`. Values are strings; `start` is JSON. */
export interface ControlFields {
  /**
   * Highest journal number of an attempt that is stored, under `ackFieldName`: an attempt that is over may still be waiting for its own. As
   * `n@term`: a coordinator and its successor give the same numbers to different entries. As `n@term@dropped` where the attempt is over and nothing of
   * it is taken any more: they need not be sent again, and are not stored.
   */
  [ack: `ack${number}`]: string;
  /** Wanted of the attempt, as `attempt:cancel` or `attempt:pause`. */
  action?: string;
  /** Workers that the run wants to hold seats at most, as `attempt:n`; the coordinator lets surplus ones go at a commit. */
  workers?: string;
  /** JSON {attempt, servers: ServerAddress[], standbys?}: all servers are claimed, begin. Every server of the attempt waits for it. */
  start?: string;
  /**
   * JSON of `claimsSchema`: whose claims count, while a part finds no server. Who sees another in its place lets go, and is free for
   * the part that is missing.
   */
  claims?: string;
  /** What the arbiter has decided about a shard: JSON of `leadSchema`, under `leadFieldName`. */
  [lead: `lead${number}`]: string;
}

export const claimsSchema = z.object({
  attempt: z.int().min(1),
  claims: z
    .array(
      z.object({
        index: z.int().min(0),
        role: z.enum(['primary', 'standby']),
        made: z.int().min(0),
        serverId: z.string().max(100),
      }),
    )
    .max(2_048),
});
export type Claims = z.output<typeof claimsSchema>;

/** Who leads the shard of an index: a field of the control hash, written when the arbiter has decided. JSON of `leadSchema`. */
export const leadFieldName = (index: number): `lead${number}` => `lead${index}`;
export const leadSchema = z.object({
  attempt: z.int().min(1),
  index: z.int().min(0),
  term: z.int().min(1),
  primary: z.string().max(100),
  standby: z.string().max(100).nullable(),
  /** Index 0, for a coordinator that takes over: highest journal number stored, first round without a ledger row, newest checkpoint. */
  storedN: z.int().min(0).optional(),
  ledgerFrom: z.int().min(0).optional(),
  newest: z.int().min(0).optional(),
  /** Index 0: in which term each shard is led, by index. */
  terms: z.array(z.int().min(1)).max(1_024).optional(),
});
export type LeadAnswer = z.output<typeof leadSchema>;

export const ackFieldName = (attempt: number): `ack${number}` => `ack${attempt}`;
/** Journal entries up to a number need not be sent again. */
export interface Acknowledged {
  readonly n: number;
  /** They came too late: nobody has stored them. */
  readonly areDropped?: true | undefined;
}

/** @param term of the coordinator whose journal it is */
export const ackValue = ({ n, areDropped }: Acknowledged, term: number): string => `${n}@${term}${areDropped ? '@dropped' : ''}`;
/** What is acknowledged of the journal of the coordinator of this term; undefined when the field says nothing of it. */
export function acknowledgedOf(value: string | undefined, term: number): Acknowledged | undefined {
  const [n, of, dropped] = value?.split('@') ?? [];
  if (Number(of) !== term || !Number.isSafeInteger(Number(n))) return undefined;
  return dropped === 'dropped' ? { n: Number(n), areDropped: true } : { n: Number(n) };
}

/** Job ids hold no ':' and are no integers; re-creations are numbered because BullMQ ignores the id of a kept finished job. */
export const placementJobId = (
  runId: string,
  attempt: number,
  index: number,
  made: number,
  role: 'primary' | 'standby' = 'primary',
): string => `place-${runId}-a${attempt}-i${index}${role === 'standby' ? '-standby' : ''}-m${made}`;
export const stepTaskJobId = (runId: string, attempt: number, seat: number, n: number): string =>
  `step-${runId}-a${attempt}-s${seat}-n${n}`;

/**
 * Fairness at the end of a slice. A worker yields to a waiting task of another run when that run holds no seat at all,
 * or when handing over one seat would still leave its own run with at least as many as the other.
 */
export function shouldYield(own: { runId: string; heldSeats: number }, waiting: { runId: string; heldSeats: number } | undefined): boolean {
  if (!waiting || waiting.runId === own.runId) return false;
  return waiting.heldSeats === 0 || waiting.heldSeats + 1 <= own.heldSeats - 1;
}
