/**
 * Traces of rounds: what the api asks of the processes of an attempt (a field of the control hash), and what each of them reports. Spans are
 * numbers of libs/exchange/src/trace/spans.ts; nothing of them is kept in PostgreSQL.
 */
import { LIMITS } from '@paceline/spec';
import { z } from 'zod';
import { uuid } from './queues.js';

export const MAX_TRACED_ROUNDS = 50;
/** The main thread and the compute threads. */
const MAX_THREADS = 1 + LIMITS.threads;
/** The most spans of all threads of a process: a report with them is no longer than the api takes. */
export const MAX_TRACED_SPANS = 24_000;
const text = z.string().min(1).max(100);
const whole = z.int().min(0);

/** The field `trace` of the control hash: every process of the attempt begins at the same time by its wall clock. */
export const traceRequestSchema = z.strictObject({
  attempt: z.int().min(1),
  id: uuid,
  rounds: z.int().min(1).max(MAX_TRACED_ROUNDS),
  startAtMs: whole,
});
export type TraceRequest = z.output<typeof traceRequestSchema>;

const recordingSchema = z.strictObject({
  /** `main`, or what else a thread of the process is for. */
  thread: text,
  tracks: z.array(text).max(300),
  /** Name (of `names`), track, start and length in µs, round; the start counts from `startUs`. */
  spans: z.array(z.tuple([whole, whole, z.int(), whole, z.int()])).max(6_000),
  /** Older spans for which there was no room. */
  lost: whole,
  /** Beginning of the recording, by the clock that the processes of one host share, and by the wall clock. */
  startUs: whole,
  wallStartUs: whole,
});

/** One process of a trace. */
export const tracedProcessSchema = z.strictObject({
  kind: z.literal('traced'),
  runId: uuid,
  attempt: z.int().min(1),
  traceId: uuid,
  role: z.enum(['worker', 'server']),
  id: text,
  host: z.string().max(255),
  pid: z.int().min(1),
  names: z.array(text).max(50),
  threads: z.array(recordingSchema).max(MAX_THREADS),
});
export type TracedProcess = z.output<typeof tracedProcessSchema>;
export type TracedThread = TracedProcess['threads'][number];

/** What a control hash asks of an attempt; undefined when it asks nothing. */
export function traceRequestOf(field: string | undefined, attempt: number): TraceRequest | undefined {
  if (field === undefined) return undefined;
  try {
    const parsed = traceRequestSchema.safeParse(JSON.parse(field));
    return parsed.success && parsed.data.attempt === attempt ? parsed.data : undefined;
  } catch {
    return undefined; // not ours to report: the api checks what it writes
  }
}
