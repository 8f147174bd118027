/** `strategy: auto` on real processes: the first rounds are measured, another strategy goes on, and the weights are those of every strategy. */
import type { RunSpecInput } from '@paceline/spec';
import { Stack } from '@paceline/testkit';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { eventsOf, expectComplete, ofRounds, reference, runOf, typesOf, untilRound, untilStatus } from './whole-runs.js';

/** `npm run soak` has these too. */
const IS_SOAK = process.env['PACELINE_SOAK'] === '1';

const ROUNDS = 24;
const SPEC = ofRounds(ROUNDS);
const auto: RunSpecInput = { ...SPEC, strategy: { kind: 'auto', startWorkers: 2 } };
/** Two and a half megabytes a second: an exchange takes longer than the steps of a busy machine. */
const SLOW = { PACELINE_LINK: '20mbit,1ms' };

let stack: Stack;
beforeAll(async () => {
  if (IS_SOAK) await Promise.all([reference(SPEC), reference(ofRounds(200))]);
  stack = await Stack.start({ servers: 0, workers: 0, transport: 'tcp' });
});
afterAll(() => stack?.stop());

/** The two round times in the reason, in ms: the measured one with parameter servers, and the expected one with the shards on the workers. */
function roundsIn(why: string): { readonly byServers: number; readonly byWorkers: number } {
  const found = /with parameter-server a round takes ([\d.]+) ms: .*; with multi-worker-mirrored ([\d.]+) ms are expected/.exec(why);
  if (!found) throw new Error(`the reason names no two round times: ${why}`);
  return { byServers: Number(found[1]), byWorkers: Number(found[2]) };
}

/** Checks that the pick follows from the numbers in its reason. */
function expectPickFits({ kind, why }: { readonly kind: string; readonly why: string }): void {
  const { byServers, byWorkers } = roundsIn(why);
  const megabytesPerSecond = Number(/which is ([\d.]+) MB\/s/.exec(why)?.[1] ?? Infinity);
  if (kind === 'multi-worker-mirrored') {
    const saved = Number(/: that saves (\d+) %$/.exec(why)?.[1]);
    expect(byWorkers, why).toBeLessThan(byServers);
    // A switch has to save 15 % and 3 ms, or 30 % on one core; the times are printed in whole ms from 10 ms on.
    expect(saved, why).toBeGreaterThanOrEqual(/; (1 core for each worker|[23] cores for 2 workers)/.test(why) ? 30 : 15);
    expect(megabytesPerSecond, why).toBeLessThanOrEqual(260);
    expect(byServers - byWorkers, why).toBeGreaterThanOrEqual(2);
    expect(Math.abs(saved / 100 - (byServers - byWorkers) / byServers), why).toBeLessThan(2 / byServers + 0.01);
    return;
  }
  if (kind === 'hybrid') return expect(why).toMatch(/; with hybrid .* in \d+ compute threads of each worker; .*: hybrid saves \d+ %; /);
  expect(kind, why).toBe('parameter-server');
  if (why.endsWith(': the wait is work of the processes, which the links do not bound'))
    return expect(megabytesPerSecond, why).toBeGreaterThanOrEqual(260);
  const [, percent] = /: that saves less than (\d+) % and 3 ms$/.exec(why) ?? [];
  expect(percent, why).toBeDefined();
  expect(byServers - byWorkers, why).toBeLessThan(Math.max(3, (Number(percent) / 100) * byServers) + 1.5);
}

async function pickedOf(id: string): Promise<{ readonly kind: string; readonly why: string }> {
  const picks = (await eventsOf(stack, id)).filter(({ type }) => type === 'strategy.picked');
  expect(picks, 'it is picked once').toHaveLength(1);
  const { pickedStrategy, spec } = await runOf(stack, id);
  expect(picks[0]!.data).toEqual(pickedStrategy);
  expect((spec as { strategy: object }).strategy).toMatchObject({ kind: pickedStrategy!.kind });
  return pickedStrategy!;
}

