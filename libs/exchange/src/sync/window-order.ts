/**
 * The order in which a member sends what the window of a server allows. The lowest place is to become complete first, so chunks leave place by place, of each
 * place those of all nodes. Small ones leave in groups of places, node by node: chunks of one node that follow each other share a frame, and of a group
 * no place waits for more bytes than one such frame has.
 */
import { MAX_PACKED_BYTES, MAX_PACKED_CHUNKS } from '@paceline/protocol';

/** A node, by the place of the chunk that is to be sent next. */
export interface Sender {
  readonly next: number;
}

/**
 * Each node with each place from its next one on, below `limit`. The caller moves `next` of a node on with each place.
 * @param bytesOf what a node would send at a place
 */
export function* inWindow<Node extends Sender>(
  nodes: readonly Node[],
  limit: number,
  bytesOf: (node: Node, place: number) => number,
): Generator<readonly [node: Node, place: number]> {
  for (let place = Math.min(...nodes.map(({ next }) => next)); place < limit;) {
    let end = place;
    for (let bytes = 0; end < limit && end - place < MAX_PACKED_CHUNKS; end++) {
      for (const node of nodes) if (node.next <= end) bytes += bytesOf(node, end);
      if (end > place && bytes > MAX_PACKED_BYTES) break;
    }
    for (const node of nodes) for (let at = Math.max(place, node.next); at < end; at++) yield [node, at];
    place = end;
  }
}
