/** How few and how many workers the api takes for a run; undefined where there is nothing to choose. */
import { shardHostsIn } from '@paceline/spec/shard-holders';

/** Workers that hold shards (libs/spec, LIMITS.servers). */
const MOST_HOLDERS = 64;

export function workerBounds(spec: unknown, replicas: number): { readonly least: number; readonly most: number } | undefined {
  const hosts = shardHostsIn(spec);
  if (hosts === 'worker') return undefined;
  const { standby } = ((spec as { readonly strategy?: unknown }).strategy ?? {}) as { readonly standby?: unknown };
  // A standby is on another worker than its shard.
  const least = hosts === 'workers' && typeof standby === 'number' ? 1 + standby : 1;
  const most = hosts === 'workers' ? Math.min(replicas, MOST_HOLDERS) : replicas;
  return most > least ? { least, most } : undefined;
}
