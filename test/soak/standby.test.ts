/** Real processes: a primary is killed or stopped in mid-run, its standby takes over, and the weights are those of an undisturbed run. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { parseRunSpec, type RunSpecInput } from '@paceline/spec';
import { DataPlane, type RunView } from '@paceline/testkit';
import { trainReference } from '../numerics/reference.js';

const ROUNDS = 60;
const SPEC: RunSpecInput = {
  model: 'mlp',
  globalBatch: 128,
  replicas: 4,
  length: { rounds: ROUNDS },
  seed: 7,
  strategy: { kind: 'parameter-server', mode: 'sync', servers: 2, standby: 1, accumulate: 1 },
};

let plane: DataPlane;
let undisturbed: string;
beforeAll(async () => {
  const parsed = parseRunSpec(SPEC);
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.issues));
  undisturbed = (await trainReference(parsed.spec)).weightsSha256;
  plane = await DataPlane.start({ servers: 4, workers: 2 });
}, 90_000);
afterAll(() => plane?.stop());

async function begun(): Promise<RunView> {
  const run = await plane.train(SPEC);
  await plane.until(run, 'both standbys', 60_000, () => events(run, 'standby.ready').length === 2);
  await plane.until(run, 'round 8', 60_000, () => (run.state?.round ?? 0) >= 8);
  return run;
}

const events = (run: RunView, type: string) =>
  run.entries.flatMap((entry) => (entry.kind === 'event' && entry.type === type ? [entry] : []));
const processOf = (serverId: string) => plane.servers.find((server) => server.ready.id === serverId)!;
/** Rounds of the ledger, in the order in which they were written. */
const ledger = (run: RunView): number[] =>
  run.entries.flatMap((entry) =>
    entry.kind === 'ledger' ? Array.from({ length: entry.toRound - entry.fromRound + 1 }, (_, i) => entry.fromRound + i) : [],
  );

for (const [signal, index] of [
  ['SIGKILL', 0],
  ['SIGKILL', 1],
  ['SIGTERM', 0],
  ['SIGTERM', 1],
] as const)
  test(`${signal} of primary ${index}: its standby goes on within two seconds, and no committed round is lost`, async () => {
    const run = await begun();
    const victim = processOf(run.servers[index]!.serverId);
    const killedAtMs = Date.now();
    await victim.kill(signal);
    const result = await plane.finished(run, 90_000);
    expect([victim.child.signalCode, victim.child.exitCode]).toEqual(signal === 'SIGKILL' ? [signal, null] : [null, 0]);
    expect(events(run, 'standby.promoted')).toMatchObject([{ data: { server: index, term: 2 } }]);
    const next = run.entries.find((entry) => entry.kind === 'metric' && entry.atMs > events(run, 'standby.promoted')[0]!.atMs)!;
    console.log(`primary ${index}: ${next.atMs - killedAtMs} ms from ${signal} to the next committed round`);
    expect(next.atMs - killedAtMs).toBeLessThan(2_000);
    expect(ledger(run)).toEqual(Array.from({ length: ROUNDS }, (_, round) => round));
    expect(result.weightsSha256).toBe(undisturbed);
    await plane.addServer(); // for the next test
  }, 180_000);

test('SIGSTOP of primary 1 until it is replaced, then SIGCONT: it changes nothing', async () => {
  const run = await begun();
  const { child } = processOf(run.servers[1]!.serverId);
  child.kill('SIGSTOP');
  try {
    await plane.until(run, 'the takeover', 25_000, () => events(run, 'standby.promoted').length === 1);
  } finally {
    child.kill('SIGCONT');
  }
  const result = await plane.finished(run, 90_000);
  expect(events(run, 'standby.lost').map(({ message }) => message)).toEqual([expect.stringContaining('nothing heard for') as string]);
  expect(result.weightsSha256).toBe(undisturbed);
}, 180_000);

test('SIGTERM of all servers: no standby takes over, and a checkpoint of the present round is written', async () => {
  const run = await begun();
  const all = [...plane.servers];
  for (const { child } of all) child.kill('SIGTERM');
  await plane.until(run, 'the end of the attempt', 15_000, () => events(run, 'run.failed').length === 1);
  expect(events(run, 'run.failed')).toMatchObject([{ data: { cause: 'STOPPED', redone: 0 } }]);
  expect(events(run, 'standby.promoted')).toEqual([]);
  for (const server of all) await server.kill('SIGKILL');
}, 180_000);
