/**
 * Reports from servers and workers to the api, over the stream {prefix}:reports: journal entries, heartbeats, claims. Schema-checked on
 * both sides; a forged or oversized one is refused and counted.
 */
import { z } from 'zod';
import { uuid, serverAddressSchema } from './queues.js';
import { tracedProcessSchema } from './traces.js';
import { trafficSchema, type FailureCause } from '@paceline/protocol';

/* ---------- reports: ps, worker → api ---------- */

/** Numbers by name: the loss and the metrics of a run. */
const measuresSchema = z.record(z.string().min(1).max(200), z.number().nullable());

export type MeasuresRecord = z.output<typeof measuresSchema>;

/** What was measured on the evaluation split with the COMMIT of a round. */
export const validationSchema = z.strictObject({ round: z.int().min(0), examples: z.int().min(0), values: measuresSchema });

export type ValidationRecord = z.output<typeof validationSchema>;

const entryBase = { sequence: z.int().min(1), atMs: z.int() };

/** Numbered entries of a coordinator's journal: published again until the api has acknowledged them (`ackFieldName` in the control hash). */
const journalEntrySchema = z.discriminatedUnion('kind', [
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
      'work-item.reissued',
      'scale.changed',
      'training.stopped-early',
      'rate.reduced',
      'weights.best-missing',
      'standby.ready',
      'standby.lost',
      'standby.promoted',
      'codec.picked',
      'residual.lost',
      'strategy.measured',
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
    /** Only runs that validate: what was measured on the evaluation split after round `round`. */
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
const engineRecordSchema = z.strictObject({
  name: z.string().max(30),
  fingerprint: z.string().max(300).nullable(),
  examplesPerSecond: z.number().min(0).nullable(),
  isChosen: z.boolean(),
});

export type EngineRecord = z.output<typeof engineRecordSchema>;

const engineDeviceSchema = z.strictObject({ name: z.string().max(200), type: z.string().max(30), memoryBytes: z.number().min(0) });

export type EngineDeviceRecord = z.output<typeof engineDeviceSchema>;

const fleetMemberSchema = z.strictObject({
  id: z.string().min(1).max(100),
  host: z.string().max(255),
  pid: z.int().min(1),
  protocolVersion: z.int().min(0),
  version: z.string().max(50),
  startedAtMs: z.int(),
  /** Engine fingerprint of a worker: engine, version, instruction set, threads, flags. Null for servers. */
  fingerprint: z.string().max(300).nullable(),
  /** Workers only: the engines that it can load. */
  engines: z.array(engineRecordSchema).max(8).optional(),
  /** Devices that its engine computes on, GPUs included, as far as the engine reports them. */
  devices: z.array(engineDeviceSchema).max(16).optional(),
  rssBytes: z.int().min(0),
  /** It may use so much: of the machine, or of its container. */
  memoryBytes: z.int().min(1).optional(),
  /** Workers only: identity of the data store that it sees; null without one. */
  dataStore: z.string().max(300).nullable().optional(),
  /** Workers only: it takes placements of runs whose workers hold the shards. Left out: it does. */
  holdsShards: z.boolean().optional(),
  runId: uuid.nullable(),
});

export type FleetMember = z.output<typeof fleetMemberSchema>;

export const reportSchema = z.discriminatedUnion('kind', [
  /** Every 1 s from each worker and server process. Unnumbered: the newest wins. */
  z.strictObject({ kind: z.literal('heartbeat'), role: z.enum(['worker', 'server']), member: fleetMemberSchema }),
  tracedProcessSchema,
  z.strictObject({ kind: z.literal('goodbye'), role: z.enum(['worker', 'server']), id: z.string().max(100) }),
  z.strictObject({
    kind: z.literal('server.claimed'),
    runId: uuid,
    attempt: z.int(),
    role: z.enum(['primary', 'standby']).optional(),
    /** Incarnation of the placement that it took. A claim counts no more once the placement was made again. */
    incarnation: z.int().min(0).optional(),
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
    /** The term that the server is in. */
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
    /** Incarnation of the holder: the failure of one holder says nothing about the next. */
    incarnation: z.int(),
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
    incarnation: z.int(),
    workerId: z.string().max(100),
    reason: z.string().max(300),
  }),
  /** From a coordinator: journal entries, oldest first, at most 200, plus its present state. At least every 1 s. */
  z.strictObject({
    kind: z.literal('journal'),
    runId: uuid,
    attempt: z.int(),
    entries: z.array(journalEntrySchema).max(200),
    /** Term of the coordinator that writes the journal; journals of an older term are refused. */
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
      seats: z
        .array(z.strictObject({ seat: z.int(), incarnation: z.int(), workerId: z.string().max(100), replicas: z.array(z.int()) }))
        .max(1024),
      refusedFrames: z.int().min(0),
      refusedConnections: z.int().min(0),
      waitingFor: z.string().max(300).nullable(),
      /** Bytes on the sockets between workers and servers in this attempt, as the workers have counted them; of the newest workers one by one. */
      traffic: trafficSchema.extend({ workers: z.array(trafficSchema.extend({ workerId: z.string().max(100) })).max(256) }).optional(),
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
  /** SHA-256 of the manifest. */
  sha256: z.string().regex(/^[0-9a-f]{64}$/),
  /** Mean training loss since the checkpoint before; null where there is none. */
  loss: z.number().nullable(),
  reason: z.enum(['cadence', 'best', 'pause', 'final', 'shutdown']),
  /** Whether it is the best generation of all that were validated so far. */
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
  STALLED: { isRecoverable: true, meaning: 'a round made no progress for long, although all its members were connected' },
  NON_FINITE_ROLLBACK: { isRecoverable: true, meaning: 'a gradient had NaN or infinity, and the run goes back to its last checkpoint' },
  NON_FINITE: { isRecoverable: false, meaning: 'a gradient had NaN or infinity' },
  ESTIMATE_LOST: {
    isRecoverable: true,
    meaning: 'with EF21: the estimate of a replica was lost with its worker, and the run goes back to its last checkpoint',
  },
  WORKERS_LEFT: { isRecoverable: true, meaning: 'with EF21: the last worker left, and its estimates with it' },
  POISON_ROUND: { isRecoverable: false, meaning: 'one replica lost its worker repeatedly in one round' },
  INTERNAL: { isRecoverable: true, meaning: 'something broke inside a server' },
} as const satisfies Record<FailureCause, { readonly isRecoverable: boolean; readonly meaning: string }>;
