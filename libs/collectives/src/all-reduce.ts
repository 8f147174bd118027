/**
 * All-reduce by direct exchange: every member sends each owner what it has of the owner's pieces, the owner adds them up and sends the sums to all.
 * It adds in the order of the reduction tree over all replicas (docs/decisions/003), so the bits of the sum depend on the number of replicas
 * alone, not on how many members hold them.
 */
import { ReductionTree } from '@paceline/learning';
import { FrameType, ProtocolError, type FrameHeader } from '@paceline/protocol';
import { bytesOf, checkLength, unexpected, type Operation, type Send } from './operation.js';
import { nodesOf, piecesOf, type Node, type Piece } from './parts.js';

/** into += from, elementwise in float32. */
export type Add = (into: Float32Array, from: Float32Array) => void;

export const add: Add = (into, from) => {
  for (let i = 0; i < into.length; i++) into[i] = into[i]! + from[i]!;
};

export interface AllReduceOptions {
  readonly members: number;
  readonly self: number;
  readonly replicas: number;
  /** Elements of the vector. */
  readonly length: number;
  /** Allocates the memory for what others send, once. Default: ordinary memory. */
  readonly allocate?: (elements: number) => Float32Array;
  readonly add?: Add;
  readonly pieceLength?: number;
}

interface Gathered {
  readonly tree: ReductionTree<Float32Array>;
  readonly piece: Piece;
}

/** What is the same for every all-reduce of vectors of one length: who owns what, and the memory for what others send. */
export class AllReducePlan {
  readonly pieces: readonly Piece[];
  /** By member. */
  readonly nodes: readonly (readonly Node[])[];
  private readonly own: readonly Piece[];
  private readonly from: number;
  /** By member and node: what it sends of this member's range. */
  private readonly scratch: readonly (readonly Float32Array[])[];

  constructor(readonly options: AllReduceOptions) {
    const { members, self, replicas, length, pieceLength } = options;
    const allocate = options.allocate ?? ((elements) => new Float32Array(elements));
    this.pieces = piecesOf(length, members, pieceLength);
    this.nodes = Array.from({ length: members }, (_, member) => nodesOf(replicas, members, member));
    this.own = this.pieces.filter(({ owner }) => owner === self);
    this.from = this.own[0]?.offset ?? 0;
    const elements = this.own.reduce((sum, { length: each }) => sum + each, 0);
    this.scratch = this.nodes.map((nodes, member) => (member === self ? [] : nodes.map(() => allocate(elements))));
  }

  /** Elements that `allocate` is asked for altogether. */
  static scratchLength(options: AllReduceOptions): number {
    let elements = 0;
    const { allocate: _, ...rest } = options;
    void new AllReducePlan({ ...rest, allocate: (count) => ((elements += count), new Float32Array(0)) });
    return elements;
  }

  /**
   * One all-reduce.
   * @param vectors the sums of this member's nodes, in their order; they are overwritten
   * @param result gets the sum; it may be one of the vectors
   */
  reduce(vectors: readonly Float32Array[], result: Float32Array): Operation {
    return new AllReduce(this, vectors, result, this.own);
  }

  /** What a member sends of one of this member's pieces. */
  received(member: number, node: number, { offset, length }: Piece): Float32Array {
    return this.scratch[member]![node]!.subarray(offset - this.from, offset - this.from + length);
  }
}

class AllReduce implements Operation {
  private readonly trees = new Map<number, Gathered>();
  private readonly missing: number[];
  private send: Send | undefined;
  /** Pieces whose sum was complete before this member had all calls. */
  private readonly early: Piece[] = [];

  constructor(
    private readonly plan: AllReducePlan,
    private readonly vectors: readonly Float32Array[],
    private readonly result: Float32Array,
    own: readonly Piece[],
  ) {
    const { members, self, replicas } = plan.options;
    const adding = plan.options.add ?? add;
    for (const piece of own)
      this.trees.set(piece.index, { piece, tree: new ReductionTree(replicas, { add: adding, release: () => undefined }) });
    this.missing = Array.from({ length: members }, (_, member) =>
      member === self ? 0 : own.length * plan.nodes[member]!.length + plan.pieces.filter(({ owner }) => owner === member).length,
    );
  }

  start(send: Send): void {
    this.send = send;
    const { plan, vectors } = this;
    const { members, self } = plan.options;
    for (const piece of this.early.splice(0)) this.spread(piece);
    // The pieces of all owners in turn, beginning behind this member: no owner is sent to by all at once.
    for (let turn = 1; turn < members; turn++) {
      const owner = (self + turn) % members;
      for (const { index, offset, length } of plan.pieces.filter((piece) => piece.owner === owner))
        plan.nodes[self]!.forEach(({ lo, hi }, i) =>
          send(owner, { type: FrameType.gradient, chunk: index, nodeLo: lo, nodeHi: hi }, bytesOf(vectors[i]!, offset, length)),
        );
    }
    for (const { piece } of this.trees.values())
      plan.nodes[self]!.forEach((node, i) => this.insert(piece, node, vectors[i]!.subarray(piece.offset, piece.offset + piece.length)));
  }

  destination(member: number, header: FrameHeader): Uint8Array {
    const piece = this.plan.pieces[header.chunk];
    if (header.type === FrameType.parameters) {
      if (piece?.owner !== member) throw unexpected(`piece ${header.chunk} is not of member ${member}`);
      checkLength(header, piece.length);
      return bytesOf(this.result, piece.offset, piece.length);
    }
    if (piece?.owner !== this.plan.options.self) throw unexpected(`piece ${header.chunk} is not of this member`);
    checkLength(header, piece.length);
    return bytesOf(this.plan.received(member, this.nodeOf(member, header), piece));
  }

  received(member: number, header: FrameHeader): void {
    this.missing[member]!--;
    if (header.type === FrameType.parameters) return;
    const { piece } = this.trees.get(header.chunk)!;
    const node = this.nodeOf(member, header);
    this.insert(piece, this.plan.nodes[member]![node]!, this.plan.received(member, node, piece));
  }

  missingOf(member: number): number {
    return this.missing[member]!;
  }

  private nodeOf(member: number, { nodeLo, nodeHi }: FrameHeader): number {
    const node = this.plan.nodes[member]!.findIndex(({ lo, hi }) => lo === nodeLo && hi === nodeHi);
    if (node < 0) throw new ProtocolError('BAD_NODE', `[${nodeLo}, ${nodeHi}) is no node of member ${member}`);
    return node;
  }

  private insert(piece: Piece, node: Node, values: Float32Array): void {
    const { tree } = this.trees.get(piece.index)!;
    if (tree.insert(node, values) !== 'complete') return;
    const root = tree.takeRoot();
    const sum = this.result.subarray(piece.offset, piece.offset + piece.length);
    // The sum leaves the memory of what others send: the next operation may receive there before this one is sent to all.
    if (root.byteOffset !== sum.byteOffset || root.buffer !== sum.buffer) sum.set(root);
    if (this.send) this.spread(piece);
    else this.early.push(piece);
  }

  private spread({ index, offset, length }: Piece): void {
    const { members, self } = this.plan.options;
    const bytes = bytesOf(this.result, offset, length); // one view for all, so that its checksum is taken once
    for (let turn = 1; turn < members; turn++)
      this.send!((self + turn) % members, { type: FrameType.parameters, chunk: index, nodeLo: 0, nodeHi: 0 }, bytes);
  }
}
