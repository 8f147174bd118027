/**
 * What one stage of a model computes in a round (strategy model-parallel): the replicas that the worker has are micro-batches, which go through the stages in their
 * order, and whose gradients come back the same way. A stage in front of `ahead` others works in the order known as one forward, one backward (Harlap et al.,
 * arXiv:1806.03377; as here, with an update after each batch: Narayanan et al., arXiv:2104.04473, section 2.2):
 *
 * | phase | what | how often |
 * |---|---|---|
 * | warm-up | passes a micro-batch on | min(ahead, micro-batches) |
 * | steady | passes the next one on, then takes the gradients of the oldest one that it has not taken | until all are passed on |
 * | cool-down | takes the gradients of the others | until all are taken |
 *
 * The last stage has nobody ahead: it takes the gradients of a micro-batch when it comes.
 *
 * A stage writes its own variables' part of each gradient, and adds it up in the order of the reduction tree. All stages take the vectors of a step in the
 * same order, so the parts of a node lie in one vector, and are there when every stage has told the node (stage-nodes.ts).
 */
import type { Batch, StageEngine, Sums } from '@paceline/engine';
import { spans } from '@paceline/exchange';
import { maximalNodes, ReductionTree, type Node } from '@paceline/learning';
import type { BatchLoader } from './batch-loader.js';
import type { BatchPlan } from './batch-plan.js';
import type { ElementRange, LentVectors, Vector } from './gradient-memory.js';
import type { StepOutputs } from './replica-steps.js';
import type { StageFlow } from './stage-flow.js';

export interface StageStepsOptions {
  readonly engine: Pick<StageEngine, 'pass' | 'gradients' | 'forget' | 'fields' | 'metricNames'>;
  readonly flow: StageFlow;
  /** Undefined where the stage reads nothing of the rows. */
  readonly loader: Pick<BatchLoader, 'take' | 'release' | 'prefetch'> | undefined;
  readonly plan: Pick<BatchPlan, 'count'>;
  readonly gradients: Pick<LentVectors, 'alloc' | 'free' | 'pieces' | 'addRanges' | 'clearRanges'>;
  /** Where the variables of the stage lie in a vector. */
  readonly own: readonly ElementRange[];
  /** Replicas of the run. */
  readonly replicas: number;
  /** Which of how many stages. */
  readonly stage: number;
  readonly stages: number;
  /** Gives the engine the parameters of a round. */
  load(round: number): void;
  readonly outputs: StepOutputs;
}

/** A node of the tree in progress. */
interface Adding {
  readonly node: Node;
  readonly tree: ReductionTree<Vector>;
}

export class StageSteps {
  /** Replicas of the step whose rows have not been taken. */
  private later: readonly number[] = [];

  constructor(private readonly options: StageStepsOptions) {}

  /** @param replicas ascending */
  run(round: number, replicas: readonly number[]): void {
    const { flow, engine, stage, stages } = this.options;
    const ahead = Math.min(stages - 1 - stage, replicas.length);
    const nodes = maximalNodes(this.options.replicas, new Set(replicas));
    let adding: Adding | undefined;
    let [passed, taken] = [0, 0];
    const take = (): void => {
      const replica = replicas[taken]!;
      adding ??= this.begin(nodes.shift()!);
      const vector = this.take(round, replica, taken++, adding.node.hi - adding.node.lo === 1);
      if (this.add(round, replica, vector, adding)) adding = undefined;
    };
    flow.begin(replicas.length);
    this.later = replicas;
    // The other stages load while the first micro-batch is on its way. The first one loads when it knows that the round is wanted.
    if (stage > 0) this.options.load(round);
    for (; passed < replicas.length && this.comes(round, passed); passed++) {
      if (passed === 0 && stage === 0) this.options.load(round);
      if (ahead > 0) this.pass(round, replicas[passed]!, passed);
      if (passed >= ahead) take();
    }
    // The next stage may wait for a micro-batch that is left out: it has to go on, as this one waits for the gradients of the others.
    if (passed < replicas.length) flow.passed(replicas.length - 1);
    while (taken < passed) take();
    adding?.tree.dispose();
    engine.forget();
    flow.end();
  }

