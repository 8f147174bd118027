/** What PostgreSQL has against a request, as its caller is told on every surface. */
import { databaseIsAway, poolIsFull, textIsUnstorable, type Fault } from '../fault.js';
import { isDatabaseOutage, isPoolFull, isUnstorableText } from './outage.js';

/** @returns undefined for what is a fault of ours, or did not come from the database */
export function databaseFault(error: unknown): Fault | undefined {
  if (isPoolFull(error)) return poolIsFull();
  if (isDatabaseOutage(error)) return databaseIsAway();
  return isUnstorableText(error) ? textIsUnstorable() : undefined;
}
