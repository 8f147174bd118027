/**
 * All-reduce, and its halves reduce-scatter and all-gather: on the way up sums of pieces come to be at their owners, on the way down they go to all.
 * Routes (routes.ts) say who sends to whom; a member needs no more than whom it gets each piece from.
 *
 * Sums run in the order of the reduction tree over all replicas (docs/decisions/003) where the topology can keep it: then their bits depend on the number of
 * replicas alone, not on how many members hold them. Otherwise they run in the order of the routes, which is the same in every run of the same members.
 */
import type { Node } from '@paceline/learning';
import { FrameType, ProtocolError, type FrameHeader } from '@paceline/protocol';
import { bytesOf, checkBytes, unexpected, type Operation, type Send } from './operation.js';
import { PackedPieces, type Packing } from './packing.js';
import { nodesOf, piecesOf, rangeOf, type Piece } from './parts.js';
import { keepsOrder, nodesUnder, routeOf, sendersTo, type Topology } from './routes.js';
import { NO_NODE, RunningSum, TreeSum, type Add, type Finished, type PieceSum } from './sums.js';

export const add: Add = (into, from) => {
  for (let i = 0; i < into.length; i++) into[i] = into[i]! + from[i]!;
};

export interface AllReduceOptions {
  readonly members: number;
  readonly self: number;
  readonly replicas: number;
  /** Elements of the vector. */
  readonly length: number;
  /** Default: direct. */
  readonly topology?: Topology;
  /** Of each member, by names that are equal where the host is. Default: all on one. */
  readonly hosts?: readonly string[];
  /** Each member uses the sums of its own range alone, and not of one that is owned by the first. Matters for the topology tree. */
  readonly isSharded?: boolean;
  /** Sums travel in fewer bytes. Then their bits depend on the members. */
  readonly packing?: Packing;
  /** Allocates the memory for what others send and for what is packed, once. Default: ordinary memory. */
  readonly allocate?: (elements: number) => Float32Array;
  readonly add?: Add;
  readonly pieceLength?: number;
}

/** A member that sends this one something of an owner's pieces. */
interface Sender {
  readonly member: number;
  readonly nodes: readonly Node[];
  /** By node: memory for the owner's whole range. */
  readonly scratch: readonly Float32Array[];
  /** By node: memory for packed pieces. */
  readonly packed: readonly PackedPieces[];
}

/** This member's place on the route of an owner. */
interface Way {
  readonly from: number;
  readonly senders: readonly Sender[];
  /** What it sends to `towards`; for the owner, the root. */
  readonly nodes: readonly Node[];
  /** By node: memory for packed pieces. */
  readonly packed: readonly PackedPieces[];
  readonly towards: number | undefined;
  readonly source: number | undefined;
  readonly receivers: readonly number[];
}

type Halves = 'both' | 'up' | 'down';

/** In place of the node in the key of a packed piece: the sum of all. */
const OF_ALL = -1;

/** What is the same for every all-reduce of vectors of one length: who owns what, the routes, and the memory for what others send. */
export class AllReducePlan {
  readonly pieces: readonly Piece[];
  readonly topology: Topology;
  /** Whether the bits of sums depend on the number of replicas alone. */
  readonly keepsOrder: boolean;
  private readonly hasOrder: boolean;
  private readonly ways: readonly Way[];
  /** Sums that go to all. */
  private readonly packedSums: PackedPieces;
  private sums = 0;
  /** Nodes of this member's own vectors. */
  private readonly own: readonly Node[];

  constructor(readonly options: AllReduceOptions) {
    const { members, self, replicas, length, pieceLength, packing, topology = 'direct', isSharded = false } = options;
    const hosts = options.hosts ?? Array.from({ length: members }, () => 'one');
    const allocate = options.allocate ?? ((elements) => new Float32Array(elements));
    // A tree is for short vectors: one range has fewer messages than many.
    const owners = topology === 'tree' && !isSharded ? 1 : members;
    this.topology = topology;
    this.pieces = piecesOf(length, owners, pieceLength, packing?.length);
    this.hasOrder = keepsOrder(topology, hosts, replicas);
    this.keepsOrder = this.hasOrder && packing === undefined;
    this.own = nodesOf(replicas, members, self);
    this.ways = Array.from({ length: owners }, (_, owner): Way => {
      const route = routeOf(topology, hosts, owner);
      const nodes = (member: number): Node[] => (this.hasOrder ? nodesUnder(route, replicas, member) : [NO_NODE]);
      const range = rangeOf(length, owners, owner);
      const owned = this.pieces.filter((piece) => piece.owner === owner);
      const packed = (): PackedPieces => new PackedPieces(packing, owned, allocate);
      const towards = route.up[self];
      return {
        from: range.offset,
        senders: sendersTo(route.up, self).map((member) => ({
          member,
          nodes: nodes(member),
          scratch: nodes(member).map(() => allocate(range.length)),
          packed: nodes(member).map(packed),
        })),
        nodes: nodes(self),
        packed: towards === undefined ? [] : nodes(self).map(packed),
        towards,
        source: route.down[self],
        receivers: sendersTo(route.down, self),
      };
    });
    this.packedSums = new PackedPieces(packing, this.pieces, allocate);
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
    return new Passing(this, 'both', vectors, result, this.packed());
  }

