/** How a member adds up what it has and gets of one piece: in the order of the reduction tree, or of the way that the sums take. */
import { ReductionTree, type Node } from '@paceline/learning';

/** into += from, elementwise in float32. */
export type Add = (into: Float32Array, from: Float32Array) => void;

export interface Finished {
  readonly node: Node;
  readonly values: Float32Array;
}

export interface PieceSum {
  /**
   * @param place of who it is from: 0 for this member, then those that send to it
   * @returns a sum that is complete now
   */
  insert(place: number, node: Node, values: Float32Array): Finished | undefined;
}

/** The node of sums in the order of the way. */
export const NO_NODE: Node = { lo: 0, hi: 0 };

interface Held {
  values: Float32Array;
}

/** In the order of the reduction tree, each of the nodes that are asked for. */
export class TreeSum implements PieceSum {
  private readonly tree: ReductionTree<Held>;

  /** @param preferred sums go there where they can: the sum of two float32 does not depend on which one is the first */
  constructor(
    replicas: number,
    private readonly wanted: readonly Node[],
    add: Add,
    preferred: Float32Array,
  ) {
    const isPreferred = ({ buffer, byteOffset }: Float32Array): boolean =>
      buffer === preferred.buffer && byteOffset === preferred.byteOffset;
    this.tree = new ReductionTree<Held>(replicas, {
      add: (into, from) => {
        const [kept, other] = isPreferred(from.values) ? [from.values, into.values] : [into.values, from.values];
        add(kept, other);
        into.values = kept;
      },
      release: () => undefined,
    });
  }

  insert(_: number, node: Node, values: Float32Array): Finished | undefined {
    this.tree.insert(node, { values });
    const wanted = this.wanted.find(({ lo, hi }) => lo <= node.lo && node.hi <= hi);
    const sum = wanted && this.tree.take(wanted);
    return sum && { node: wanted, values: sum.values };
  }
}

/** What this member has, plus what the others send in a fixed order, whoever is first. */
export class RunningSum implements PieceSum {
  private readonly waiting = new Map<number, Float32Array>();
  private next = 0;
  private sum: Float32Array | undefined;

  constructor(
    private readonly places: number,
    private readonly add: Add,
  ) {}

  insert(place: number, _: Node, values: Float32Array): Finished | undefined {
    this.waiting.set(place, values);
    for (let found = this.waiting.get(this.next); found; found = this.waiting.get(this.next)) {
      this.waiting.delete(this.next++);
      if (this.sum) this.add(this.sum, found);
      else this.sum = found;
    }
    return this.next === this.places && this.sum ? { node: NO_NODE, values: this.sum } : undefined;
  }
}
