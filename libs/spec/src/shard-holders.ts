/** Which processes hold the parameters of a run, by the strategy alone. Without zod: the dashboard loads it. */

/** A field of another kind says nothing. */
export interface ShardedStrategy {
  readonly kind: string;
  readonly workers?: number | undefined;
  readonly servers?: number | undefined;
}

/** Workers that hold the run, each with a shard; undefined where servers do. */
export function shardHolders({ kind, workers }: ShardedStrategy): number | undefined {
  if (kind === 'multi-worker-mirrored' || kind === 'model-parallel' || kind === 'local-update') return workers;
  return isHeldAlone({ kind }) ? 1 : undefined;
}

/** Whether the kind puts the run on one worker. */
export const isHeldAlone = ({ kind }: Pick<ShardedStrategy, 'kind'>): boolean =>
  kind === 'mirrored' || kind === 'one-device' || kind === 'tpu';

/** Shards that the parameters are cut into, each on a process of its own. */
export const shardCount = (strategy: ShardedStrategy): number => shardHolders(strategy) ?? strategy.servers!;

/** Which processes hold the shards. */
export const shardHosts = (strategy: ShardedStrategy): 'servers' | 'workers' =>
  shardHolders(strategy) === undefined ? 'servers' : 'workers';

/** The same of a spec that came as JSON, perhaps from a newer server. */
export function shardHostsIn(spec: unknown): 'servers' | 'worker' | 'workers' {
  const strategy = (spec as { readonly strategy?: Partial<ShardedStrategy> } | null | undefined)?.strategy;
  const { kind, workers } = typeof strategy === 'object' && strategy !== null ? strategy : {};
  if (typeof kind !== 'string') return 'servers';
  if (isHeldAlone({ kind })) return 'worker';
  return shardHosts({ kind, workers: typeof workers === 'number' ? workers : undefined });
}