  /** The first half: `result` has the sum in this member's own range. The rest of it is overwritten. */
  scatter(vectors: readonly Float32Array[], result: Float32Array): Operation {
    return new Passing(this, 'up', vectors, result, this.packed());
  }

  /** The second half: every member's own range of `vector` goes to all, never packed: rounded parameters would stay rounded, as no later step mends that. */
  gather(vector: Float32Array): Operation {
    return new Passing(this, 'down', [], vector, undefined);
  }

  private packed(): Packed | undefined {
    const { packing } = this.options;
    return packing && { packing, sums: this.packedSums, number: ++this.sums };
  }

  /** This member's place on the way of a piece. */
  wayOf({ owner }: Piece): Way {
    return this.ways[owner]!;
  }

  /** Pieces of the owners behind this member first, its own last: no owner is sent to by all at once. */
  inTurn(): Piece[] {
    const { self, members } = this.options;
    const turn = ({ owner }: Piece): number => (owner + members - self - 1) % members;
    return [...this.pieces].sort((a, b) => turn(a) - turn(b) || a.index - b.index);
  }

  /** What is to come of a member, in pieces. */
  expected(member: number, halves: Halves): number {
    return this.pieces.reduce((sum, piece) => {
      const { senders, source } = this.wayOf(piece);
      const up = halves === 'down' ? 0 : (senders.find((sender) => sender.member === member)?.nodes.length ?? 0);
      return sum + up + (halves !== 'up' && source === member ? 1 : 0);
    }, 0);
  }

  /** How one piece is added up, with what this member has of it. */
  sumOf(piece: Piece, result: Float32Array): PieceSum {
    const { replicas, add: adding = add } = this.options;
    const { senders, nodes } = this.wayOf(piece);
    return this.hasOrder ? new TreeSum(replicas, nodes, adding, result) : new RunningSum(senders.length + 1, adding);
  }

  /** Inserts this member's own part. */
  begin(sum: PieceSum, { offset, length }: Piece, vectors: readonly Float32Array[]): Finished[] {
    const parts = vectors.map((vector) => vector.subarray(offset, offset + length));
    if (this.hasOrder) return this.own.flatMap((node, i) => sum.insert(0, node, parts[i]!) ?? []);
    const [first, ...rest] = parts as [Float32Array, ...Float32Array[]];
    for (const part of rest) (this.options.add ?? add)(first, part);
    return [sum.insert(0, NO_NODE, first) ?? []].flat();
  }
}

/** How one operation packs. */
interface Packed {
  readonly packing: Packing;
  readonly sums: PackedPieces;
  /** Number of the operation: random numbers follow from it. */
  readonly number: number;
}

class Passing implements Operation {
  private readonly sums = new Map<number, PieceSum>();
  private readonly missing: number[];
  private send: Send | undefined;
  /** Pieces of the way down that have come before this member had all calls. */
  private readonly early: Piece[] = [];
  /** Sums that others' parts alone have completed before this member had all calls. */
  private readonly completed: [Piece, Finished][] = [];

  constructor(
    private readonly plan: AllReducePlan,
    private readonly halves: Halves,
    private readonly vectors: readonly Float32Array[],
    private readonly result: Float32Array,
    private readonly packed: Packed | undefined,
  ) {
    const { members } = plan.options;
    this.missing = Array.from({ length: members }, (_, member) => plan.expected(member, halves));
    if (halves !== 'down') for (const piece of plan.pieces) this.sums.set(piece.index, plan.sumOf(piece, this.place(piece)));
  }

  start(send: Send): void {
    this.send = send;
    const { plan } = this;
    for (const piece of this.early.splice(0)) this.spread(piece);
    for (const [piece, finished] of this.completed.splice(0)) this.pass(piece, finished);
    for (const piece of plan.inTurn()) {
      if (this.halves !== 'down')
        for (const finished of plan.begin(this.sums.get(piece.index)!, piece, this.vectors)) this.pass(piece, finished);
      else if (plan.wayOf(piece).towards === undefined) this.spread(piece);
    }
  }

