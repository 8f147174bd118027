/**
 * The leaves of one chunk in a round with backup replicas: kept apart until it is known which replicas count, then added by the
 * rule of the reduction tree, where a node with one child that counts is that child.
 */
import { split, type Node, type ReductionOperations } from './tree.js';

export class LeafReduction<B> {
  private readonly leaves = new Map<number, B>();
  private isOver = false;

  constructor(
    private readonly replicas: number,
    private readonly operations: ReductionOperations<B>,
  ) {}

  /** Takes the gradient of one replica; the first one stays. @throws RangeError when the node is no leaf; the buffer is the caller's then */
  insert({ lo, hi }: Node, buffer: B): 'dropped' | 'kept' {
    if (hi !== lo + 1 || lo < 0 || hi > this.replicas) throw new RangeError(`[${lo}, ${hi}) is no leaf of ${this.replicas} replicas`);
    if (this.covers({ lo, hi })) {
      this.operations.release(buffer);
      return 'dropped';
    }
    this.leaves.set(lo, buffer);
    return 'kept';
  }

  /** The leaf has come, or none is taken any more: `insert` would drop it. */
  covers({ lo }: Node): boolean {
    return this.isOver || this.leaves.has(lo);
  }

  /** The sum over `included`, which is the caller's now; the others are released. @throws Error when one of them has not come */
  takeSum(included: ReadonlySet<number>): B {
    const missing = [...included].filter((replica) => !this.leaves.has(replica));
    if (this.isOver || missing.length > 0 || included.size === 0)
      throw new Error(`takeSum: ${this.isOver ? 'it was taken before' : `replicas ${missing.join(', ') || '(none)'} have not come`}`);
    const sum = this.sum(0, this.replicas, included)!;
    for (const replica of included) this.leaves.delete(replica);
    this.dispose();
    return sum;
  }

  get isEmpty(): boolean {
    return this.leaves.size === 0;
  }

  missingLeaves(): number[] {
    return Array.from({ length: this.replicas }, (_, replica) => replica).filter((replica) => !this.leaves.has(replica));
  }

  dispose(): void {
    for (const buffer of this.leaves.values()) this.operations.release(buffer);
    this.leaves.clear();
    this.isOver = true;
  }

  /** Adds into the left child and releases the right one. */
  private sum(lo: number, hi: number, included: ReadonlySet<number>): B | undefined {
    if (hi - lo === 1) return included.has(lo) ? this.leaves.get(lo) : undefined;
    const middle = split(lo, hi);
    const left = this.sum(lo, middle, included);
    const right = this.sum(middle, hi, included);
    if (left === undefined || right === undefined) return left ?? right;
    this.operations.add(left, right);
    this.operations.release(right);
    return left;
  }
}
