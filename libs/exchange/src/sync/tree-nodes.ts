/**
 * What the trees of a shard hold of the round, as WELCOME says it: a member that comes back does not send that again. It is said of replicas, and not
 * of nodes: two siblings are added at once, so a tree holds a node when it holds all of its replicas.
 */
import type { MessageOf } from '@paceline/protocol';
import { bitsOf } from '../transfer/bitmap.js';
import type { ChunkReduction } from './shard-table.js';

type TreeNodes = NonNullable<MessageOf<'welcome'>['nodes']>;

/** Characters of all bitmaps together: a quarter of what a message may have. What is left out is sent again. */
const MOST_CHARACTERS = 1 << 18;

/** @param trees of the chunks of a shard, in their order; none of a chunk that is done */
export function nodesIn(trees: readonly (Pick<ChunkReduction, 'missingLeaves' | 'isEmpty'> | undefined)[], replicas: number): TreeNodes {
  const bitmaps: Uint8Array[] = [];
  const isMissing = new Uint8Array(replicas);
  for (const [place, tree] of trees.entries()) {
    // When a run begins all trees are empty, and all its workers are told of them.
    if (!tree || tree.isEmpty) continue;
    const missing = tree.missingLeaves();
    isMissing.fill(0);
    for (const replica of missing) isMissing[replica] = 1;
    for (let replica = 0; replica < replicas; replica++)
      if (!isMissing[replica]) (bitmaps[replica] ??= new Uint8Array((trees.length + 7) >> 3))[place >> 3]! |= 1 << (place & 7);
  }
  const nodes: { lo: number; hi: number; chunks: string }[] = [];
  let characters = 0;
  for (let replica = 0; replica < bitmaps.length; replica++) {
    const bitmap = bitmaps[replica];
    if (!bitmap) continue;
    const chunks = Buffer.from(bitmap).toString('base64');
    const last = nodes.at(-1);
    if (last?.hi === replica && last.chunks === chunks) {
      last.hi++;
      continue;
    }
    characters += chunks.length;
    if (characters > MOST_CHARACTERS) break;
    nodes.push({ lo: replica, hi: replica + 1, chunks });
  }
  return nodes;
}

interface Told {
  readonly round: number;
  readonly nodes: readonly { readonly lo: number; readonly hi: number; readonly isHeld: (place: number) => boolean }[];
}

/** What a member was told, by server. */
export class HeldByTrees {
  private readonly told: (Told | undefined)[] = [];

  welcome(server: number, round: number, nodes: TreeNodes = []): void {
    this.told[server] = { round, nodes: nodes.map(({ lo, hi, chunks }) => ({ lo, hi, isHeld: bitsOf(chunks) })) };
  }

  /** The tree of the chunk at this place would drop the node. */
  has(server: number, round: number, place: number, node: { readonly lo: number; readonly hi: number }): boolean {
    const told = this.told[server];
    if (told?.round !== round) return false;
    let { lo } = node;
    for (const held of told.nodes) if (held.lo <= lo && lo < held.hi && held.isHeld(place)) lo = held.hi;
    return lo >= node.hi;
  }
}
