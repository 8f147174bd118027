/** Checkpoints, pauses, stops and scaling of the real machines, in one process. */
import { expect, test } from 'vitest';
import { CHECKPOINT_ROWS, RoundCluster, rowsNeverTaken, type RoundClusterOptions } from './round-cluster.js';
import { expectedWeights } from './tiny-model.js';

const base: RoundClusterOptions = {
  replicas: 4,
  servers: 2,
  rounds: 12,
  examples: 37,
  checkpoints: { everyRounds: 5, everyMs: 0, deadlineMs: 60_000, final: true },
};

const events = (cluster: RoundCluster): { type: string; data: Record<string, unknown> }[] =>
  cluster.journal.batch(1000).flatMap((entry) => (entry.kind === 'event' ? [{ type: entry.type, data: entry.data }] : []));

test('a run that begins with any checkpoint of another ends with the same bits', async () => {
  const first = new RoundCluster({ ...base, checkpoints: { ...base.checkpoints!, everyRounds: 1 } });
  first.join();
  first.join();
  await first.finished();
  expect([...first.checkpoints.keys()]).toEqual(Array.from({ length: 12 }, (_, i) => i + 1));
  for (const [generation, restore] of first.checkpoints) {
    const second = new RoundCluster({ ...base, servers: 1 + (generation % 3), restore });
    const worker = second.join();
    await second.finished();
    expect(second.outcome?.outcome).toBe('finished');
    expect(second.coordinator.ledger.trainedExamples).toBe(base.rounds * base.examples);
    expect(second.weightsOf(worker)).toEqual(expectedWeights(base));
  }
});

test('checkpoints come every n rounds and at the end, and say so', async () => {
  const cluster = new RoundCluster(base);
  cluster.join();
  await cluster.finished();
  const written = events(cluster).filter(({ type }) => type === 'checkpoint.written');
  expect(written.map(({ data }) => [data['round'], data['reason']])).toEqual([
    [5, 'cadence'],
    [10, 'cadence'],
    [12, 'final'],
  ]);
});

test('a pause finishes its round, checkpoints, and ends the attempt as paused; what follows has the same bits', async () => {
  const cluster = new RoundCluster(base);
  cluster.join();
  await cluster.round(3);
  cluster.coordinator.pause();
  await cluster.finished();
  expect(cluster.outcome?.outcome).toBe('paused');
  const { generation } = [...cluster.checkpoints.values()].at(-1)!;
  expect(events(cluster).find(({ type }) => type === 'run.paused')?.data).toEqual({ round: generation, redone: 0 });
  const resumed = new RoundCluster({ ...base, restore: cluster.checkpoints.get(generation)! });
  const worker = resumed.join();
  await resumed.finished();
  expect(resumed.weightsOf(worker)).toEqual(expectedWeights(base));
});

test('a pause whose round does not come stops on the checkpoint before and says how many rounds are redone', async () => {
  const cluster = new RoundCluster(base);
  const worker = cluster.join();
  worker.onNode = (round) => round < 7;
  await cluster.round(7);
  cluster.coordinator.pause();
  cluster.coordinator.memberMessage(worker.id, { type: 'heartbeat', progress: 1 });
  cluster.advance(2_000);
  expect(cluster.outcome).toBeUndefined();
  cluster.coordinator.memberMessage(worker.id, { type: 'heartbeat', progress: 2 });
  cluster.advance(2_600);
  expect(cluster.outcome?.outcome).toBe('paused');
  expect(events(cluster).find(({ type }) => type === 'run.paused')?.data).toEqual({ round: 5, redone: 2 });
});

test('a pause before anything is trained ends at once', () => {
  const cluster = new RoundCluster(base);
  cluster.coordinator.pause();
  expect(cluster.outcome?.outcome).toBe('paused');
});

test('a checkpoint that is not written within its deadline is an event, and the run goes on', async () => {
  const cluster = new RoundCluster({ ...base, rounds: 40, holdsCheckpoints: true, checkpoints: { ...base.checkpoints!, final: false } });
  cluster.join();
  await cluster.round(6);
  for (let i = 0; i < 35 && !events(cluster).some(({ type }) => type === 'checkpoint.failed'); i++) {
    cluster.coordinator.memberMessage('w0', { type: 'heartbeat', progress: i });
    cluster.advance(2_000);
  }
  expect(events(cluster).some(({ type }) => type === 'checkpoint.failed')).toBe(true);
  await cluster.finished();
  expect(cluster.outcome?.outcome).toBe('finished');
});

test('a server that is told to end takes a last checkpoint and ends the attempt with the cause STOPPED', async () => {
  const cluster = new RoundCluster(base);
  cluster.join();
  await cluster.round(2);
  cluster.coordinator.serverMessage(1, { type: 'stopping', reason: 'SIGTERM' });
  await cluster.finished();
  expect(cluster.outcome?.outcome).toBe('failed');
  const { generation } = [...cluster.checkpoints.values()].at(-1)!;
  expect(events(cluster).at(-1)?.data).toMatchObject({ cause: 'STOPPED', newest: generation });
});

test('a gradient with NaN is not applied: FAILED, naming the round', async () => {
  const cluster = new RoundCluster(base);
  const worker = cluster.join();
  worker.spoil = (round, replica) => (round === 4 && replica === 2 ? NaN : undefined);
  await cluster.finished();
  expect(cluster.outcome).toMatchObject({ outcome: 'failed' });
  expect(cluster.outcome?.message).toContain('round 4');
  expect(events(cluster).at(-1)?.data).toMatchObject({ cause: 'NON_FINITE' });
});

test('scaled 1 → 4 → 2 → 3: surplus members go at a commit, bits stay', async () => {
  const options = { ...base, rounds: 40 };
  const cluster = new RoundCluster(options);
  cluster.join();
  await cluster.round(6);
  for (let i = 0; i < 3; i++) cluster.join();
  await cluster.round(14);
  expect(cluster.coordinator.seats().filter(({ replicas }) => replicas.length > 0)).toHaveLength(4);
  cluster.coordinator.setWorkerTarget(2);
  await cluster.round(22);
  expect(cluster.coordinator.seats()).toHaveLength(2);
  cluster.coordinator.setWorkerTarget(3);
  const last = cluster.join('late', 2);
  await cluster.finished();
  expect(last.computed.length).toBeGreaterThan(0);
  expect(cluster.weightsOf(last)).toEqual(expectedWeights(options));
});

test('the rows of checkpoints and stops were taken by some test', () => {
  expect(rowsNeverTaken().filter((row) => CHECKPOINT_ROWS.includes(row))).toEqual([]);
});
