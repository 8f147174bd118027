/**
 * Jobs in the three queues, schema-checked on both sides: a forged or oversized one is refused and counted.
 *
 *   queue  paceline-placements   api → ps       "claim server `index` of this attempt" (short claim jobs)
 *   queue  paceline-worker-placements   api → worker   the same, of a run whose workers hold the shards: with the shard goes seat `index`
 *   queue  paceline-step-tasks   api → worker   one seat in a run for a slice of 3 s
 */
import { z } from 'zod';
import { codecChoiceSchema } from '@paceline/protocol';
import { type ModelDescription, runSpecSchema, runDataSchema } from '@paceline/spec';

export const uuid = z.uuid();

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

const modelDescriptionSchema: z.ZodType<ModelDescription> = z.strictObject({
  variables: z
    .array(
      z.strictObject({
        path: z.string().min(1).max(300),
        shape,
        section: z.enum(['trainable', 'state']),
        initializer: z.strictObject({ className: z.string().max(100), config: z.record(z.string(), z.unknown()) }),
        rows: z.strictObject({ input: z.int().min(0).max(31) }).optional(),
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
  /** The newest attempt that ended with a result: the run was extended since, and what its validations had decided by then counts no longer. */
  succeededIn: z.int().min(1).optional(),
  /** With `strategy.standby` a shard has two placements; without it there are primaries alone. */
  role: z.enum(['primary', 'standby']).optional(),
  /** Engine fingerprint of the run's earlier attempts, which this one goes on with (`engine: auto`). */
  fingerprint: z.string().max(300).optional(),
  /** With `codec: auto`: what an earlier attempt of the run has picked. */
  codec: codecChoiceSchema.optional(),
  /** Checkpoints of the run that others need (pins.ts); later ones come by the control hash. */
  pins: z.string().max(30_000).optional(),
  /** Token this server shows to the coordinator (role `server`). */
  token: z.string().max(4096),
  /** Only where a worker is to hold the shard: what it checks tokens of this attempt with, and the token for its seat (role `worker`). */
  member: z.strictObject({ tokenKey: z.string().min(32).max(200), seatToken: z.string().max(4096) }).optional(),
});

export type PlacementJob = z.output<typeof placementJobSchema>;

/** A seat: `seat` is 0..R-1 and `incarnation` is which holder of it the job is for, from 0; the coordinator owns seats (docs/protocol.md §19). */
export const stepTaskJobSchema = z.strictObject({
  kind: z.literal('step-task'),
  stepTaskId: uuid,
  runId: uuid,
  attempt: z.int().min(1),
  seat: z.int().min(0),
  incarnation: z.int().min(0),
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

/** Job ids hold no ':' and are no integers; re-creations are numbered because BullMQ ignores the id of a kept finished job. */
export const placementJobId = (
  runId: string,
  attempt: number,
  index: number,
  incarnation: number,
  role: 'primary' | 'standby' = 'primary',
): string => `place-${runId}-a${attempt}-i${index}${role === 'standby' ? '-standby' : ''}-m${incarnation}`;

export const stepTaskJobId = (runId: string, attempt: number, seat: number, incarnation: number): string =>
  `step-${runId}-a${attempt}-s${seat}-n${incarnation}`;

/**
 * Fairness at the end of a slice. A worker yields to a waiting task of another run when that run holds no seat at all,
 * or when handing over one seat would still leave its own run with at least as many as the other.
 */
export function shouldYield(own: { runId: string; heldSeats: number }, waiting: { runId: string; heldSeats: number } | undefined): boolean {
  if (!waiting || waiting.runId === own.runId) return false;
  return waiting.heldSeats === 0 || waiting.heldSeats + 1 <= own.heldSeats - 1;
}
