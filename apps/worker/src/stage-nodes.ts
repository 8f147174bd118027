/**
 * What the main thread does where a seat computes in stages: it gives all stages the same commands, a step with the same vectors, and puts together what each has of them.
 * All stages tell the same things in the same order, so the n-th thing that each has told is one:
 *
 * | every stage has told | is passed on as |
 * |---|---|
 * | contribution of a replica | one, with the sums of all stages added up in their order: the last stage has loss and metrics, each its penalties |
 * | node | one: its parts lie in one vector |
 * | vectors of a step that were not used | given back |
 * | evaluation of some examples | one, as a contribution is |
 */
import type { Node } from '@paceline/learning';
import type { ContributionMessage, FromCompute, ToCompute } from './compute-protocol.js';
import type { GradientMemory, Vector } from './gradient-memory.js';
import { vectorsFor } from './thread-nodes.js';

type Told = Extract<FromCompute, { kind: 'contribution' | 'node' | 'stepped' | 'evaluated' }>;
type Evaluated = Extract<Told, { kind: 'evaluated' }>;

export interface StageNodesOptions {
  readonly stages: number;
  /** Replicas of the run. */
  readonly replicas: number;
  readonly memory: Pick<GradientMemory, 'alloc' | 'free'>;
  post(stage: number, message: ToCompute): void;
  contribution(contribution: ContributionMessage): void;
  node(round: number, node: Node & { readonly vector: Vector }): void;
  evaluated(evaluated: Evaluated): void;
  /** The stages have told different things: what they have computed is of no use. */
  failed(message: string, round: number): void;
}

const isTold = (message: FromCompute): message is Told =>
  message.kind === 'contribution' || message.kind === 'node' || message.kind === 'stepped' || message.kind === 'evaluated';

export class StageNodes {
  /** What each stage has told that others have not. */
  private readonly told: readonly Told[][];
  private hasFailed = false;

  constructor(private readonly options: StageNodesOptions) {
    this.told = Array.from({ length: options.stages }, () => []);
  }

  /** @param replicas ascending @throws ArenaFullError */
  step(round: number, replicas: readonly number[]): void {
    const lent: Vector[] = [];
    for (let needs = vectorsFor(this.options.replicas, replicas); needs > 0; needs--) lent.push(this.options.memory.alloc());
    this.post({ kind: 'step', round, replicas, free: [], lent });
  }

  evaluate(generation: number, blocks: readonly { from: number; to: number }[]): void {
    this.post({ kind: 'evaluate', generation, blocks });
  }

  /** @returns whether it was something that all stages tell */
  takes(message: FromCompute, stage: number): boolean {
    if (!isTold(message)) return false;
    this.told[stage]!.push(message);
    while (!this.hasFailed && this.told.every((of) => of.length > 0)) this.pass(this.told.map((of) => of.shift()!));
    return true;
  }

  private post(message: ToCompute): void {
    for (let stage = 0; stage < this.options.stages; stage++) this.options.post(stage, message);
  }

  private pass(all: readonly Told[]): void {
    const [first] = all;
    if (new Set(all.map(nameOf)).size > 1) return this.differ(all);
    switch (first!.kind) {
      case 'contribution':
        return this.options.contribution(Object.assign({}, first, { sums: sumsOf(all as ContributionMessage[]) }));
      case 'node':
        if (first!.contribution)
          this.options.contribution(
            Object.assign({}, first!.contribution, { sums: sumsOf(all.map((each) => (each as typeof first).contribution!)) }),
          );
        return this.options.node(first!.round, { lo: first!.lo, hi: first!.hi, vector: first!.vector });
      case 'stepped':
        for (const vector of first!.vectors) this.options.memory.free(vector);
        return;
      case 'evaluated':
        return this.options.evaluated(Object.assign({}, first, { sums: sumsOf(all as Evaluated[]) }));
    }
  }

  private differ(all: readonly Told[]): void {
    this.hasFailed = true;
    const [round = 0] = all.flatMap((each) => ('round' in each ? [each.round] : []));
    this.options.failed(`the stages of the model have sent different results: ${all.map(nameOf).join('; ')}`, round);
  }
}

/** What it is, without what each stage has of it. A vector is told by where it begins. */
function nameOf(told: Told): string {
  switch (told.kind) {
    case 'contribution':
      return `replica ${told.replica} of round ${told.round} with ${told.examples} examples`;
    case 'node':
      return `node [${told.lo}, ${told.hi}) of round ${told.round} at ${told.vector.join(' ')}`;
    case 'stepped':
      return `${told.vectors.length} vectors unused, at ${told.vectors.map(([at]) => at).join(' ')}`;
    case 'evaluated':
      return `examples ${told.from} to ${told.to} by generation ${told.generation}`;
  }
}

/** Element by element, in the order of the stages. */
const sumsOf = (all: readonly { readonly sums: readonly number[] }[]): number[] =>
  all[0]!.sums.map((_, i) => all.reduce((sum, { sums }) => sum + sums[i]!, 0));
