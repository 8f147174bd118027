/** Tells the api how the process before this one ended: a process whose native code crashes cannot do that itself. */
import { setTimeout as sleep } from 'node:timers/promises';
import { sendReport } from '@paceline/control-plane';
import type { Logger } from '@paceline/runtime';
import type { Redis } from 'ioredis';

const RETRY_MS = 500;
const DEADLINE_MS = 60_000;

/** @param predecessor id and end, as the supervisor says: `worker-0a1b2c3d ended by SIGSEGV` */
export async function reportPredecessor(redis: Redis, predecessor: string | undefined, log: Logger): Promise<void> {
  const [, workerId, how] = /^(worker-\S+) (.+)$/.exec(predecessor ?? '') ?? [];
  if (workerId === undefined || how === undefined) return;
  for (const until = performance.now() + DEADLINE_MS; ;) {
    try {
      return await sendReport(redis, { kind: 'worker.died', workerId, how });
    } catch (error) {
      // Redis is not connected yet, or away.
      if (performance.now() > until)
        return log.warn({ err: error as Error, workerId, how }, 'the end of the last process could not be reported');
      await sleep(RETRY_MS);
    }
  }
}
