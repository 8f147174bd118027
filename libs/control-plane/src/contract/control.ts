/**
 * The control hash of a run, {prefix}:control:{runId}, from the api to its servers: acknowledged journal numbers, the wanted action,
 * addresses to start with, leads of shards. Servers poll it every 250 ms.
 */
import { z } from 'zod';

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
   * the part that is missing. Who holds a part that was made again claims it anew: its first claim came too late and does not count.
   */
  claims?: string;
  /** JSON of `memberSeatsSchema`: seats that wait for the workers that hold the shards of the run. */
  seats?: string;
  /** A trace of rounds is wanted of every process of the attempt: JSON of `traceRequestSchema`. */
  trace?: string;
  /** Checkpoints that others need, of `pinsText`. */
  pins?: string;
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
        incarnation: z.int().min(0),
        serverId: z.string().max(100),
      }),
    )
    .max(2_048),
  /** Parts that were made again and that nobody has claimed since, with the incarnation whose claim counts. */
  open: z
    .array(z.object({ index: z.int().min(0), role: z.enum(['primary', 'standby']), incarnation: z.int().min(1) }))
    .max(2_048)
    .optional(),
});

/** Seat i is for the worker with the shard of index i; a higher incarnation asks it once more. */
export const memberSeatsSchema = z.object({
  attempt: z.int().min(1),
  seats: z.array(z.object({ seat: z.int().min(0), incarnation: z.int().min(0), stepTaskId: z.uuid() })).max(1_024),
});

export type MemberSeats = z.output<typeof memberSeatsSchema>;

export type Claims = z.output<typeof claimsSchema>;

/** The field of the control hash that names the server that leads a shard. Written when the arbiter has decided; JSON of `leadSchema`. */
export const leadFieldName = (index: number): `lead${number}` => `lead${index}`;

export const leadSchema = z.object({
  attempt: z.int().min(1),
  index: z.int().min(0),
  term: z.int().min(1),
  primary: z.string().max(100),
  standby: z.string().max(100).nullable(),
  /** Index 0, for a coordinator that takes over: highest journal number stored, first round without a ledger row, newest checkpoint. */
  storedSequence: z.int().min(0).optional(),
  ledgerFrom: z.int().min(0).optional(),
  newest: z.int().min(0).optional(),
  /** Index 0: examples of the rounds before `ledgerFrom` that are stored of this attempt, in updates and left out. */
  ledger: z.object({ examples: z.int().min(0), dropped: z.int().min(0) }).optional(),
  /** Index 0: in which term each shard is led, by index. */
  terms: z.array(z.int().min(1)).max(1_024).optional(),
});

export type LeadAnswer = z.output<typeof leadSchema>;

export const ackFieldName = (attempt: number): `ack${number}` => `ack${attempt}`;

/** Journal entries up to a number need not be sent again. */
export interface Acknowledged {
  readonly sequence: number;
  /** They came too late: nobody has stored them. */
  readonly areDropped?: true | undefined;
}

/** @param term of the coordinator whose journal it is */
export const ackValue = ({ sequence, areDropped }: Acknowledged, term: number): string =>
  `${sequence}@${term}${areDropped ? '@dropped' : ''}`;

/** What is acknowledged of the journal of the coordinator of this term; undefined when the field says nothing of it. */
export function acknowledgedOf(value: string | undefined, term: number): Acknowledged | undefined {
  const [n, of, dropped] = value?.split('@') ?? [];
  if (Number(of) !== term || !Number.isSafeInteger(Number(n))) return undefined;
  return dropped === 'dropped' ? { sequence: Number(n), areDropped: true } : { sequence: Number(n) };
}
