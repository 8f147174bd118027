/** What every run in modes async and ssp must come to, and what a lone worker must. */
import assert from 'node:assert/strict';
import { RATE, STATE, TRAINABLE, tinyStep } from './tiny-model.js';
import type { AsyncCluster } from './async-cluster.js';

const f32 = Math.fround;

/** Rows of the ledger, one per round of the schedule. */
export function ledgerOf(cluster: AsyncCluster): number[] {
  return cluster
    .entries()
    .flatMap((entry) => (entry.kind === 'ledger' ? Array.from({ length: entry.toRound - entry.fromRound + 1 }, () => entry) : []))
    .map((entry) => (entry.toRound === entry.fromRound ? entry.examples : NaN));
}

/** I2 and I4: every work item once at every shard that owns chunks, every example once in the ledger, and the run finished. */
export function expectComplete(cluster: AsyncCluster, dropped: readonly string[] = []): void {
  const { rounds, replicas, servers } = cluster.options;
  assert.deepEqual(cluster.outcome, { outcome: 'finished', message: 'the run is finished' });
  for (let server = 0; server < Math.min(servers, 2); server++) {
    const applied = cluster.applied.filter((update) => update.server === server).map(({ round, replica }) => `${round}/${replica}`);
    assert.equal(new Set(applied).size, applied.length, 'a work item was applied twice');
    const wanted = Array.from({ length: rounds * replicas }, (_, t) => ({ round: Math.floor(t / replicas), replica: t % replicas }))
      .filter(({ round, replica }) => cluster.examplesOf(round, replica) > 0)
      .map(({ round, replica }) => `${round}/${replica}`)
      .filter((key) => !dropped.includes(key));
    assert.deepEqual([...applied].sort(), wanted.sort());
  }
  const ranges = cluster.entries().filter((entry) => entry.kind === 'ledger');
  let next = cluster.options.restore?.generation ?? 0;
  for (const { fromRound, toRound } of ranges) {
    assert.equal(fromRound, next);
    next = toRound + 1;
  }
  assert.equal(next, rounds);
  const lost = dropped.map((key) => key.split('/').map(Number) as [number, number]).map(([k, r]) => cluster.examplesOf(k, r));
  const all = Array.from({ length: rounds }, (_, round) => cluster.examplesIn(round)).reduce((a, b) => a + b, 0);
  const trained = all - lost.reduce((a, b) => a + b, 0);
  assert.equal(
    ranges.reduce((sum, { examples }) => sum + examples, 0),
    trained,
  );
  assert.equal(cluster.coordinator.ledger.trainedExamples, trained);
}

/** Plain sequential SGD over the work items in order, in float32. */
export function sequentialWeights(cluster: AsyncCluster): Float32Array {
  const weights = new Float32Array(TRAINABLE + STATE);
  for (let round = 0; round < cluster.options.rounds; round++) {
    for (let replica = 0; replica < cluster.options.replicas; replica++) {
      const count = cluster.examplesOf(round, replica);
      if (count === 0) continue;
      const out = new Float32Array(weights.length);
      tinyStep(weights, round, replica, count, out);
      const mean = f32(1 / count);
      for (let i = 0; i < weights.length; i++) {
        const g = f32(out[i]! * mean);
        if (i < TRAINABLE) weights[i] = f32(weights[i]! - f32(g * f32(RATE)));
        else weights[i] = f32(weights[i]! + f32(g - weights[i]!));
      }
    }
  }
  return weights;
}
