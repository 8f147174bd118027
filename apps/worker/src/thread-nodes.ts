/**
 * What the main thread does where a seat has several compute threads: it shares the replicas of a step out, lends each thread vectors for its part, and has
 * the nodes of several threads added up.
 *
 *   step ──> replicas 0..3 to thread 0, 4..7 to thread 1 ──> nodes [0,4) and [4,8) ──> both threads add, each in its chunks ──> node [0,8)
 *
 * Additions are those of the tree (libs/learning/src/tree.ts), whoever does them, so a seat sends the nodes and the bits that one thread would send. The main
 * thread adds nothing itself.
 *
 *   GATHERING ── the nodes of all its replicas are here ──> SUMMING ── every thread has added its chunks ──> told
 *       round is committed elsewhere ──> let go
 */
import { spans } from '@paceline/exchange';
import { maximalNodes, ReductionTree, replicaRows, split, type Node } from '@paceline/learning';
import type { ToCompute } from './compute-protocol.js';
import type { GradientMemory, LentVectors, PlacedNode, Vector } from './gradient-memory.js';

export interface ThreadNodesOptions {
  readonly threads: number;
  /** Number of replicas in the run. */
  readonly replicas: number;
  readonly memory: Pick<GradientMemory, 'alloc' | 'free'>;
  post(thread: number, message: ToCompute): void;
  /** A node of the seat is there. */
  node(round: number, node: PlacedNode): void;
}

interface Gathering extends Node {
  readonly round: number;
  readonly nodes: PlacedNode[];
  /** Threads that still add; 0 while nodes are missing. */
  adding: number;
}

export class ThreadNodes {
  private readonly gathering = new Map<number, Gathering>();
  private sums = 0;

  constructor(private readonly options: ThreadNodesOptions) {}

  /** @param replicas ascending @throws ArenaFullError */
  step(round: number, replicas: readonly number[]): void {
    const { threads, post, memory } = this.options;
    for (const node of maximalNodes(this.options.replicas, new Set(replicas)))
      this.gathering.set(++this.sums, { ...node, round, nodes: [], adding: 0 });
    for (let thread = 0; thread < threads; thread++) {
      const { from, to } = replicaRows(replicas.length, threads, thread); // as rows are shared out among replicas
      if (from === to) continue;
      const own = replicas.slice(from, to);
      const lent: Vector[] = [];
      for (let needs = vectorsFor(this.options.replicas, own); needs > 0; needs--) lent.push(memory.alloc());
      post(thread, { kind: 'step', round, replicas: own, free: [], lent });
    }
  }

  /** A thread has computed a node. */
  came(round: number, node: PlacedNode): void {
    const found = [...this.gathering].find(([, { round: of, lo, hi }]) => of === round && lo <= node.lo && node.hi <= hi);
    if (!found) return this.options.memory.free(node.vector); // the round is over
    const [sum, gathering] = found;
    gathering.nodes.push(node);
    if (gathering.nodes.reduce((count, { lo, hi }) => count + hi - lo, 0) < gathering.hi - gathering.lo) return;
    if (gathering.nodes.length === 1) return this.tell(sum, gathering);
    const { threads, post } = this.options;
    gathering.nodes.sort((a, b) => a.lo - b.lo);
    gathering.adding = threads;
    for (let thread = 0; thread < threads; thread++) post(thread, { kind: 'sum', sum, nodes: gathering.nodes });
  }

  /** A thread has added its chunks of a sum. */
  added(sum: number): void {
    const gathering = this.gathering.get(sum);
    if (!gathering || --gathering.adding > 0) return;
    for (const { vector } of gathering.nodes.splice(1)) this.options.memory.free(vector);
    this.tell(sum, gathering);
  }

  /** What is added up at the moment is told all the same: nobody else may have its memory before. */
  committed(round: number): void {
    for (const [sum, gathering] of this.gathering) {
      if (gathering.round > round || gathering.adding > 0) continue;
      this.gathering.delete(sum);
      for (const { vector } of gathering.nodes) this.options.memory.free(vector);
    }
  }

  private tell(sum: number, { round, lo, hi, nodes }: Gathering): void {
    this.gathering.delete(sum);
    this.options.node(round, { lo, hi, vector: nodes[0]!.vector });
  }
}

/**
 * What one thread adds: nodes that make up a node, in some chunks, in the order in which one thread would have added them.
 * @param nodes ascending; the sum comes to lie where the first of them is
 */
export function addUp(nodes: readonly PlacedNode[], chunks: readonly number[], gradients: Pick<LentVectors, 'addChunk'>): void {
  const sinceMs = spans.now();
  const [first, end] = [nodes[0]!.lo, nodes.at(-1)!.hi];
  const tree = new ReductionTree<Vector>(end - first, {
    add: (into, from) => chunks.forEach((chunk) => gradients.addChunk(into, from, chunk)),
    release: () => undefined,
  });
  for (const { lo, hi, vector } of nodes) tree.insert({ lo: lo - first, hi: hi - first }, vector);
  spans.add('add', sinceMs);
}

/** Vectors that a thread has at once in the step of these replicas: of the node in progress, and of those that are finished. */
export function vectorsFor(replicas: number, own: readonly number[]): number {
  const nodes = maximalNodes(replicas, new Set(own));
  return Math.max(...nodes.map(({ lo, hi }, finished) => finished + vectorsOfNode(hi - lo)));
}

/** A left child waits while its right sibling is computed. */
function vectorsOfNode(size: number): number {
  if (size === 1) return 1;
  const left = split(0, size);
  return Math.max(vectorsOfNode(left), 1 + vectorsOfNode(size - left));
}
