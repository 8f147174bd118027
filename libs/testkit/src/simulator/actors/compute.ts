/** Engines of simulated workers: each replica takes its time, and what is computed is a few float32. This one is that of mode sync. */
import { chunksOf, type GradientNode, type ReplicaResidual, type Rows, type WorkItem } from '@paceline/exchange';
import type { ResidualLoss } from '@paceline/codecs';
import type { SeatCompute, SeatComputeEvents } from '@paceline/hosting';
import { LocalUpdates, maximalNodes, split } from '@paceline/learning';
import type { Cluster } from '../cluster.js';
import type { SimWorker } from './worker.js';
import { ReplicaWork } from './replica-work.js';
import { SimTableRows } from './table-rows.js';

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

  /** What it keeps of its replicas. */
  protected workOf(attempt: number): ReplicaWork {
    const { run, kept, plant } = this.cluster;
    return new ReplicaWork({
      run,
      attempt,
      kept,
      plant: (made) => (made instanceof LocalUpdates ? plant?.local?.(made, this.cluster) : plant?.encoder?.(made, this.cluster)),
    });
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
      chunk: chunksOf(new Uint8Array(sum.buffer)),
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

const range = (lo: number, hi: number): number[] => Array.from({ length: hi - lo }, (_, i) => lo + i);

/** One request after the other; nodes are added up as apps/worker/src/replica-steps.ts does. */
export class TinyCompute extends SimCompute {
  private readonly queue: (() => void)[] = [];
  private busy = false;
  private committedRound = -1;
  private readonly work: ReplicaWork;
  private readonly table: SimTableRows | undefined;
  /** A step whose rows are asked for. */
  private waiting: { readonly round: number; readonly ids: readonly number[]; readonly act: () => void } | undefined;

  constructor(
    private readonly attempt: number,
    worker: SimWorker,
    cluster: Cluster,
    private readonly parameters: ArrayBuffer,
  ) {
    super(worker, cluster);
    this.work = this.workOf(attempt);
    const { run } = cluster;
    if (run.shape.table) this.table = new SimTableRows(run, (...args) => this.events.wants?.(...args));
  }

  rows(generation: number, group: number, rows: Rows): void {
    this.table!.arrived(generation, group, rows);
    const { waiting } = this;
    if (!waiting || !this.table!.has(waiting.round, waiting.ids)) return;
    this.waiting = undefined;
    waiting.act();
  }

  override step(round: number, replicas: readonly number[]): void {
    this.enqueue(() => this.withRows(round, replicas, () => this.begin(round, replicas)));
  }

  private withRows(round: number, replicas: readonly number[], act: () => void): void {
    const ids = this.table?.idsOf(round, replicas) ?? [];
    if (!this.table || this.table.has(round, ids)) return act();
    if (this.committedRound >= round) return this.next();
    this.waiting = { round, ids, act };
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

  /** In its turn, as the thread reads it between two steps. */
  readResiduals(round: number, replicas: readonly number[]): void {
    this.enqueue(() => {
      this.events.residuals?.(round, this.work.residuals(round, replicas));
      this.next();
    });
  }

  takeResidual(round: number, residual: ReplicaResidual): void {
    this.enqueue(() => {
      this.work.takeResidual(round, residual);
      this.next();
    });
  }

  override committed(round: number): void {
    this.committedRound = Math.max(this.committedRound, round);
    this.table?.forgetBelow(round + 1);
    if (!this.waiting || this.waiting.round > this.committedRound) return;
    // Nobody sends them any more.
    this.waiting = undefined;
    this.next();
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
    return this.parametersOf(generation).slice();
  }

  private parametersOf(generation: number): Float32Array {
    const { totalLength } = this.cluster.run.layout;
    return new Float32Array(this.parameters, (generation & 1) * totalLength * 4, totalLength);
  }

  private begin(round: number, replicas: readonly number[]): void {
    const { run } = this.cluster;
    let weights = this.weightsOf(round);
    this.table?.lay(round, weights);
    const nodes = this.work.leavesOnly
      ? replicas.map((replica) => ({ lo: replica, hi: replica + 1 }))
      : maximalNodes(run.shape.replicas, new Set(replicas));
    const nextNode = (): void => {
      const node = nodes.shift();
      // Those of the next step, behind the gradients.
      if (!node) this.table?.has(round + 1, round + 1 < run.schedule.totalRounds ? this.table.idsOf(round + 1, replicas) : []);
      if (!node || this.committedRound >= round) return this.next();
      // Local steps begin with what lies in memory then.
      if (run.shape.local) weights = this.weightsOf(round);
      this.takeTime((node.hi - node.lo) * run.stepsIn(round), () => {
        // A gradient that is begun is finished, as in the thread; local steps, and rows that nobody has any more, are not.
        if (this.committedRound >= round && (run.shape.local || this.table)) return this.next();
        this.events.node(this.node(weights, round, node.lo, node.hi));
        nextNode();
      });
    };
    nextNode();
  }

  private node(weights: Float32Array, round: number, lo: number, hi: number): GradientNode {
    const isLeaf = hi - lo === 1;
    const sum = isLeaf ? this.leaf(weights, round, lo) : this.add(weights, round, lo, hi);
    const encoded = isLeaf ? this.work.encoded(round, lo, sum) : undefined;
    if (isLeaf) this.contribute(round, lo, encoded?.lost);
    if (!encoded) this.cluster.kept?.computed({ attempt: this.attempt, round, lo, hi }, sum);
    const plain = this.nodeOf(round, lo, hi, sum);
    const { table } = this;
    if (table) return { ...plain, chunk: this.withTable(table, plain, table.idsOf(round, range(lo, hi)), sum) };
    if (!encoded) return plain;
    const release = (): void => {
      encoded.release();
      plain.release();
    };
    return { ...plain, chunk: encoded.chunk, release };
  }

  private leaf(weights: Float32Array, round: number, replica: number): Float32Array {
    return this.work.gradient(round, replica, weights, () => this.parametersOf(round));
  }

  private contribute(round: number, replica: number, lost?: ResidualLoss): void {
    const examples = this.cluster.run.replicaExamples(round, replica);
    this.events.contribution(round, replica, examples, [examples, 0, examples], lost);
  }

  /** The groups of rows are chunks behind those of the layout. */
  private withTable(table: SimTableRows, plain: GradientNode, ids: readonly number[], sum: Float32Array): GradientNode['chunk'] {
    const { length } = this.cluster.run.layout.chunks;
    return (chunk) => (chunk.index < length ? plain.chunk(chunk) : table.gradient(chunk.index, ids, sum));
  }

  private add(weights: Float32Array, round: number, lo: number, hi: number): Float32Array {
    if (hi - lo === 1) {
      const out = this.leaf(weights, round, lo);
      this.contribute(round, lo);
      return out;
    }
    const middle = split(lo, hi);
    const left = this.add(weights, round, lo, middle);
    const right = this.add(weights, round, middle, hi);
    for (let i = 0; i < left.length; i++) left[i]! += right[i]!;
    return left;
  }
}