test.runIf(IS_SOAK)('over a slow link of the server the workers take its shard over, and a later attempt keeps that', async () => {
  await stack.addServer(SLOW);
  await Promise.all([stack.addWorker(SLOW), stack.addWorker(SLOW)]);
  await stack.haveWorkers(2);
  const { id } = await stack.client.createRun({ ...auto, checkpoint: { everyRounds: 5 } });
  await stack.until('the second attempt', 60_000, async () => {
    const { attempt, status, statusReason, pickedStrategy } = await runOf(stack, id);
    return attempt === 2 || { attempt, status, statusReason, pickedStrategy };
  });
  const { kind, why } = await pickedOf(id);
  expect(kind).toBe('multi-worker-mirrored');
  expect(why).toMatch(/a round takes \d.* step, .* exchange of .* latency, which is .* MB\/s; .*that saves \d\d %$/);
  expectPickFits({ kind, why });
  const { spec, servers } = await untilRound(stack, id, 7, 90_000, 2);
  expect((spec as { strategy: object }).strategy).toMatchObject({ workers: 2, mode: 'sync', accumulate: 1 });
  expect(servers.map(({ serverId }) => serverId).sort()).toEqual(stack.workers.map(({ ready }) => ready.id).sort());
  const lost = stack.workers.find(({ ready }) => ready.id === servers.find(({ index }) => index === 1)!.serverId)!;
  await stack.end(lost, 'SIGKILL');
  await stack.addWorker(SLOW);
  await expectComplete(stack, id, SPEC, { attempts: 3, deadlineMs: 120_000 });
  await pickedOf(id);
});

test.runIf(IS_SOAK)('local updates are picked where they are allowed: a later attempt begins with them, and has fewer rounds', async () => {
  const { id } = await stack.client.createRun({
    ...auto,
    strategy: { kind: 'auto', startWorkers: 2, allowedLocalSteps: 8 },
    codec: { kind: 'auto' },
    learningRate: { schedule: 'cosine' },
  });
  const { attempt, result, spec, progress } = await untilStatus(stack, id, ['SUCCEEDED'], 120_000);
  expect(await pickedOf(id)).toMatchObject({
    kind: 'local-update',
    why: expect.stringMatching(/local updates: .* every 8 steps: that saves \d\d %/) as string,
  });
  expect([attempt, result!.rounds, progress.totalRounds]).toEqual([2, ROUNDS / 8, ROUNDS / 8]);
  expect(spec).toMatchObject({
    strategy: { localSteps: 8, innerState: 'keep', outerLearningRate: 1.5 },
    codec: { kind: 'top-k', errorFeedback: true, parameters: 'int8' },
    length: { rounds: ROUNDS / 8 },
    learningRate: { decayRounds: ROUNDS / 8 },
  });
});

test.runIf(IS_SOAK)('with codec auto the codec is picked first, and the strategy by rounds that have it', async () => {
  const { id } = await stack.client.createRun({ ...auto, codec: { kind: 'auto' }, checkpoint: { everyRounds: 5 } });
  const { attempt, codec, result } = await untilStatus(stack, id, ['SUCCEEDED'], 120_000);
  const picked = await pickedOf(id);
  expectPickFits(picked);
  expect([attempt, result!.rounds]).toEqual([picked.kind === 'parameter-server' ? 1 : 2, ROUNDS]);
  expect(codec!.kind, codec!.why).toMatch(/^int/);
  expect(picked.why).toContain(`gradients in ${codec!.kind} and parameters in ${codec!.parameters}, as codec auto has picked`);
  const events = await eventsOf(stack, id);
  const choices = events.filter(({ type }) => type === 'codec.picked' || type === 'strategy.measured');
  expect(typesOf(choices), 'once each, in this order').toEqual(['codec.picked', 'strategy.measured']);
  expect(choices[1]!.data).toMatchObject({ codec: { kind: codec!.kind, parameters: codec!.parameters } });
});

test.runIf(IS_SOAK)(
  'on one machine the run goes on as was measured: with its server in the same attempt, or else in another one',
  async () => {
    for (const member of [...stack.workers, ...stack.servers]) await stack.end(member, 'SIGTERM');
    await stack.addServer();
    await stack.haveWorkers(2);
    const long = ofRounds(200); // fast ones, of which workers tell with their heartbeats
    const { id } = await stack.client.createRun({ ...long, strategy: auto.strategy });
    await stack.until('the pick', 60_000, async () => (await runOf(stack, id)).pickedStrategy !== null);
    const picked = await pickedOf(id);
    // How much of a round is exchange is for the machine to say; the pick has to follow from it.
    expectPickFits(picked);
    const isServer = picked.kind === 'parameter-server';
    await expectComplete(stack, id, long, { attempts: isServer ? 1 : 2 });
  },
);

test('what only one strategy is there for is picked at once, with the reason', async () => {
  await stack.haveWorkers(2);
  for (const server of [...stack.servers]) await stack.end(server, 'SIGTERM');
  await stack.until('no server in the api', 30_000, async () => (await stack.client.servers()).every(({ status }) => status === 'LOST'));
  const { id } = await stack.client.createRun({ ...auto, length: { rounds: 1_000 } });
  expect(await pickedOf(id)).toMatchObject({
    kind: 'multi-worker-mirrored',
    why: expect.stringMatching(/no parameter server is connected/) as string,
  });
  await stack.client.cancelRun(id);
});
