/** Real processes, modes async and ssp: a primary is killed in mid-run, its standby takes over, and no work item that was counted is lost. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { RunSpecInput } from '@paceline/spec';
import { DataPlane, type RunView } from '@paceline/testkit';

const ROUNDS = 60;
const BATCH = 128;
const specOf = (mode: 'async' | 'ssp'): RunSpecInput => ({
  model: 'mlp',
  globalBatch: BATCH,
  replicas: 4,
  length: { rounds: ROUNDS },
  seed: 7,
  strategy: { kind: 'parameter-server', mode, stalenessBound: 2, servers: 2, standby: 1, accumulate: 1 },
});

let plane: DataPlane;
beforeAll(async () => {
  plane = await DataPlane.start({ servers: 4, workers: 2 });
}, 90_000);
afterAll(() => plane?.stop());

const events = (run: RunView, type: string) =>
  run.entries.flatMap((entry) => (entry.kind === 'event' && entry.type === type ? [entry] : []));

test.each([
  { mode: 'async', index: 0, signal: 'SIGKILL' },
  { mode: 'async', index: 1, signal: 'SIGKILL' },
  { mode: 'ssp', index: 0, signal: 'SIGKILL' },
  { mode: 'ssp', index: 1, signal: 'SIGKILL' },
  { mode: 'async', index: 0, signal: 'SIGTERM' },
  { mode: 'ssp', index: 1, signal: 'SIGTERM' },
] as const)(
  'mode $mode, $signal of primary $index: its standby goes on within two seconds',
  { timeout: 180_000 },
  async ({ mode, index, signal }) => {
    const run = await plane.train(specOf(mode));
    await plane.until(run, 'both standbys', 60_000, () => events(run, 'standby.ready').length === 2);
    await plane.until(run, 'round 8', 60_000, () => (run.state?.round ?? 0) >= 8);
    const victim = plane.servers.find((server) => server.ready.id === run.servers[index]!.serverId)!;
    const killedAtMs = Date.now();
    await victim.kill(signal);
    const result = await plane.finished(run, 90_000);
    expect([victim.child.signalCode, victim.child.exitCode]).toEqual(signal === 'SIGKILL' ? [signal, null] : [null, 0]);
    expect(events(run, 'standby.promoted')).toMatchObject([{ data: { server: index, term: 2 } }]);
    expect(events(run, 'round.stalled')).toEqual([]);
    const next = run.entries.find((entry) => entry.kind === 'metric' && entry.atMs > events(run, 'standby.promoted')[0]!.atMs)!;
    console.log(`mode ${mode}, primary ${index}: ${next.atMs - killedAtMs} ms from ${signal} to the next four counted work items`);
    expect(next.atMs - killedAtMs).toBeLessThan(2_000);
    // Each round once, with all of its examples: nothing was lost, nothing counted twice.
    const rows = run.entries.flatMap((entry) => (entry.kind === 'ledger' ? [entry] : []));
    const rounds = rows.flatMap(({ fromRound, toRound }) => Array.from({ length: toRound - fromRound + 1 }, (_, i) => fromRound + i));
    expect(rounds).toEqual(Array.from({ length: ROUNDS }, (_, round) => round));
    expect(rows.reduce((sum, { examples }) => sum + examples, 0)).toBe(ROUNDS * BATCH);
    expect(result).toMatchObject({ rounds: ROUNDS, trainedExamples: ROUNDS * BATCH });
    await plane.addServer(); // for the next test
  },
);
