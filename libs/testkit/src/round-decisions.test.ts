/** Plan two-phase of the real machines, in one process: clipping, rounds that are left out, backup replicas. */
import { expect, test } from 'vitest';
import { DECISION_ROWS, RoundCluster, rowsNeverTaken, type RoundClusterOptions } from './round-cluster.js';
import { expectedWeights } from './tiny-model.js';

const base: RoundClusterOptions = { replicas: 4, servers: 2, rounds: 8, examples: 37 };

const ledgerOf = (cluster: RoundCluster): { examples: number; dropped: number } => {
  let examples = 0;
  let dropped = 0;
  for (const entry of cluster.journal.batch(10_000)) {
    if (entry.kind !== 'ledger') continue;
    examples += entry.examples;
    dropped += entry.dropped ?? 0;
  }
  return { examples, dropped };
};

test('two phases that clip nothing have the bits of the streaming plan, with 1, 2 and 4 servers', async () => {
  for (const servers of [1, 2, 4]) {
    const cluster = new RoundCluster({ ...base, servers, twoPhase: { backupReplicas: 0 } });
    const worker = cluster.join();
    cluster.join();
    await cluster.finished();
    expect(cluster.weightsOf(worker)).toEqual(expectedWeights(base));
    expect(new Set(cluster.applications).size).toBe(cluster.applications.length);
  }
});

test('clipping by the global norm gives the same bits on any number of servers and workers', async () => {
  const results: Float32Array[] = [];
  for (const [servers, workers] of [
    [1, 1],
    [2, 2],
    [4, 3],
  ] as const) {
    const cluster = new RoundCluster({ ...base, servers, twoPhase: { backupReplicas: 0, clip: { clipGlobalNorm: 3 } } });
    for (let i = 0; i < workers; i++) cluster.join();
    await cluster.finished();
    results.push(cluster.weightsOf(cluster.members[0]!));
  }
  expect(results[1]).toEqual(results[0]);
  expect(results[2]).toEqual(results[0]);
  expect(results[0]).not.toEqual(expectedWeights(base));
});

test('a worker killed between the two phases changes nothing', async () => {
  const cluster = new RoundCluster({ ...base, twoPhase: { backupReplicas: 0 } });
  const victim = cluster.join();
  const other = cluster.join();
  victim.onNode = (round) => {
    if (round === 3) setImmediate(() => victim.kill());
    return true;
  };
  await cluster.finished();
  expect(cluster.weightsOf(other)).toEqual(expectedWeights(base));
});

test('a round with NaN is left out: nothing moves, its examples are logged as dropped', async () => {
  const cluster = new RoundCluster({ ...base, twoPhase: { backupReplicas: 0, skipsNonFinite: true } });
  const worker = cluster.join();
  worker.spoil = (round, replica) => (round === 4 && replica === 1 ? Infinity : undefined);
  await cluster.finished();
  expect(cluster.outcome?.outcome).toBe('finished');
  expect(cluster.weightsOf(worker).every(Number.isFinite)).toBe(true);
  expect(ledgerOf(cluster)).toEqual({ examples: 7 * 37, dropped: 37 });
  expect(cluster.applications.some((name) => name.startsWith('4/'))).toBe(false);
  expect(cluster.journal.batch(1000).some((entry) => entry.kind === 'event' && entry.type === 'round.skipped')).toBe(true);
});

test('NaN where the run wants to fail: FAILED before anything is applied', async () => {
  const cluster = new RoundCluster({ ...base, twoPhase: { backupReplicas: 0 } });
  const worker = cluster.join();
  worker.spoil = (round) => (round === 4 ? NaN : undefined);
  await cluster.finished();
  expect(cluster.outcome?.outcome).toBe('failed');
  expect(cluster.applications.some((name) => name.startsWith('4/'))).toBe(false);
});

test('with one backup replica a worker that never answers delays nobody; what it had is logged as dropped', async () => {
  const cluster = new RoundCluster({ ...base, twoPhase: { backupReplicas: 1 } });
  const slow = cluster.join();
  for (let i = 0; i < 3; i++) cluster.join();
  slow.onNode = (round) => round === 0;
  await cluster.finished();
  expect(cluster.outcome?.outcome).toBe('finished');
  const { examples, dropped } = ledgerOf(cluster);
  expect(examples + dropped).toBe(base.rounds * base.examples);
  expect(dropped).toBeGreaterThan(0);
  expect(cluster.coordinator.ledger.trainedExamples).toBe(examples);
  expect(cluster.coordinator.ledger.state().exceptions.reduce((sum, row) => sum + row.examples, 0)).toBe(dropped);
});

test('with backup replicas and everybody in time, each round counts exactly R − b, the same on all shards', async () => {
  const cluster = new RoundCluster({ ...base, replicas: 5, servers: 3, twoPhase: { backupReplicas: 2 } });
  cluster.join();
  cluster.join();
  await cluster.finished();
  const rounds = cluster.journal.batch(10_000).filter((entry) => entry.kind === 'metric');
  expect(rounds).toHaveLength(base.rounds);
  expect(new Set(cluster.applications).size).toBe(cluster.applications.length);
  const weights = cluster.members.map((member) => cluster.weightsOf(member));
  expect(weights[1]).toEqual(weights[0]);
});

test('a ragged round with fewer examples than backup replicas counts replicas that have some: weights stay finite', async () => {
  for (const examples of [1, 2, 3, 5]) {
    const cluster = new RoundCluster({ ...base, replicas: 5, examples, twoPhase: { backupReplicas: 3 } });
    const workers = [cluster.join(), cluster.join()];
    await cluster.finished();
    expect(cluster.outcome?.outcome).toBe('finished');
    expect(cluster.weightsOf(workers[0]!).every(Number.isFinite), `${examples} examples`).toBe(true);
    const { examples: counted, dropped } = ledgerOf(cluster);
    expect(counted).toBeGreaterThanOrEqual(base.rounds);
    expect(counted + dropped).toBe(base.rounds * examples);
  }
});

test('a decision that comes again changes nothing', async () => {
  const cluster = new RoundCluster({ ...base, twoPhase: { backupReplicas: 0 } });
  const worker = cluster.join();
  await cluster.round(2);
  cluster.shards[0]!['present'].decide({ type: 'decision', round: 1, skip: false, examples: 37, scale: 1, variables: [] });
  await cluster.finished();
  expect(cluster.weightsOf(worker)).toEqual(expectedWeights(base));
});

test('the rows of plan two-phase were taken by some test', () => {
  expect(rowsNeverTaken().filter((row) => DECISION_ROWS.includes(row))).toEqual([]);
});
