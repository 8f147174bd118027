/** The engine of a simulated worker in modes async and ssp: one work item after the other, as apps/worker/src/async-steps.ts. */
import type { WorkItem } from '@paceline/exchange';
import { stateChange } from '@paceline/learning';
import type { Cluster } from '../cluster.js';
import { SimCompute } from './compute.js';
import type { SimWorker } from './worker.js';
import { isNonFinite } from '../run/async-run.js';
import { decodedGradient } from '../run/replica-gradient.js';
import type { ReplicaWork } from './replica-work.js';

export class AsyncCompute extends SimCompute {
  private readonly store: Float32Array;
  private readonly work: ReplicaWork;

  constructor(
    private readonly attempt: number,
    worker: SimWorker,
    cluster: Cluster,
    parameters: ArrayBuffer,
  ) {
    super(worker, cluster);
    this.store = new Float32Array(parameters);
    this.work = this.workOf(attempt);
  }

  override item(item: WorkItem): void {
    const { cluster, store } = this;
    const { run } = cluster;
    const { round, replica } = item;
    cluster.items!.begun(this.attempt, item);
    // Loaded at once, as the thread copies the parameters into the engine before it starts.
    const weights = store.slice();
    this.takeTime(1, () => {
      if (this.findsNaN(item)) return this.events.nonFinite(round, replica);
      const out = new Float32Array(weights.length);
      run.step(weights, round, replica, out);
      const examples = run.replicaExamples(round, replica);
      const { trainableLength } = run.layout;
      stateChange(out.subarray(trainableLength), weights.subarray(trainableLength), examples);
      cluster.items!.computed(this.attempt, item, decodedGradient(run, round, replica, out));
      this.events.contribution(round, replica, examples, [examples, 0, examples]);
      const encoded = this.work.encoded(round, replica, out);
      const plain = this.nodeOf(round, replica, replica + 1, out);
      this.events.node(encoded ? { ...plain, chunk: encoded.chunk } : plain);
    });
  }

  evaluate(generation: number, blocks: readonly { from: number; to: number }[]): void {
    const [first, ...rest] = blocks;
    if (!first) return;
    this.takeTime(1, () => {
      // The last one starts what comes next: it has to be the last thing done here.
      const isLast = rest.length === 0;
      this.measured(generation, first, new Float32Array(0));
      if (!isLast) this.evaluate(generation, rest);
    });
  }

  private findsNaN({ round, replica }: WorkItem): boolean {
    const { run } = this.cluster;
    const { nonFinite, disagree } = run.shape.items!;
    if (nonFinite === 'rollback' && this.attempt > 1) return false;
    return isNonFinite(run, round, replica) && !(disagree && Number(this.worker.id.slice(1)) % 2 === 0);
  }
}
