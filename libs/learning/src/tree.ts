/**
 * The reduction tree (docs/protocol.md §8): gradients of R replicas are added in one fixed order, whoever adds them.
 *
 * Node [lo, hi) splits at lo + the largest power of two below its size; the root is [0, R), a leaf is one replica. For R = 5:
 *
 *                [0,5)
 *            [0,4)   [4,5)
 *        [0,2)   [2,4)
 *      [0] [1]  [2] [3]
 *
 * The value of a node is value(left) + value(right), one float32 addition per element, so the sum of a node has the same
 * bits whether a worker that holds all of its leaves sent it, or a server added it from parts.
 *
 * What has come to a server is a set of nodes, of which no two overlap and no two are siblings: siblings are added at once.
 *
 *   | node that comes                        | what the tree does                                             |
 *   |----------------------------------------|----------------------------------------------------------------|
 *   | inside a node that has come            | drops it                                                       |
 *   | around nodes that have come            | replaces them: it holds their sum and more                     |
 *   | its sibling has come                   | adds the right one to the left one; the parent has come; again |
 *   | none of these                          | keeps it                                                       |
 */

/** Replicas lo ≤ r < hi. */
export interface Node {
  readonly lo: number;
  readonly hi: number;
}

/**
 * Where the node [lo, hi) of at least two replicas splits. It depends on the size alone, so the subtree of a node is the tree
 * over hi − lo replicas, shifted: a worker adds up a node with a ReductionTree of that size.
 */
export function split(lo: number, hi: number): number {
  const size = hi - lo;
  if (size < 2) throw new RangeError(`node [${lo}, ${hi}) does not split`);
  return lo + 2 ** (31 - Math.clz32(size - 1));
}

/** Whether `inner` lies inside `outer` (or is it). */
export function nodeContains(outer: Node, inner: Node): boolean {
  return outer.lo <= inner.lo && inner.hi <= outer.hi;
}

/** Whether [lo, hi) is a node of the tree over `replicas` replicas. */
export function validNode(replicas: number, lo: number, hi: number): boolean {
  if (!Number.isSafeInteger(lo) || !Number.isSafeInteger(hi) || lo < 0 || lo >= hi || hi > replicas) return false;
  let node: Node = { lo: 0, hi: replicas };
  while (node.lo !== lo || node.hi !== hi) {
    if (node.hi - node.lo < 2) return false;
    const middle = split(node.lo, node.hi);
    if (hi <= middle) node = { lo: node.lo, hi: middle };
    else if (lo >= middle) node = { lo: middle, hi: node.hi };
    else return false;
  }
  return true;
}

/** The largest nodes all of whose replicas are in `held`, in order of `lo`: what a worker adds up and sends. */
export function maximalNodes(replicas: number, held: ReadonlySet<number>): Node[] {
  const before = new Int32Array(replicas + 1);
  for (let r = 0; r < replicas; r++) before[r + 1] = before[r]! + (held.has(r) ? 1 : 0);
  const nodes: Node[] = [];
  const visit = (lo: number, hi: number): void => {
    const count = before[hi]! - before[lo]!;
    if (count === 0) return;
    if (count === hi - lo) return void nodes.push({ lo, hi });
    const middle = split(lo, hi);
    visit(lo, middle);
    visit(middle, hi);
  };
  if (replicas > 0) visit(0, replicas);
  return nodes;
}

export interface ReductionOperations<B> {
  /** into += from, elementwise in float32. `from` is not used afterwards; the tree releases it. */
  add(into: B, from: B): void;
  release(buffer: B): void;
}

interface Arrived<B> extends Node {
  readonly buffer: B;
}

/** The tree of one chunk in one round at a server. It owns every buffer that `insert` took, until `takeRoot`. */
export class ReductionTree<B> {
  /** Nodes that have come, by `lo`; they do not overlap. */
  private readonly arrived = new Map<number, Arrived<B>>();
  private state: 'gathering' | 'complete' | 'over' = 'gathering';

  constructor(
    private readonly replicas: number,
    private readonly operations: ReductionOperations<B>,
  ) {
    if (!Number.isSafeInteger(replicas) || replicas < 1) throw new RangeError(`a tree over ${replicas} replicas`);
  }

