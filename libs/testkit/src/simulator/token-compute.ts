/** The engine of a simulated worker in modes async and ssp: one token after the other, as apps/worker/src/token-steps.ts. */
import type { Token } from '@paceline/exchange';
import { stateChange } from '@paceline/learning';
import type { Cluster } from './cluster.js';
import { SimCompute } from './sim-compute.js';
import type { SimWorker } from './sim-worker.js';
import { isNonFinite } from './token-run.js';

export class TokenCompute extends SimCompute {
  private readonly store: Float32Array;

  constructor(
    private readonly attempt: number,
    worker: SimWorker,
    cluster: Cluster,
    parameters: ArrayBuffer,
  ) {
    super(worker, cluster);
    this.store = new Float32Array(parameters);
  }

  override token(token: Token): void {
    const { cluster, store } = this;
    const { run } = cluster;
    const { round, replica } = token;
    cluster.tokens!.begun(this.attempt, token);
    // Loaded at once, as the thread copies the parameters into the engine before it starts.
    const weights = store.slice();
    this.takeTime(1, () => {
      if (this.findsNaN(token)) return this.events.nonFinite(round, replica);
      const out = new Float32Array(weights.length);
      run.step(weights, round, replica, out);
      const examples = run.replicaExamples(round, replica);
      const { trainableLength } = run.layout;
      stateChange(out.subarray(trainableLength), weights.subarray(trainableLength), examples);
      cluster.tokens!.computed(this.attempt, token, out);
      this.events.contribution(round, replica, examples, [examples, 0, examples]);
      this.events.node(this.nodeOf(round, replica, replica + 1, out));
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

  private findsNaN({ round, replica }: Token): boolean {
    const { run } = this.cluster;
    const { nonFinite, disagree } = run.shape.tokens!;
    if (nonFinite === 'rollback' && this.attempt > 1) return false;
    return isNonFinite(run, round, replica) && !(disagree && Number(this.worker.id.slice(1)) % 2 === 0);
  }
}
