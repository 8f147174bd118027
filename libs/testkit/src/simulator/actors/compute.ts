/** Engines of simulated workers: each replica takes its time, and what is computed is a few float32. This one is that of mode sync. */
import type { GradientNode, WorkItem } from '@paceline/exchange';
import type { SeatCompute, SeatComputeEvents } from '@paceline/hosting';
import { maximalNodes, split } from '@paceline/learning';
import type { Cluster } from '../cluster.js';
import type { SimWorker } from './worker.js';

type Blocks = readonly { readonly from: number; readonly to: number }[];

export abstract class SimCompute implements SeatCompute {
  progress = 0;
  protected events!: SeatComputeEvents;
  private stopped = false;

  constructor(
    protected readonly worker: SimWorker,
    protected readonly cluster: Cluster,
  ) {}

  get fingerprint(): string {
    return this.worker.engine.fingerprint;
  }

  listen(events: SeatComputeEvents): void {
    this.events = events;
  }

  stop(): Promise<void> {
    this.stopped = true;
    this.cluster.world.microtasksWait = true;
    return Promise.resolve();
  }

  /** The thread ends with an error, as apps/worker/src/compute.ts says it. */
  fail(code: string): void {
    this.events.failed(code, 'planned by the simulator', 0, -1);
  }

  step(_round: number, _replicas: readonly number[]): void {
    throw new Error('this run has no steps of a round');
  }

  item(_item: WorkItem): void {
    throw new Error('this run has no work items');
  }

  abstract evaluate(generation: number, blocks: Blocks): void;

  committed(_round: number): void {
    // Only who computes ahead of a commit wants to know.
  }

  protected measured(generation: number, { from, to }: Blocks[number], weights: Float32Array): void {
    this.events.evaluated(generation, from, to, to - from, this.cluster.run.measured(weights, from, to));
  }

  /** A summed gradient in memory that has to be given back. */
  protected nodeOf(round: number, lo: number, hi: number, sum: Float32Array): GradientNode {
    this.worker.nodesInUse++;
    return {
      round,
      lo,
      hi,
      bytes: new Uint8Array(sum.buffer),
      release: () => {
        this.worker.nodesInUse--;
        // Whoever reads it from here on reads what is no number.
        sum.fill(Number.NaN);
      },
    };
  }

  /** Progress is counted by replica, as apps/worker/src/replica-steps.ts does: a slow worker is not a stuck one. */
  protected takeTime(replicas: number, act: () => void): void {
    const { worker, cluster } = this;
    const [from, to] = worker.stepMs;
    const wait = (left: number): void =>
      void worker.process.after(cluster.world.random.between(from, to), () => {
        if (this.stopped) return;
        if (worker.hangs) return wait(left);
        this.progress++;
        if (left > 1) return wait(left - 1);
        act();
      });
    wait(replicas);
  }
}

/** One request after the other; nodes are added up as apps/worker/src/replica-steps.ts does. */
export class TinyCompute extends SimCompute {
  private readonly queue: (() => void)[] = [];
  private busy = false;
  private committedRound = -1;

  constructor(
    worker: SimWorker,
    cluster: Cluster,
    private readonly parameters: ArrayBuffer,
  ) {
    super(worker, cluster);
  }

  override step(round: number, replicas: readonly number[]): void {
    this.enqueue(() => this.begin(round, replicas));
  }

  evaluate(generation: number, blocks: Blocks): void {
    for (const block of blocks)
      this.enqueue(() => {
        const weights = this.weightsOf(generation);
        this.takeTime(1, () => {
          this.measured(generation, block, weights);
          this.next();
        });
      });
  }

  override committed(round: number): void {
    this.committedRound = Math.max(this.committedRound, round);
  }

  private enqueue(work: () => void): void {
    this.queue.push(work);
    if (!this.busy) this.next();
  }

  private next(): void {
    const work = this.queue.shift();
    this.busy = work !== undefined;
    work?.();
  }

  /** Loaded at once, as the thread copies the parameters into the engine before it starts. */
  private weightsOf(generation: number): Float32Array {
    const { totalLength } = this.cluster.run.layout;
    return new Float32Array(this.parameters, (generation & 1) * totalLength * 4, totalLength).slice();
  }

  private begin(round: number, replicas: readonly number[]): void {
    const { shape } = this.cluster.run;
    const weights = this.weightsOf(round);
    const nodes =
      shape.gradient.backupReplicas > 0
        ? replicas.map((replica) => ({ lo: replica, hi: replica + 1 }))
        : maximalNodes(shape.replicas, new Set(replicas));
    const nextNode = (): void => {
      const node = nodes.shift();
      if (!node) return this.next();
      this.takeTime(node.hi - node.lo, () => {
        if (this.committedRound >= round) return this.next();
        this.events.node(this.nodeOf(round, node.lo, node.hi, this.add(weights, round, node.lo, node.hi)));
        nextNode();
      });
    };
    nextNode();
  }

  private add(weights: Float32Array, round: number, lo: number, hi: number): Float32Array {
    const { run } = this.cluster;
    if (hi - lo === 1) {
      const out = new Float32Array(weights.length);
      run.workerStep(weights, round, lo, out);
      const examples = run.replicaExamples(round, lo);
      this.events.contribution(round, lo, examples, [examples, 0, examples]);
      return out;
    }
    const middle = split(lo, hi);
    const left = this.add(weights, round, lo, middle);
    const right = this.add(weights, round, middle, hi);
    for (let i = 0; i < left.length; i++) left[i]! += right[i]!;
    return left;
  }
}
