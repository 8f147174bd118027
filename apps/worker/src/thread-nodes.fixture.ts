/** Seats with several compute threads that are played: what is posted to them is real work, and is done when a test says so. */
import { createHash } from 'node:crypto';
import type { StepRequest } from '@paceline/engine';
import { createLayout, shardChunks } from '@paceline/learning';
import { gradientVectors, type ModelDescription } from '@paceline/spec';
import type { BatchLoader } from './batch-loader.js';
import type { ToCompute } from './compute-protocol.js';
import { GradientMemory, LentVectors, type Vector } from './gradient-memory.js';
import { ReplicaSteps } from './replica-steps.js';
import { addUp, ThreadNodes } from './thread-nodes.js';

const zeros = { className: 'Zeros', config: {} };
/** Two chunks of gradients, and one of state. */
const LAYOUT = createLayout({
  variables: [
    { path: 'a', shape: [100, 170], section: 'trainable', initializer: zeros },
    { path: 'b', shape: [40], section: 'state', initializer: zeros },
  ] as unknown as ModelDescription['variables'],
  parameterCount: 17_000,
  stateCount: 40,
});
/** Each chunk in an arena of its own. */
export const ONE_CHUNK = (1 << 20) + 3 * (16_384 * 4 + 64);
const loader = { take: () => [{}], release: () => undefined } as unknown as BatchLoader;
const engine = {
  metricNames: [],
  step: ({ round, replica, out }: StepRequest) => {
    let at = 0;
    // Sums of these depend on the order of the additions.
    for (const piece of [out].flat() as Float32Array[])
      for (let i = 0; i < piece.length; i++) piece[i] = Math.sin(++at * (replica + 1) + round) * 10 ** (replica % 7);
    return { count: 1, metricSums: [] };
  },
};
const quiet = { contribution: () => undefined, progress: () => undefined, isObsolete: () => false };
const hashOf = (pieces: readonly Float32Array[]): string => {
  const hash = createHash('sha256');
  for (const piece of pieces) hash.update(new Uint8Array(piece.buffer, piece.byteOffset, piece.byteLength));
  return hash.digest('hex');
};

/** A mistake: what is wrong in it takes the place of what is right. */
export interface Mistake {
  readonly Nodes?: typeof ThreadNodes;
  /** What a thread adds up. */
  readonly addUp?: typeof addUp;
}

/** A seat whose threads do what has been posted to them when they are told to. */
export function seat(threads: number, replicas: number, arenaBytes?: number, mistake: Mistake = {}) {
  const vectors = gradientVectors({ replicas, strategy: { kind: 'hybrid', mode: 'sync', threads } });
  const memory = new GradientMemory(LAYOUT, vectors, arenaBytes);
  const lent = Array.from({ length: threads }, () => new LentVectors(LAYOUT, memory));
  const queues: ToCompute[][] = lent.map(() => []);
  const nodes: Record<string, string> = {};
  const seatNodes = new (mistake.Nodes ?? ThreadNodes)({
    threads,
    replicas,
    memory,
    post: (thread, message) => queues[thread]!.push(message),
    node: (round, { lo, hi, vector }) => {
      nodes[`${round} [${lo}, ${hi})`] = hashOf(memory.pieces(vector));
      memory.free(vector);
    },
  });
  const work = (thread: number): void => {
    const message = queues[thread]!.shift();
    const own = lent[thread]!;
    if (message?.kind === 'sum') {
      (mistake.addUp ?? addUp)(message.nodes, shardChunks(LAYOUT, threads, thread), own);
      seatNodes.added(message.sum);
    } else if (message?.kind === 'step') {
      own.lend(message.lent!);
      const node = (round: number, lo: number, hi: number, vector: Vector): void => seatNodes.came(round, { lo, hi, vector });
      new ReplicaSteps(engine, loader, own, replicas, () => false, { ...quiet, node }).run(message.round, message.replicas);
      for (const vector of own.giveBack()) memory.free(vector);
    }
  };
  return { memory, seatNodes, nodes, work, isBusy: () => queues.some(({ length }) => length > 0) };
}

/** What one thread computes. */
export function alone(replicas: number, held: readonly number[], rounds = 1): Record<string, string> {
  const memory = new GradientMemory(LAYOUT, replicas);
  const nodes: Record<string, string> = {};
  const node = (round: number, lo: number, hi: number, vector: Vector): void => {
    nodes[`${round} [${lo}, ${hi})`] = hashOf(memory.pieces(vector));
    memory.free(vector);
  };
  const steps = new ReplicaSteps(engine, loader, memory, replicas, () => false, { ...quiet, node });
  for (let round = 0; round < rounds; round++) steps.run(round, held);
  return nodes;
}