  /**
   * Takes the sum of a node. The buffer belongs to the tree from here on; when the node is dropped it is released at once.
   * `complete` means that all replicas are added up: call `takeRoot`.
   * @throws RangeError when this is no node of the tree; the buffer then stays the caller's
   */
  insert(node: Node, buffer: B): 'dropped' | 'kept' | 'complete' {
    if (!validNode(this.replicas, node.lo, node.hi))
      throw new RangeError(`[${node.lo}, ${node.hi}) is no node over ${this.replicas} replicas`);
    if (this.covers(node)) return this.drop(buffer);
    const ancestors: Node[] = [];
    for (let at: Node = { lo: 0, hi: this.replicas }; at.lo !== node.lo || at.hi !== node.hi; at = childTowards(at, node))
      ancestors.push(at);
    for (let lo = node.lo; lo < node.hi; lo++) {
      const inside = this.arrived.get(lo);
      if (!inside) continue;
      this.arrived.delete(lo);
      this.operations.release(inside.buffer);
    }
    this.arrived.set(node.lo, { lo: node.lo, hi: node.hi, buffer });
    for (let parent = ancestors.pop(); parent && this.merge(parent); parent = ancestors.pop());
    if (!this.holds({ lo: 0, hi: this.replicas })) return 'kept';
    this.state = 'complete';
    return 'complete';
  }

  /** The sum over all replicas; it is the caller's now. @throws Error when the tree is not complete */
  takeRoot(): B {
    const root = this.arrived.get(0);
    if (this.state !== 'complete' || !root) throw new Error('takeRoot: the reduction is not complete, or was taken before');
    this.arrived.clear();
    this.state = 'over';
    return root.buffer;
  }

  /** The sum of a node, for who adds up a part of the tree; it is the caller's now. Undefined as long as not all of its replicas have come. */
  take({ lo, hi }: Node): B | undefined {
    const found = this.arrived.get(lo);
    if (found?.hi !== hi) return undefined;
    this.arrived.delete(lo);
    return found.buffer;
  }

  /** Whether a valid node lies inside one that has come, or is one: `insert` would drop it. */
  covers(node: Node): boolean {
    if (this.state !== 'gathering') return true;
    for (let at: Node = { lo: 0, hi: this.replicas }; ; at = childTowards(at, node)) {
      if (this.holds(at)) return true;
      if (at.lo === node.lo && at.hi === node.hi) return false;
    }
  }

  /** Nothing has come. */
  get isEmpty(): boolean {
    return this.state === 'gathering' && this.arrived.size === 0;
  }

  /** Replicas that have not come, ascending. */
  missingLeaves(): number[] {
    const missing: number[] = [];
    if (this.state !== 'gathering') return missing;
    for (let r = 0; r < this.replicas;) {
      const node = this.arrived.get(r);
      if (node) r = node.hi;
      else missing.push(r++);
    }
    return missing;
  }

  /** Releases what the tree holds; what comes afterwards is dropped. */
  dispose(): void {
    for (const { buffer } of this.arrived.values()) this.operations.release(buffer);
    this.arrived.clear();
    this.state = 'over';
  }

  private holds(node: Node): boolean {
    return this.arrived.get(node.lo)?.hi === node.hi;
  }

  private drop(buffer: B): 'dropped' {
    this.operations.release(buffer);
    return 'dropped';
  }

  /** Adds the children of `parent` when both have come. */
  private merge(parent: Node): boolean {
    const middle = split(parent.lo, parent.hi);
    const left = this.arrived.get(parent.lo);
    const right = this.arrived.get(middle);
    if (left?.hi !== middle || right?.hi !== parent.hi) return false;
    this.operations.add(left.buffer, right.buffer);
    this.arrived.delete(middle);
    this.operations.release(right.buffer);
    this.arrived.set(parent.lo, { ...parent, buffer: left.buffer });
    return true;
  }
}

function childTowards(node: Node, target: Node): Node {
  const middle = split(node.lo, node.hi);
  return target.hi <= middle ? { lo: node.lo, hi: middle } : { lo: middle, hi: node.hi };
}
