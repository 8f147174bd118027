/** Something that happens to a simulated run. */
import type { Cluster } from '../cluster.js';

export interface Fault {
  /** The run ends because of it. */
  readonly endsAttempt?: boolean;
  /** False when there was nothing to do it to. */
  inject(cluster: Cluster): boolean;
}

export const later = (cluster: Cluster, from: number, to: number, label: string, act: () => void): void =>
  void cluster.world.schedule(cluster.world.random.between(from, to), label, act);