  /** Whether a micro-batch is here, and is not left out: the first stage decides that for all. */
  private comes(round: number, part: number): boolean {
    const { flow, stage, outputs } = this.options;
    if (stage === 0 && outputs.isObsolete(round)) flow.cut(part);
    return flow.comes(part);
  }

  private begin(node: Node): Adding {
    const { gradients, own } = this.options;
    const tree = new ReductionTree<Vector>(node.hi - node.lo, {
      add: (into, from) => gradients.addRanges(into, from, own),
      release: (vector) => gradients.free(vector),
    });
    return { node, tree };
  }

  /** @returns whether the node is complete, and told */
  private add(round: number, replica: number, vector: Vector, { node, tree }: Adding): boolean {
    const sinceMs = spans.now();
    const lo = replica - node.lo;
    const isComplete = tree.insert({ lo, hi: lo + 1 }, vector) === 'complete';
    spans.add('add', sinceMs);
    if (isComplete) this.options.outputs.node(round, node.lo, node.hi, tree.takeRoot());
    return isComplete;
  }

  /** Gives the next stage what this one makes of a micro-batch. */
  private pass(round: number, replica: number, part: number): void {
    const { engine, flow, stage } = this.options;
    const count = this.countOf(round, replica);
    if (count > 0)
      this.withRows(round, replica, part, count, (batch) => {
        const sinceMs = spans.now();
        engine.pass({ round, replica }, batch, flow.tensor(stage, part, count, 'values'));
        spans.add('compute', sinceMs);
      });
    flow.passed(part);
    this.options.outputs.progress();
  }

  /** Takes the gradients of a micro-batch, and gives the stage in front that of what came from there. */
  private take(round: number, replica: number, part: number, isNode: boolean): Vector {
    const { flow, gradients, outputs, own, engine } = this.options;
    if (!this.isLast) flow.comesBack(part);
    const vector = gradients.alloc();
    const count = this.countOf(round, replica);
    let sums: Sums['metricSums'] = engine.metricNames.map(() => 0);
    // No rows: explicit +0, no model run.
    if (count === 0) gradients.clearRanges(vector, own);
    else sums = this.gradients(round, replica, part, count, vector);
    flow.returned(part);
    outputs.contribution(round, replica, count, sums, isNode);
    outputs.progress();
    return vector;
  }

  private gradients(round: number, replica: number, part: number, count: number, vector: Vector): number[] {
    const { engine, flow, gradients, own, stage } = this.options;
    const out = gradients.pieces(vector);
    const received = stage > 0 ? flow.tensor(stage - 1, part, count, 'gradients') : undefined;
    let sums: number[] = [];
    const compute = (batch: Batch): void => {
      const sinceMs = spans.now();
      const passed = this.isLast ? undefined : flow.tensor(stage, part, count, 'gradients');
      sums = [...engine.gradients({ round, replica }, batch, { out, passed, received })];
      spans.add('compute', sinceMs);
    };
    if (this.isLast) this.withRows(round, replica, part, count, compute);
    else compute({ inputs: [], targets: [], count });
    // A loss may be no number while its slope is one, as that of a logarithm is: such a round must not count.
    if (!Number.isFinite(sums[0])) gradients.clearRanges(vector, [{ offset: own[0]!.offset, length: 1 }], Number.NaN);
    return sums;
  }

  /** Runs something over the rows of a micro-batch, with the tensor from the stage in front as their first input. */
  private withRows(round: number, replica: number, part: number, count: number, act: (batch: Batch) => void): void {
    const { engine, flow, loader, stage } = this.options;
    const sinceMs = spans.now();
    const [rows] = loader?.take(round, replica) ?? [];
    this.later = this.later.slice(this.later.indexOf(replica) + 1);
    if (loader) spans.add('take rows', sinceMs);
    const received = stage > 0 ? [flow.tensor(stage - 1, part, count, 'values')] : [];
    const inputs = [...received, ...engine.fields.map((field) => rows!.inputs[field]!)];
    try {
      act({ inputs, targets: rows?.targets ?? [], weights: rows?.weights, count });
    } finally {
      loader?.release(round, replica);
      if (this.later.length > 0) loader?.prefetch(round, this.later); // what had no free slot
    }
  }

  private countOf(round: number, replica: number): number {
    return this.options.plan.count(round, replica);
  }

  private get isLast(): boolean {
    return this.options.stage === this.options.stages - 1;
  }
}
