/**
 * What the api asks PostgreSQL before it listens. It has answered already, so one that is slow now, or starts again, is waited for: an api that ended
 * here would make whoever waits for the whole stack give up.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { UserError, type Logger } from '@paceline/runtime';
import { isDatabaseOutage } from './outage.js';

const ANSWERS_WITHIN_MS = 60_000;
const PAUSE_MS = 1_000;

export interface Waiting {
  /** Host and port, for people. */
  readonly place: string;
  readonly log: Pick<Logger, 'warn'>;
  readonly nowMs?: () => number;
  readonly sleep?: (ms: number) => Promise<unknown>;
}

/**
 * @param work may be done again from its beginning
 * @returns what `work` does
 * @throws UserError POSTGRES_UNREACHABLE after 60 s; what `work` throws for another reason, at once
 */
export async function whenItAnswers<T>(
  what: string,
  work: () => Promise<T>,
  { place, log, nowMs = Date.now, sleep = pause }: Waiting,
): Promise<T> {
  const fromMs = nowMs();
  for (;;) {
    try {
      return await work();
    } catch (cause) {
      if (cause instanceof UserError || !isDatabaseOutage(cause)) throw cause;
      const { message } = cause as Error;
      if (nowMs() - fromMs + PAUSE_MS > ANSWERS_WITHIN_MS) {
        throw new UserError(
          'POSTGRES_UNREACHABLE',
          `PostgreSQL at ${place} did not do this within ${ANSWERS_WITHIN_MS / 1000} s: ${what}. ${message}`,
          {
            hint: 'See whether it is overloaded or starts again and again, then start the api again.',
            exit: 'unavailable',
            cause,
          },
        );
      }
      log.warn({ err: message }, `PostgreSQL does not answer; trying again: ${what}`);
      await sleep(PAUSE_MS);
    }
  }
}
