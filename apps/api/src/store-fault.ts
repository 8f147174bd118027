/** What an object store has against a request, as a fault that says what to do. */
import type { Logger } from '@paceline/runtime';
import { StorageError, type StorageErrorCode } from '@paceline/storage';
import { Fault } from './fault.js';

const RETRY_AFTER_SECONDS = 5;

const SAID: Partial<Record<StorageErrorCode, (store: string) => string>> = {
  DISK_FULL: (store) => `The disk of the ${store} is full. Remove what is not needed any more, or ask the administrator for room.`,
  STORE_UNAVAILABLE: (store) => `The ${store} does not answer. Try again shortly; the log of the api says more.`,
  STORE_FORBIDDEN: (store) => `The api may not read or write its ${store}; the log of the api says more.`,
};

/** @param store which, in words @returns the error itself when it is none that a caller should know of */
export function storeFault(error: unknown, store: string, log: Logger): unknown {
  if (!(error instanceof StorageError)) return error;
  if (error.code === 'NO_SUCH_OBJECT') return new Fault('NOT_FOUND', `The ${store} does not hold that any more.`);
  const said = SAID[error.code];
  if (said === undefined) return error;
  log.error({ err: error }, `the ${store} failed`);
  return new Fault('SERVICE_UNAVAILABLE', said(store), RETRY_AFTER_SECONDS);
}
