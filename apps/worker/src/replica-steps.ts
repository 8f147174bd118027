/**
 * The replica steps of one round on one worker, added up through the canonical tree (docs/protocol.md §8): it computes the
 * maximal nodes of the replicas that it is given, each by recursion, left child before right. A node is handed on as soon as it is
 * complete, and is sent while the next one is computed.
 *
 * Memory: one flat vector per level of the tree in progress, plus one per finished node until its round is committed.
 */
import type { Engine } from '@paceline/engine';
import { spans } from '@paceline/exchange';
import type { Arena } from '@paceline/kernels';
import { maximalNodes, split } from '@paceline/learning';
import type { BatchLoader } from './batch-loader.js';

export interface StepOutputs {
  /** @param isNode the node that follows at once is this leaf alone */
  contribution(round: number, replica: number, examples: number, sums: readonly number[], isNode: boolean): void;
  node(round: number, lo: number, hi: number, pointer: number): void;
  /** Called whenever work has moved on. */
  progress(): void;
  /** True when the round is committed already (others were faster): the rest is not needed. */
  isObsolete(round: number): boolean;
}

export class ReplicaSteps {
  constructor(
    private readonly engine: Pick<Engine, 'step' | 'metricNames'>,
    private readonly loader: BatchLoader,
    private readonly gradients: Arena,
    /** Float32 elements of the flat vector. */
    private readonly length: number,
    private readonly replicas: number,
    /** Every replica is a node of its own: a round with backup replicas chooses among them, and what is encoded cannot be added. */
    private readonly leavesOnly: boolean,
    private readonly outputs: StepOutputs,
  ) {}

  /** Computes the given replicas of a round with the parameters that the engine has loaded. */
  run(round: number, replicas: readonly number[]): void {
    const nodes = this.leavesOnly
      ? replicas.map((replica) => ({ lo: replica, hi: replica + 1 }))
      : maximalNodes(this.replicas, new Set(replicas));
    for (const node of nodes) {
      const pointer = node.hi - node.lo === 1 ? this.leaf(round, node.lo, true) : this.compute(round, node.lo, node.hi);
      if (pointer === undefined) return;
      this.outputs.node(round, node.lo, node.hi, pointer);
    }
  }

  private compute(round: number, lo: number, hi: number): number | undefined {
    if (hi - lo === 1) return this.leaf(round, lo, false);
    const middle = split(lo, hi);
    const left = this.compute(round, lo, middle);
    if (left === undefined) return undefined;
    const right = this.compute(round, middle, hi);
    if (right === undefined) {
      this.gradients.free(left);
      return undefined;
    }
    this.gradients.kernels.add(left, right, this.length);
    this.gradients.free(right);
    return left;
  }

  private leaf(round: number, replica: number, isNode: boolean): number | undefined {
    if (this.outputs.isObsolete(round)) return undefined;
    const pointer = this.gradients.alloc(this.length * 4);
    let sinceMs = spans.now();
    const batches = this.loader.take(round, replica);
    spans.add('take rows', sinceMs);
    if (batches.length === 0) {
      // No rows: explicit +0, no model run.
      this.gradients.kernels.fill(pointer, this.length, 0);
      this.outputs.contribution(
        round,
        replica,
        0,
        this.engine.metricNames.map(() => 0),
        isNode,
      );
    } else {
      sinceMs = spans.now();
      const onComputed = (): void => {
        spans.add('compute', sinceMs);
        sinceMs = spans.now();
      };
      const out = this.gradients.f32(pointer, this.length);
      const { count, metricSums } = this.engine.step({ round, replica, batches, out, onComputed });
      spans.add('take gradient', sinceMs);
      this.outputs.contribution(round, replica, count, metricSums, isNode);
    }
    this.loader.release(round, replica);
    this.outputs.progress();
    return pointer;
  }
}
