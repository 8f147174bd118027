/** One worker process of StandbyCluster: member and links, with the tiny replica step. */
import { Member, ServerLinks, processClock } from '@paceline/exchange';
import { maximalNodes, replicaRows, shardChunks, split } from '@paceline/learning';
import type { Address, StandbyCluster } from './standby-cluster.js';
import { helloOf } from './standby-server.js';
import { tinyModel, tinyStep } from './tiny-model.js';

const LENGTH = tinyModel.parameterCount + tinyModel.stateCount;

export class StandbyWorker {
  readonly machine: Member;
  readonly links: ServerLinks<Address>;
  givenUp: string | undefined;
  isDead = false;
  computed = 0;
  private readonly flat = [new Float32Array(LENGTH), new Float32Array(LENGTH)];

  constructor(
    readonly id: string,
    readonly seat: number,
    private readonly cluster: StandbyCluster,
  ) {
    const { layout, options } = cluster;
    const owners = new Map<number, number>();
    for (let s = 0; s < options.servers; s++) for (const chunk of shardChunks(layout, options.servers, s)) owners.set(chunk, s);
    this.machine = new Member({
      id,
      attempt: 1,
      servers: options.servers,
      totalRounds: options.rounds,
      now: () => performance.now(),
      chunks: layout.chunks.map(({ index, offset, length }) => ({ index, offset, length, server: owners.get(index)! })),
      store: { bytes: (generation) => new Uint8Array(this.flat[generation & 1]!.buffer) },
      compute: {
        step: (round, replicas) => void setImmediate(() => this.step(round, replicas)),
        committed: () => undefined,
        evaluate: (generation, blocks) => {
          for (const { from, to } of blocks) this.machine.evaluated(generation, from, to, to - from, [0, 0]);
        },
      },
      onEnd: () => undefined,
    });
    this.links = new ServerLinks<Address>({
      servers: cluster.primaries,
      standbys: cluster.standbys,
      attempt: 1,
      member: this.machine,
      clock: processClock,
      connect: (address) => cluster.dial(address.serverId),
      hello: () => helloOf('worker', id, seat),
      onGivenUp: (code, message) => void (this.givenUp = `${code}: ${message}`),
    });
    this.links.open();
  }

  weights(): Float32Array {
    return this.flat[this.cluster.options.rounds & 1]!;
  }

  private step(round: number, replicas: readonly number[]): void {
    const { options } = this.cluster;
    const weights = this.flat[round & 1]!.slice();
    const compute = (lo: number, hi: number): Float32Array => {
      if (hi - lo === 1) {
        const out = new Float32Array(LENGTH);
        const { from, to } = replicaRows(options.examples, options.replicas, lo);
        tinyStep(weights, round, lo, to - from, out);
        if (options.twoPhase?.spoiledRound === round) out[7] = NaN;
        this.computed++;
        this.machine.contribution(round, lo, to - from, [to - from, 0]);
        return out;
      }
      const middle = split(lo, hi);
      const left = compute(lo, middle);
      const right = compute(middle, hi);
      return left.map((value, i) => value + right[i]!);
    };
    for (const { lo, hi } of maximalNodes(options.replicas, new Set(replicas))) {
      if (this.isDead) return;
      const sum = compute(lo, hi);
      this.machine.node({ round, lo, hi, bytes: new Uint8Array(sum.buffer), release: () => undefined });
    }
  }
}
