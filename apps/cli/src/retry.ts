/** How long a command goes on trying when nobody listens at the address of the api. */
import { join } from 'node:path';
import type { RetryOptions } from '@paceline/client';
import { hostElsewhere, runningHolder } from '@paceline/runtime/process-lock';
import { userDirectories } from '@paceline/runtime/user-directories';
import { UserError } from '@paceline/runtime/user-error';
import type { Configuration } from './configuration.js';
import type { Terminal } from './terminal/terminal.js';

/** An api that was killed is back after 4 s on two cores, and after 9 s on two that are busy. */
const DEFAULT_SECONDS = 15;
const MAX_SECONDS = 3600;

/** @throws UserError FLAG_INVALID for a PACELINE_RETRY_SECONDS that is no number of seconds */
export function retryOptions({ url, urlFrom }: Configuration & { readonly url: string }, terminal: Terminal): RetryOptions {
  const { env } = terminal;
  const seconds = retrySeconds(env['PACELINE_RETRY_SECONDS']);
  // The local stack that this address was written for does not run, so nobody is about to listen.
  if (seconds === undefined && urlFrom !== 'PACELINE_URL' && isLoopback(url) && !isStackRunning(env)) return { forMs: 0 };
  const forSeconds = seconds ?? DEFAULT_SECONDS;
  return {
    forMs: forSeconds * 1000,
    onWait: () => {
      if (terminal.stderr.isTTY) terminal.note(terminal.style('dim', `${url} does not answer; trying again for ${forSeconds} s`, 'stderr'));
    },
  };
}

function retrySeconds(text: string | undefined): number | undefined {
  if (text === undefined || text === '') return undefined;
  const seconds = /^\d{1,4}$/.test(text) ? Number(text) : Number.NaN;
  if (seconds <= MAX_SECONDS) return seconds;
  throw new UserError(
    'FLAG_INVALID',
    `PACELINE_RETRY_SECONDS ${JSON.stringify(text.slice(0, 40))} is not a whole number from 0 to ${MAX_SECONDS}.`,
    {
      exit: 'configuration',
    },
  );
}

export const isLoopback = (url: string): boolean => URL.canParse(url) && /^(127\.|localhost$|\[::1\]$)/.test(new URL(url).hostname);

function isStackRunning(env: NodeJS.ProcessEnv): boolean {
  const holder = runningHolder(join(userDirectories(env).data, 'up.pid.json'));
  return holder !== undefined && hostElsewhere(holder) === undefined;
}
