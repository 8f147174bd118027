/** Nodes of several threads against those of one: the same nodes, the same bits, and all memory given back. The threads are played; their steps are real. */
import { gradientVectors } from '@paceline/spec';
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { alone, ONE_CHUNK, seat } from './thread-nodes.fixture.js';
import { vectorsFor } from './thread-nodes.js';

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
      expect(nodes[`1 [0, ${replicas})`]).toBe(alone(replicas, held, 2)[`1 [0, ${replicas})`]);
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
