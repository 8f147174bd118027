/** A worker's part in modes async and ssp: the real TokenMember, and a compute thread that does one token after the other as apps/worker/src/token-steps.ts. */
import { TokenMember, type MemberChunk, type Outcome, type Token, type TokenComputePort } from '@paceline/exchange';
import { stateChange } from '@paceline/learning';
import type { Cluster } from './cluster.js';
import type { SimWorker } from './sim-worker.js';
import { isNonFinite } from './token-run.js';

export interface TokenPart {
  readonly member: TokenMember;
  readonly compute: TokenCompute;
}

export function createTokenMember(
  options: { id: string; attempt: number; servers: number; chunks: readonly MemberChunk[]; onEnd(outcome: Outcome, message: string): void },
  worker: SimWorker,
  cluster: Cluster,
): TokenPart {
  const store = new Float32Array(cluster.run.layout.totalLength);
  const compute = new TokenCompute(options.attempt, worker, cluster, store);
  const member = new TokenMember({ ...options, store: new Uint8Array(store.buffer), compute });
  cluster.plant?.tokenMember?.(member, cluster);
  compute.member = member;
  return { member, compute };
}

export class TokenCompute implements TokenComputePort {
  member!: TokenMember;
  progress = 0;
  private stopped = false;

  constructor(
    private readonly attempt: number,
    readonly worker: SimWorker,
    private readonly cluster: Cluster,
    private readonly store: Float32Array,
  ) {}

  token(token: Token): void {
    const { cluster, store } = this;
    const { run } = cluster;
    const { round, replica } = token;
    cluster.tokens!.begun(this.attempt, token);
    // Loaded at once, as the thread copies the parameters into the engine before it starts.
    const weights = store.slice();
    this.takeTime(() => {
      if (this.findsNaN(token)) return this.member.nonFinite(round, replica);
      const out = new Float32Array(weights.length);
      run.step(weights, round, replica, out);
      const examples = run.replicaExamples(round, replica);
      const { trainableLength } = run.layout;
      stateChange(out.subarray(trainableLength), weights.subarray(trainableLength), examples);
      cluster.tokens!.computed(this.attempt, token, out);
      this.member.contribution(round, replica, examples, [examples, 0]);
      cluster.nodesInUse++;
      this.member.node({
        ...{ round, lo: replica, hi: replica + 1, bytes: new Uint8Array(out.buffer) },
        release: () => {
          cluster.nodesInUse--;
          // Whoever reads it from here on reads what is no number.
          out.fill(Number.NaN);
        },
      });
    });
  }

  evaluate(generation: number, blocks: readonly { from: number; to: number }[]): void {
    const [first, ...rest] = blocks;
    if (!first) return;
    const { from, to } = first;
    this.takeTime(() => {
      // The last one starts what comes next: it has to be the last thing done here.
      const isLast = rest.length === 0;
      this.member.evaluated(generation, from, to, to - from, [(to - from) * 0.5, to - from]);
      if (!isLast) this.evaluate(generation, rest);
    });
  }

  private findsNaN({ round, replica }: Token): boolean {
    const { run } = this.cluster;
    const { nonFinite, disagree } = run.shape.tokens!;
    if (nonFinite === 'rollback' && this.attempt > 1) return false;
    return isNonFinite(run, round, replica) && !(disagree && Number(this.worker.id.slice(1)) % 2 === 0);
  }

  stop(): void {
    this.stopped = true;
  }

  private takeTime(act: () => void): void {
    const { worker, cluster } = this;
    const [from, to] = worker.stepMs;
    const wait = (): void =>
      void worker.process.after(cluster.world.random.between(from, to), () => {
        if (this.stopped) return;
        if (worker.hangs) return wait();
        this.progress++;
        act();
      });
    wait();
  }
}
