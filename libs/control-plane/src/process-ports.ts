/**
 * What servers and workers need of the control plane, as two ports: reports go up and the control hash is read (`ControlPlane`), jobs
 * are taken by hand (`JobQueue`). Over Redis here and in `manual-queue.ts`; the simulator has both in memory.
 */
import type { Redis } from 'ioredis';
import { controlKey } from './contract/redis-names.js';
import type { ControlFields } from './contract/control.js';
import type { Report } from './contract/reports.js';
import { withDeadline } from './redis.js';
import type { KeyOfReport } from './report-signature.js';
import { sendReport } from './report-stream.js';

const DEADLINE_MS = 1_500;

/** Fields of which there is one per shard, or per attempt. */
export type NumberedField = `lead${number}` | `ack${number}`;

export interface ControlPlane {
  /**
   * Fields of the control hash of a run, as they are: what speaks of another attempt is the reader's to leave out.
   * @param also fields that are wanted besides those that everybody reads
   * @throws RedisUnavailableError
   */
  readControl(runId: string, also?: readonly NumberedField[]): Promise<ControlFields>;
  /** Appended to the report stream; it may be lost on its way. @throws RedisUnavailableError */
  sendReport(report: Report): Promise<void>;
}

/** Jobs of one queue, each with a lock that is kept by hand. */
export interface JobQueue<T> {
  /** The next job, or undefined when none waits. @throws RedisUnavailableError */
  take(): Promise<HeldJob<T> | undefined>;
  /** The payload of the job that waits first, without taking it. @throws RedisUnavailableError */
  peek(): Promise<T | undefined>;
  close(): Promise<void>;
}

export interface HeldJob<T> {
  readonly id: string;
  readonly payload: T;
  /** Extends the lock; false when it has gone. */
  keep(): Promise<boolean>;
  /** False when the job had gone. */
  complete(result: string): Promise<boolean>;
  /** It waits again, first of all, for somebody else; false when it had gone. */
  giveBack(): Promise<boolean>;
}

/** @param keyOf what reports of servers are signed with; left out where none is sent */
export function redisControlPlane(redis: Redis, keyOf?: KeyOfReport): ControlPlane {
  return {
    readControl: (runId, also = []) => readControl(redis, runId, also),
    sendReport: (report) => sendReport(redis, report, keyOf),
  };
}

async function readControl(redis: Redis, runId: string, also: readonly NumberedField[]): Promise<ControlFields> {
  const names = ['action', 'start', 'workers', 'claims', 'seats', 'trace', ...also];
  const values = await withDeadline('control of a run', DEADLINE_MS, () => redis.hmget(controlKey(runId), ...names));
  return Object.fromEntries(names.flatMap((name, i) => (values[i] ? [[name, values[i]]] : [])));
}
