/** Something that happens to a simulated run. */
import type { Cluster } from '../cluster.js';

export interface Fault {
  /** The run ends because of it. */
  readonly endsAttempt?: boolean;
  /** False when there was nothing to do it to. */
  inject(cluster: Cluster): boolean;
}
