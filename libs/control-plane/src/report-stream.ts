/** Reports to the api: appended to one Redis stream, and at most so many are kept. */
import type { Redis } from 'ioredis';
import { REPORT_STREAM, REPORT_STREAM_MAX_ENTRIES } from './contract/redis-names.js';
import type { FleetMember, Report } from './contract/reports.js';
import { withDeadline } from './redis.js';
import { isSigned, reportSignature, type KeyOfReport } from './report-signature.js';

const DEADLINE_MS = 1_500;

/**
 * @throws RedisUnavailableError
 */
export async function sendReport(redis: Redis, report: Report, keyOf?: KeyOfReport): Promise<void> {
  const text = JSON.stringify(report);
  const key = isSigned(report) ? keyOf?.(report) : undefined;
  const signature = key === undefined ? [] : ['signature', reportSignature(key, text)];
  await withDeadline(`report ${report.kind}`, DEADLINE_MS, () =>
    redis.xadd(REPORT_STREAM, 'MAXLEN', '~', REPORT_STREAM_MAX_ENTRIES, '*', 'report', text, ...signature),
  );
}

/** The attempt's part of a control field `attempt:value`; undefined when it speaks of another attempt. */
export function controlFor(field: string | undefined, attempt: number): string | undefined {
  if (!field) return undefined;
  const colon = field.indexOf(':');
  return Number(field.slice(0, colon)) === attempt ? field.slice(colon + 1) : undefined;
}

export interface FleetReporter {
  /** Says goodbye, so that the api does not have to miss heartbeats first. */
  stop(): Promise<void>;
}

/** A heartbeat every second. A missed one is not repeated: the next one is newer. */
export function startHeartbeats(redis: Redis, role: 'worker' | 'server', describe: () => FleetMember, keyOf?: KeyOfReport): FleetReporter {
  const beat = () => sendReport(redis, { kind: 'heartbeat', role, member: describe() }, keyOf).catch(() => undefined); // the api tells who is silent
  const timer = setInterval(beat, 1_000);
  void beat();
  return {
    async stop() {
      clearInterval(timer);
      await sendReport(redis, { kind: 'goodbye', role, id: describe().id }, keyOf).catch(() => undefined); // best effort at shutdown
    },
  };
}
