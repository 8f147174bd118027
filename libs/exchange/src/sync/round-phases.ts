/**
 * The phases of a synchronous round. Every chunk passes them in one direction; a plan is the list of those that it passes. Methods of ShardRound
 * have their names; a tree begins with the round itself.
 *
 *   streaming   layout → reduce ──────────────────────────> apply → publish    each chunk by itself, while others still arrive
 *   two-phase   layout → reduce ──> agree ── DECISION(k) ──> apply → publish   all chunks together
 *
 * REDUCED(k) follows the last chunk. A standby enters at `apply`: its primary has reduced the chunk.
 */
export const PHASES = {
  layout: {
    takes: 'the chunks of the shard and the replicas of the run, the same in all rounds',
    does: 'begin an empty tree over the replicas for every chunk, as soon as the round before is committed',
    gives: 'trees',
  },
  reduce: {
    takes: 'gradient nodes of members, in any order',
    does: 'add them up in the order of the tree; with backup replicas keep the leaves until INCLUDE(k) says which of them count',
    gives: 'the sum of a chunk',
  },
  agree: {
    takes: 'the sums of all chunks',
    does: 'report their scalars to the coordinator, which decides from those of all shards: norm-based optimizers, clipping, non-finite values',
    gives: 'the sums, and the decision that they are applied with',
  },
  apply: {
    takes: 'the sum of a chunk',
    does: 'forward it to the standby, then update generation k into k+1 once; or, where the round is left out, take k over',
    gives: 'the chunk of generation k+1',
  },
  publish: {
    takes: 'the chunk of generation k+1',
    does: 'send it to all members that read what they are sent',
    gives: 'parameters, and REDUCED(k) after the last chunk',
  },
} as const satisfies Record<string, { readonly takes: string; readonly does: string; readonly gives: string }>;

export type Phase = keyof typeof PHASES;

export const ROUND_PLANS = {
  streaming: ['layout', 'reduce', 'apply', 'publish'],
  'two-phase': ['layout', 'reduce', 'agree', 'apply', 'publish'],
} as const satisfies Record<string, readonly Phase[]>;
