/** Nodes of several threads against those of one: the same nodes, the same bits, and all memory given back. The threads are played; their steps are real. */
import { createHash } from 'node:crypto';
import type { StepRequest } from '@paceline/engine';
import { createLayout, shardChunks } from '@paceline/learning';
import { gradientVectors, type ModelDescription } from '@paceline/spec';
import fc from 'fast-check';
import { expect, it } from 'vitest';
import type { BatchLoader } from './batch-loader.js';
import type { ToCompute } from './compute-protocol.js';
import { GradientMemory, LentVectors, type Vector } from './gradient-memory.js';
import { ReplicaSteps } from './replica-steps.js';
import { addUp, ThreadNodes, vectorsFor } from './thread-nodes.js';

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
const ONE_CHUNK = (1 << 20) + 3 * (16_384 * 4 + 64);
const loader = { take: () => [{}], release: () => undefined } as unknown as BatchLoader;
const engine = {
  metricNames: [],
  step: ({ replica, out }: StepRequest) => {
    let at = 0;
    // Sums of these depend on the order of the additions.
    for (const piece of [out].flat() as Float32Array[])
      for (let i = 0; i < piece.length; i++) piece[i] = Math.sin(++at * (replica + 1)) * 10 ** (replica % 7);
    return { count: 1, metricSums: [] };
  },
};
const quiet = { contribution: () => undefined, progress: () => undefined, isObsolete: () => false };
const hashOf = (pieces: readonly Float32Array[]): string => {
  const hash = createHash('sha256');
  for (const piece of pieces) hash.update(new Uint8Array(piece.buffer, piece.byteOffset, piece.byteLength));
  return hash.digest('hex');
};

/** A seat whose threads do what has been posted to them when they are told to. */
function seat(threads: number, replicas: number, arenaBytes?: number) {
  const vectors = gradientVectors({ replicas, strategy: { kind: 'hybrid', mode: 'sync', threads } });
  const memory = new GradientMemory(LAYOUT, vectors, arenaBytes);
  const lent = Array.from({ length: threads }, () => new LentVectors(LAYOUT, memory));
  const queues: ToCompute[][] = lent.map(() => []);
  const nodes: Record<string, string> = {};
  const seatNodes = new ThreadNodes({
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
      addUp(message.nodes, shardChunks(LAYOUT, threads, thread), own);
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
function alone(replicas: number, held: readonly number[]): Record<string, string> {
  const memory = new GradientMemory(LAYOUT, replicas);
  const nodes: Record<string, string> = {};
  const node = (round: number, lo: number, hi: number, vector: Vector): void => {
    nodes[`${round} [${lo}, ${hi})`] = hashOf(memory.pieces(vector));
    memory.free(vector);
  };
  new ReplicaSteps(engine, loader, memory, replicas, () => false, { ...quiet, node }).run(0, held);
  return nodes;
}

const sizes = fc.record({ replicas: fc.integer({ min: 1, max: 11 }), threads: fc.integer({ min: 1, max: 5 }), isCut: fc.boolean() });

it('sends the nodes and the bits of one thread, whatever the replicas, the threads and their order', () => {
  fc.assert(
    fc.property(sizes, fc.infiniteStream(fc.nat()), fc.infiniteStream(fc.boolean()), ({ replicas, threads, isCut }, order, holds) => {
      const held = Array.from({ length: replicas }, (_, replica) => replica).filter(() => holds.next().value);
      if (held.length === 0) return;
      const { memory, seatNodes, nodes, work, isBusy } = seat(threads, replicas, isCut ? ONE_CHUNK : undefined);
      seatNodes.step(0, held);
      while (isBusy()) work(order.next().value! % threads);
      expect(nodes).toEqual(alone(replicas, held));
      expect(memory.bytesInUse).toBe(0);
    }),
    { numRuns: 60 },
  );
});

it('lets go of a round that others have committed, also of what is being added up', () => {
  fc.assert(
    fc.property(sizes, fc.infiniteStream(fc.nat()), fc.nat({ max: 12 }), ({ replicas, threads }, order, after) => {
      const { memory, seatNodes, nodes, work, isBusy } = seat(threads, replicas);
      const held = Array.from({ length: replicas }, (_, replica) => replica);
      seatNodes.step(0, held);
      for (let i = 0; i < after; i++) work(order.next().value! % threads);
      seatNodes.committed(0);
      seatNodes.step(1, held);
      while (isBusy()) work(order.next().value! % threads);
      expect(nodes[`1 [0, ${replicas})`]).toBe(alone(replicas, held)[`0 [0, ${replicas})`]);
      expect(memory.bytesInUse).toBe(0);
    }),
    { numRuns: 60 },
  );
});

it('a worker that has all replicas holds no more vectors than its run is planned with', () => {
  for (let replicas = 1; replicas <= 40; replicas++)
    for (let threads = 2; threads <= Math.min(replicas, 9); threads++) {
      const share = (thread: number): number => Math.floor((thread * replicas) / threads);
      const all = Array.from({ length: threads }, (_, thread) =>
        vectorsFor(
          replicas,
          Array.from({ length: share(thread + 1) - share(thread) }, (_each, i) => share(thread) + i),
        ),
      );
      const planned = gradientVectors({ replicas, strategy: { kind: 'mirrored', mode: 'sync', threads } });
      expect(
        all.reduce((sum, vectors) => sum + vectors),
        `${replicas} replicas in ${threads} threads`,
      ).toBeLessThanOrEqual(planned);
    }
});
