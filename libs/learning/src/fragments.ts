/**
 * Fragments of the parameters (strategy local-update): with F of them round k exchanges trainable chunk c where c mod F is k mod F, so neighbours are
 * exchanged in different rounds, as are the layers in the strided pattern of Streaming DiLoCo (Douillard et al. 2025). State is exchanged in every round.
 */
import { fragmentsOf, type StrategySpec } from '@paceline/spec';
import type { Layout } from './layout.js';

/** Whether a chunk is exchanged in a round; undefined where all are in each. */
export function exchangeOf(
  spec: { readonly strategy: StrategySpec },
  { chunks }: Pick<Layout, 'chunks'>,
): ((round: number, chunk: number) => boolean) | undefined {
  const fragments = fragmentsOf(spec);
  if (fragments === 1) return undefined;
  return (round, chunk) => chunks[chunk]!.section === 'state' || chunk % fragments === round % fragments;
}
