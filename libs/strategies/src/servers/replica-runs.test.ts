/** The coordinator's part of `run`, over workers that only say where their replicas are. Real ones: parameter-server-run.test.ts. */
import { nodesOf, replicasOf, type Content, type Received } from '@paceline/collectives';
import { split } from '@paceline/learning';
import { expect, it } from 'vitest';
import { ENDED, SUM } from '../threads/meeting.js';
import type { Reached } from './messages.js';
import { runInReplicas } from './replica-runs.js';

const over = { isOver: true, point: [ENDED, 0, 0], failures: [] } as const;

it('adds up over the tree of all replicas, however many nodes of it a worker has', async () => {
  for (const [workers, replicas] of [
    [3, 5],
    [3, 6],
    [4, 7],
  ] as const) {
    const values = Array.from({ length: replicas }, (_, i) => Math.fround(0.1 * 3 ** i * (i % 2 ? -1 : 1)));
    const sum = (lo: number, hi: number): number =>
      hi - lo === 1 ? values[lo]! : Math.fround(sum(lo, split(lo, hi)) + sum(split(lo, hi), hi));
    const shares = Array.from({ length: workers }, (_, worker) => ({
      replicas,
      ...replicasOf(replicas, workers, worker),
      nodes: nodesOf(replicas, workers, worker),
    }));
    const told: [string, Content][] = [];
    const reached = (name: string, worker: number): Received => {
      if (name === 'run') {
        const parts = shares[worker]!.nodes.map(({ lo, hi }) => new Uint8Array(Float32Array.of(sum(lo, hi)).buffer));
        return { body: { isOver: false, point: [SUM, 1, 7], failures: [] } satisfies Reached, parts };
      }
      return { body: over, parts: [Uint8Array.of(worker)] };
    };
    const ask = (name: string, content: (worker: number) => Content): Promise<Received[]> => {
      told.push([name, content(0)]);
      return Promise.resolve(shares.map((_, worker) => reached(name, worker)));
    };
    const args = shares.map(() => new Uint8Array());
    const { results, failures } = await runInReplicas(ask, shares, { module: 'data:,', name: 'step' }, args);
    expect(failures).toEqual([]);
    expect(results).toEqual(shares.map((_, worker) => Uint8Array.of(worker)));
    const [, , [, { body, parts }]] = told as [unknown, unknown, [string, Content]];
    expect(body).toEqual({ goesOn: true });
    const { buffer, byteOffset } = parts![0]!;
    expect([...new Float32Array(buffer as ArrayBuffer, byteOffset, 1)]).toEqual([sum(0, replicas)]);
  }
});
