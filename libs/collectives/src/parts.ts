/**
 * The owners of the parts of a vector; pure. A vector of `length` float32 is cut into one range per owner (they differ by one element at most), and each
 * range into pieces that are sent as frames. The sum of a range comes to be at its owner (routes.ts says on which way).
 */
import { maximalNodes, type Node } from '@paceline/learning';

/** In elements. */
export interface Range {
  readonly offset: number;
  readonly length: number;
}

export interface Piece extends Range {
  /** Number of the piece, over all owners: the chunk number of its frames. */
  readonly index: number;
  readonly owner: number;
}

/** 4 MiB of float32, the most that a frame takes: with 1 MiB an all-reduce of 100 MB took a third more of processor time. */
export const PIECE_LENGTH = 1 << 20;

/** The range of an owner. */
export function rangeOf(length: number, owners: number, owner: number): Range {
  const [from, to] = [Math.floor((owner * length) / owners), Math.floor(((owner + 1) * length) / owners)];
  return { offset: from, length: to - from };
}

/** @param cut no piece has elements from both sides of it */
export function piecesOf(length: number, owners: number, pieceLength = PIECE_LENGTH, cut = length): Piece[] {
  const pieces: Piece[] = [];
  for (let owner = 0; owner < owners; owner++) {
    const range = rangeOf(length, owners, owner);
    const end = range.offset + range.length;
    for (let { offset } = range; offset < end;) {
      const to = Math.min(offset + pieceLength, end, offset < cut ? cut : end);
      pieces.push({ index: pieces.length, owner, offset, length: to - offset });
      offset = to;
    }
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
