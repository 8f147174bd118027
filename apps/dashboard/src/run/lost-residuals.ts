/** What the codec of a run had kept of replicas and is gone. */
import { count } from '../text/format.js';
import type { RunDetails } from './run-details.js';

type Lost = Pick<NonNullable<RunDetails['lostResiduals']>, 'replicas' | 'causes'>;

/** `4 residuals of replicas (moved, gap)`. */
export const lostText = ({ replicas, causes }: Lost): string =>
  `${replicas === 1 ? '1 residual of a replica' : `${count(replicas)} residuals of replicas`} (${causes.join(', ')})`;
