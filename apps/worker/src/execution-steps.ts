/**
 * What one compute thread does of a round with the strategy tpu: all steps of the round, one after the other, with the other threads of the seat (execution-cells.ts). The
 * main thread hears of them when the round is over, and gets the weights.
 *
 *     weights = parameters of the round
 *     for each step:  load weights ──> own replicas ──> all have come ──> own chunks: sum over the tree, update of weights and slots ──> all have come
 *     own chunks of the weights to where they are sent from; NaN in place of them where a sum was not finite, for the shard to judge as any gradient
 */
import type { Engine, Sums } from '@paceline/engine';
import { spans } from '@paceline/exchange';
import type { Arena } from '@paceline/kernels';
import { executedBefore, stepExamples, type Layout, type SharedUpdates } from '@paceline/learning';
import { roundsOf, stepsOfRound, type RateFactor, type RunSpec } from '@paceline/spec';
import type { BatchLoader } from './batch-loader.js';
import type { ContributionMessage } from './compute-protocol.js';
import type { ExecutionCells, ExecutionMemory } from './execution-cells.js';
import type { LentVectors, PlacedNode, Vector } from './gradient-memory.js';
import { ReplicaSteps, replicaStep, type ReplicaRounds } from './replica-steps.js';
import { addUp } from './thread-nodes.js';

const FLOAT_BYTES = Float32Array.BYTES_PER_ELEMENT;

export interface ExecutionStepsOptions {
  readonly spec: RunSpec;
  /** Examples of the training split. */
  readonly examples: number;
  readonly engine: Pick<Engine, 'step' | 'metricNames'>;
  /** Gives the engine the weights of a step. */
  load(weights: Float32Array): void;
  readonly loader: Pick<BatchLoader, 'plan' | 'take' | 'release' | 'prefetchSteps'>;
  readonly layout: Layout;
  readonly arena: Arena;
  readonly gradients: Pick<LentVectors, 'alloc' | 'free' | 'pieces' | 'add' | 'addChunk' | 'clear'>;
  readonly memory: Pick<ExecutionMemory, 'weights'>;
  readonly cells: ExecutionCells;
  readonly updates: SharedUpdates;
  /** Whether norms are cut: all threads measure before any updates. */
  readonly isMeasured: boolean;
  readonly rateFactor: RateFactor;
  /** Replicas and chunks of this thread. */
  readonly replicas: readonly number[];
  readonly chunks: readonly number[];
  readonly isFirst: boolean;
  contribution(message: ContributionMessage): void;
  progress(): void;
}

interface Total {
  examples: number;
  readonly sums: number[];
}

export class ExecutionSteps implements ReplicaRounds {
  private readonly steps: ReplicaSteps;
  private readonly weights: Float32Array;
  /** What each own replica has come to in this round. */
  private totals = new Map<number, Total>();
  private nodes: PlacedNode[] = [];
  /** The present step: its place in the round, and its number in the run. */
  private place = { step: 0, number: 0 };

  constructor(private readonly options: ExecutionStepsOptions) {
    const { spec, engine, loader, gradients, arena, memory, layout, progress } = options;
    this.weights = arena.f32(memory.weights, layout.totalLength);
    const outputs = {
      contribution: (_round: number, replica: number, examples: number, sums: readonly number[]) => this.count(replica, examples, sums),
      node: (_round: number, lo: number, hi: number, vector: Vector) => void this.nodes.push({ lo, hi, vector }),
      progress,
      isObsolete: () => false, // a round that was begun is ended: if each thread looked for itself, one could leave out what others wait for
    };
    this.steps = new ReplicaSteps(engine, loader, gradients, spec.replicas, () => false, outputs, this);
  }

  /** All steps of a round. @param start its parameters @param out where the weights come to lie @returns whether all sums were finite */
  execute(round: number, start: Float32Array, out: Vector): boolean {
    const { spec, examples, loader, cells, rateFactor } = this.options;
    const { plan } = loader;
    const { count, epoch, first } = plan.schedule.round(round);
    if (this.options.isFirst) cells.clearNotFinite();
    for (const { offset, length } of this.ownChunks()) this.weights.set(start.subarray(offset, offset + length), offset);
    this.totals = new Map();
    cells.meet();
    const before = executedBefore({ epoch, first }, roundsOf(spec, examples).examples, spec);
    const steps = plan.localSteps(round);
    for (let step = 0; step < steps; step++) {
      this.place = { step, number: before + step };
      this.stepOnce(round, start, stepExamples(count, step, spec), rateFactor(round + step / stepsOfRound(spec)));
    }
    this.leave(out);
    for (const [replica, total] of this.totals) this.options.contribution({ kind: 'contribution', round, replica, ...total });
    return cells.isFinite;
  }

  /** The gradient of a replica in the present step. */
  run(round: number, replica: number, out: Vector): Sums {
    return replicaStep(this.options, Object.assign({ round, replica }, this.place), out);
  }

  private stepOnce(round: number, start: Float32Array, examples: number, rateFactor: number): void {
    const { cells, updates, chunks, gradients, loader, replicas, load, progress, isMeasured } = this.options;
    let sinceMs = spans.now();
    load(this.weights);
    spans.add('load parameters', sinceMs);
    loader.prefetchSteps(round, replicas, this.place.step + 1); // they are loaded while this step is computed
    this.nodes = [];
    this.steps.run(round, replicas);
    loader.prefetchSteps(round, replicas, this.place.step + 1); // what had no free slot
    for (const node of this.nodes) cells.place(node);
    cells.meet();
    const placed = cells.placed();
    addUp(placed, chunks, gradients);
    sinceMs = spans.now();
    const gradient = placed[0]!.vector[0]!;
    if (!updates.measure(gradient)) cells.foundNotFinite();
    if (isMeasured) cells.meet();
    updates.update({ gradient, examples, step: this.place.number + 1, rateFactor, start }, updates.judge(examples));
    spans.add('update', sinceMs);
    progress();
    cells.meet();
    for (const { vector } of this.nodes) gradients.free(vector);
  }

  private leave(out: Vector): void {
    const { arena, cells, memory } = this.options;
    for (const { offset, length } of this.ownChunks()) {
      const [to, from] = [out[0]! + offset * FLOAT_BYTES, memory.weights + offset * FLOAT_BYTES];
      if (cells.isFinite) arena.kernels.copy(to, from, length);
      else arena.kernels.fill(to, length, NaN);
    }
    cells.meet();
  }

  private count(replica: number, examples: number, sums: readonly number[]): void {
    const total = this.totals.get(replica);
    if (!total) return void this.totals.set(replica, { examples, sums: [...sums] });
    total.examples += examples;
    sums.forEach((value, i) => (total.sums[i]! += value));
  }

  private ownChunks(): Layout['chunks'][number][] {
    return this.options.chunks.map((index) => this.options.layout.chunks[index]!);
  }
}
