/**
 * The replica steps of one round on one worker, added up through the canonical tree (docs/protocol.md §8): it computes the
 * maximal nodes of the replicas that it is given, each by recursion, left child before right. A node is handed on as soon as it is
 * complete, and is sent while the next one is computed.
 *
 * Memory: one flat vector per level of the tree in progress, plus one per finished node until its round is committed.
 */
import type { Engine, Sums } from '@paceline/engine';
import { spans } from '@paceline/exchange';
import { maximalNodes, split } from '@paceline/learning';
import type { BatchLoader } from './batch-loader.js';
import type { GradientMemory, Vector } from './gradient-memory.js';

export interface StepOutputs {
  /** @param isNode the node that follows at once is this leaf alone */
  contribution(round: number, replica: number, examples: number, sums: readonly number[], isNode: boolean): void;
  node(round: number, lo: number, hi: number, vector: Vector): void;
  /** Called whenever work has moved on. */
  progress(): void;
  /** True when the round is committed already (others were faster): the rest is not needed. */
  isObsolete(round: number): boolean;
}

/** Computes what a replica sends of a whole round to `out`. */
export interface ReplicaRounds {
  /** @returns undefined when the round is committed already */
  run(round: number, replica: number, out: Vector): Sums | undefined;
}

/** A step of a replica: of the steps of its round, and the number by which random layers draw. */
export interface StepPlace {
  readonly round: number;
  readonly replica: number;
  readonly step: number;
  readonly number: number;
}

interface StepParts {
  readonly engine: Pick<Engine, 'step' | 'metricNames'>;
  readonly loader: Pick<BatchLoader, 'take' | 'release'>;
  readonly gradients: Pick<GradientMemory, 'pieces' | 'clear'>;
}

/** One batch, one gradient. */
export function replicaStep({ engine, loader, gradients }: StepParts, { round, replica, step, number }: StepPlace, out: Vector): Sums {
  let sinceMs = spans.now();
  const batches = loader.take(round, replica, step);
  spans.add('take rows', sinceMs);
  try {
    if (batches.length === 0) {
      // No rows: explicit +0, no model run.
      gradients.clear(out);
      return { count: 0, metricSums: engine.metricNames.map(() => 0) };
    }
    sinceMs = spans.now();
    const onComputed = (): void => {
      spans.add('compute', sinceMs);
      sinceMs = spans.now();
    };
    const sums = engine.step({ round: number, replica, batches, out: gradients.pieces(out), onComputed });
    spans.add('take gradient', sinceMs);
    return sums;
  } finally {
    loader.release(round, replica, step);
  }
}

export class ReplicaSteps {
  constructor(
    readonly engine: Pick<Engine, 'step' | 'metricNames'>,
    readonly loader: Pick<BatchLoader, 'take' | 'release'>,
    readonly gradients: Pick<GradientMemory, 'alloc' | 'free' | 'pieces' | 'add' | 'clear'>,
    private readonly replicas: number,
    /** Every replica is a node of its own: a round with backup replicas chooses among them, and what is encoded cannot be added. */
    private readonly leavesOnly: () => boolean,
    private readonly outputs: StepOutputs,
    /** What a replica does in place of one step: with local updates several by itself, with tpu the present step of the round. */
    private readonly own?: ReplicaRounds,
  ) {}

  /** Computes the given replicas of a round, with the parameters that the engine has loaded unless they take local steps. */
  run(round: number, replicas: readonly number[]): void {
    const nodes = this.leavesOnly()
      ? replicas.map((replica) => ({ lo: replica, hi: replica + 1 }))
      : maximalNodes(this.replicas, new Set(replicas));
    for (const node of nodes) {
      const vector = node.hi - node.lo === 1 ? this.leaf(round, node.lo, true) : this.compute(round, node.lo, node.hi);
      if (vector === undefined) return;
      this.outputs.node(round, node.lo, node.hi, vector);
    }
  }

  private compute(round: number, lo: number, hi: number): Vector | undefined {
    if (hi - lo === 1) return this.leaf(round, lo, false);
    const middle = split(lo, hi);
    const left = this.compute(round, lo, middle);
    if (left === undefined) return undefined;
    const right = this.compute(round, middle, hi);
    if (right === undefined) {
      this.gradients.free(left);
      return undefined;
    }
    this.gradients.add(left, right);
    this.gradients.free(right);
    return left;
  }

  private leaf(round: number, replica: number, isNode: boolean): Vector | undefined {
    if (this.outputs.isObsolete(round)) return undefined;
    const vector = this.gradients.alloc();
    const sums = this.own ? this.own.run(round, replica, vector) : replicaStep(this, { round, replica, step: 0, number: round }, vector);
    if (!sums) {
      this.gradients.free(vector);
      return undefined;
    }
    this.outputs.contribution(round, replica, sums.count, sums.metricSums, isNode);
    this.outputs.progress();
    return vector;
  }
}
