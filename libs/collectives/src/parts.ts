/**
 * Who adds up what: pure. A vector of `length` float32 is cut into one range per member (they differ by one element at most), and each
 * range into pieces that are sent as frames. The owner of a range adds up its pieces over all members, and sends the sums to all.
 *
 * With n members of one node each, every member sends and receives 2(n − 1)/n of the vector: (n − 1)/n as gradients of the ranges of others, and as
 * much again as sums of its own range.
 */
import { maximalNodes } from '@paceline/learning';

export interface Node {
  readonly lo: number;
  readonly hi: number;
}

export interface Piece {
  /** Number of the piece, over all members: the chunk number of its frames. */
  readonly index: number;
  readonly owner: number;
  /** In elements. */
  readonly offset: number;
  readonly length: number;
}

/** 1 MiB of float32. */
export const PIECE_LENGTH = 1 << 18;

export function piecesOf(length: number, members: number, pieceLength = PIECE_LENGTH): Piece[] {
  const pieces: Piece[] = [];
  for (let owner = 0; owner < members; owner++) {
    const [from, to] = [Math.floor((owner * length) / members), Math.floor(((owner + 1) * length) / members)];
    for (let offset = from; offset < to; offset += pieceLength)
      pieces.push({ index: pieces.length, owner, offset, length: Math.min(pieceLength, to - offset) });
  }
  return pieces;
}

/** Replicas [from, to) of a member: contiguous, so that most of what it holds is one node of the reduction tree. */
export const replicasOf = (replicas: number, members: number, member: number): { readonly from: number; readonly to: number } => ({
  from: Math.floor((member * replicas) / members),
  to: Math.floor(((member + 1) * replicas) / members),
});

/** The nodes of the reduction tree over all replicas that a member adds up by itself. One, if every member has the same power of two of replicas. */
export function nodesOf(replicas: number, members: number, member: number): Node[] {
  const { from, to } = replicasOf(replicas, members, member);
  return maximalNodes(replicas, new Set(Array.from({ length: to - from }, (_, i) => from + i)));
}