  destination(member: number, header: FrameHeader): Uint8Array {
    const piece = this.plan.pieces[header.chunk];
    if (!piece) throw unexpected(`there is no piece ${header.chunk}`);
    const isDown = header.type === FrameType.parameters;
    if (this.halves !== 'both' && isDown !== (this.halves === 'down')) throw unexpected('it is of the other half of an all-reduce');
    if (isDown && this.plan.wayOf(piece).source !== member)
      throw unexpected(`the sum of piece ${header.chunk} does not come from member ${member}`);
    const [values, packed] = isDown ? [this.place(piece), this.packed?.sums.of(piece)] : this.partOf(member, header);
    const bytes = packed ?? bytesOf(values);
    checkBytes(header, this.codecOf(packed), bytes.length);
    return bytes;
  }

  received(member: number, header: FrameHeader): void {
    this.missing[member]!--;
    const piece = this.plan.pieces[header.chunk]!;
    if (header.type === FrameType.parameters) {
      this.unpack(this.packed?.sums.of(piece), this.place(piece));
      return this.send ? this.spread(piece) : void this.early.push(piece);
    }
    const place = this.plan.wayOf(piece).senders.findIndex((sender) => sender.member === member);
    const node = { lo: header.nodeLo, hi: header.nodeHi };
    const [values, packed] = this.partOf(member, header);
    this.unpack(packed, values);
    const finished = this.sums.get(piece.index)!.insert(place + 1, node, values);
    if (!finished) return;
    if (this.send) this.pass(piece, finished);
    else this.completed.push([piece, finished]);
  }

  missingOf(member: number): number {
    return this.missing[member]!;
  }

  private place({ offset, length }: Piece): Float32Array {
    return this.result.subarray(offset, offset + length);
  }

  /** Where a member's sum of a piece lies, and where it comes packed. @throws ProtocolError for one that is not expected */
  private partOf(member: number, { chunk, nodeLo, nodeHi }: FrameHeader): [Float32Array, Uint8Array | undefined] {
    const piece = this.plan.pieces[chunk]!;
    const { from, senders } = this.plan.wayOf(piece);
    const sender = senders.find((each) => each.member === member);
    if (!sender) throw unexpected(`piece ${chunk} does not come from member ${member}`);
    const node = sender.nodes.findIndex(({ lo, hi }) => lo === nodeLo && hi === nodeHi);
    if (node < 0) throw new ProtocolError('BAD_NODE', `[${nodeLo}, ${nodeHi}) is no node of member ${member}`);
    return [sender.scratch[node]!.subarray(piece.offset - from, piece.offset - from + piece.length), sender.packed[node]!.of(piece)];
  }

  private unpack(packed: Uint8Array | undefined, values: Float32Array): void {
    if (packed && !this.packed!.packing.unpack(packed, values))
      throw new ProtocolError('BAD_PAYLOAD', 'the bytes of a packed piece are none that its codec writes');
  }

  /** A sum is complete, and all calls are here: it goes on towards the owner, or to all. */
  private pass(piece: Piece, { node, values }: Finished): void {
    const { towards, nodes, packed } = this.plan.wayOf(piece);
    if (towards !== undefined) {
      const place = nodes.findIndex(({ lo, hi }) => lo === node.lo && hi === node.hi);
      const memory = packed[place]?.of(piece);
      const frame = { type: FrameType.gradient, codec: this.codecOf(memory), chunk: piece.index, nodeLo: node.lo, nodeHi: node.hi };
      return this.send!(towards, frame, this.pack(values, memory, [place, piece.index]));
    }
    const sum = this.place(piece);
    // The sum leaves the memory of what others send: the next operation may receive there before this one is sent to all.
    if (values.byteOffset !== sum.byteOffset || values.buffer !== sum.buffer) sum.set(values);
    if (this.halves !== 'both') return;
    const bytes = this.packed?.sums.of(piece);
    if (bytes && !this.packed!.packing.unpack(this.pack(sum, bytes, [OF_ALL, piece.index]), sum))
      throw new Error('a packing cannot read what it has written');
    this.spread(piece);
  }

  private spread(piece: Piece): void {
    const packed = this.packed?.sums.of(piece);
    const bytes = packed ?? bytesOf(this.result, piece.offset, piece.length); // one view for all, so that its checksum is taken once
    const frame = { type: FrameType.parameters, codec: this.codecOf(packed), chunk: piece.index, nodeLo: 0, nodeHi: 0 };
    for (const member of this.plan.wayOf(piece).receivers) this.send!(member, frame, bytes);
  }

  private pack(values: Float32Array, into: Uint8Array | undefined, key: readonly number[]): Uint8Array {
    if (!into) return bytesOf(values);
    const { packing, number } = this.packed!;
    packing.pack(values, into, [number, this.plan.options.self, ...key]);
    return into;
  }

  private codecOf(packed: Uint8Array | undefined): number {
    return packed ? this.packed!.packing.number : 0;
  }
}
