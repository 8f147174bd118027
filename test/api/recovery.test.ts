/** Attempts end and others take up: what is restored, what counts, what old ones may still say, and when it is enough. And Redis loses its memory. */
import { describe, expect, it, vi } from 'vitest';
import { Database } from '../../apps/api/src/database/database.js';
import { Queues } from '../../apps/api/src/dispatch/queues.js';
import { Fleet } from '../../apps/api/src/fleet/fleet.js';
import { checkpointWritten, Coordinator, onAFreshPlane, type ScriptedFleet } from './scripted-fleet.js';
import { createRun, until, untilStatus, type ControlPlane } from './services.js';

let plane: ControlPlane;
let fleet: ScriptedFleet;
onAFreshPlane((given) => ({ plane, fleet } = given));

const RUN = `query($id: ID!) { run(id: $id) {
  status statusReason attempt startedAt finishedAt progress { round phase }
  ledger { committedRounds committedExamples expectedExamples }
  metrics(names: ["loss"], maxPoints: 2000) { points { round rounds } }
  statusHistory { from to attempt }
} }`;
const runOf = async (id: string) => (await plane.admin.gql(RUN, { id })).data.run;
const waiting = (kind: 'placement' | 'step-task') => plane.api.app.get(Queues).waitingIds(kind);
const statusOf = (id: string, status: string) => untilStatus(() => runOf(id), status);
const running = (...args: [spec?: object, options?: { port: number }]) => fleet.training(plane, ...args);
const failed = (cause: string) => ({ kind: 'event' as const, type: 'run.failed' as const, message: `failed: ${cause}`, data: { cause } });
const placementOf = async (id: string) => {
  const held = await fleet.takePlacement();
  expect(held.payload.runId).toBe(id);
  return held;
};

describe('an attempt that loses its server', () => {
  it('charges no restart when another run had a part on it too, as another server of the run tells; else one', async () => {
    const restartsOf = async (id: string): Promise<number> =>
      (await plane.admin.gql('query($id: ID!) { run(id: $id) { restartsLeft } }', { id })).data.run.restartsLeft;
    const [both, own] = [fleet.beat('server'), fleet.beat('server')];
    const spec = { restarts: 2, strategy: { kind: 'parameter-server', servers: 2 } };
    const start = async (servers: readonly string[]) => {
      const id = await createRun(plane.admin, spec);
      return { id, coordinator: await fleet.claim(id, servers) };
    };
    const [first, second] = [await start([both.id, own.id]), await start([both.id, own.id])];
    const alone = await start([fleet.beat('server').id, own.id]);
    const lost = {
      kind: 'server.failed' as const,
      attempt: 1,
      index: 1,
      code: 'COORDINATOR_LOST',
      message: 'parameter server 0 was lost in round 3',
    };
    await fleet.report({ ...lost, runId: first.id });
    const reason = async (id: string): Promise<string> =>
      (await plane.admin.gql('query($id: ID!) { run(id: $id) { statusHistory { to reason } } }', { id })).data.run.statusHistory.find(
        ({ to }: { to: string }) => to === 'RECOVERING',
      )?.reason ?? '';
    await until('the end of the attempt', async () => (await reason(first.id)) !== '');
    expect(await reason(first.id)).toContain('other runs lost it too, so this is not charged: 2 of 2 restarts are left');
    expect(await restartsOf(first.id)).toBe(2);
    // The other run on it had lost it a moment later: the first one counts though its attempt has ended.
    await fleet.report({ ...lost, runId: second.id });
    await until('the end of the attempt', async () => (await reason(second.id)) !== '');
    expect(await restartsOf(second.id)).toBe(2);
    await fleet.report({ ...lost, runId: alone.id });
    await until('the end of the attempt', async () => (await reason(alone.id)) !== '');
    expect(await reason(alone.id)).toContain('1 of 2 restarts are left');
    for (const { coordinator } of [first, second, alone]) coordinator.fallSilent();
  });

  it('is followed by one that takes up from the newest checkpoint; only the lineage counts, and the old voice changes nothing', async () => {
    const { id, coordinator, server, worker } = await running();
    await coordinator.publish(
      [...coordinator.rounds(0, 9), checkpointWritten(1, 10), ...coordinator.rounds(10, 19), checkpointWritten(1, 20)],
      {
        round: 20,
      },
    );
    await coordinator.publish(coordinator.rounds(20, 29), { round: 30 });
    await coordinator.acknowledged();
    server.stop();
    await fleet.report({ kind: 'goodbye', role: 'server', id: server.id });
    const second = fleet.beat('server');
    const held = await placementOf(id);
    expect(held.payload).toMatchObject({ attempt: 2, index: 0, restore: { runId: id, attempt: 1, round: 20 } });
    expect(await fleet.control(id, 'action')).toBe('1:cancel');
    const waiting = await runOf(id);
    expect(waiting).toMatchObject({ status: 'QUEUED', attempt: 2, progress: { round: 20, phase: 'waiting' } });
    expect(waiting.statusHistory.slice(-2)).toEqual([
      { from: 'RUNNING', to: 'RECOVERING', attempt: 1 },
      { from: 'RECOVERING', to: 'QUEUED', attempt: 2 },
    ]);
    await fleet.report({
      kind: 'server.claimed',
      runId: id,
      attempt: 2,
      address: { index: 0, serverId: second.id, host: '127.0.0.1', port: fleet.port, unixPath: null },
    });
    await held.complete('claimed');
    // The server of the first attempt was not dead after all: what it says is dropped, and it hears so.
    await coordinator.publish([...coordinator.rounds(30, 39), checkpointWritten(1, 40), failed('POISON_ROUND')], { round: 40 });
    await coordinator.acknowledged(true);
    expect(await runOf(id)).toMatchObject({ status: expect.not.stringContaining('FAILED'), ledger: { committedRounds: 20 } });
    coordinator.fallSilent();

    const next = new Coordinator(fleet, id, 2);
    const { payload } = await fleet.takeStepTask();
    expect(payload, 'no seat of the first attempt is left').toMatchObject({ attempt: 2, seat: 0, incarnation: 0 });
    await next.train(worker.id, payload);
    await next.publish(next.rounds(20, 24), { round: 25 });
    await next.acknowledged();
    const run = await runOf(id);
    expect(run).toMatchObject({
      status: 'RUNNING',
      attempt: 2,
      progress: { round: 25 },
      ledger: { committedRounds: 25, committedExamples: 25 * 256, expectedExamples: 25 * 256 },
    });
    const points: { round: number; rounds: number }[] = run.metrics[0].points;
    expect(points.map(({ round }) => round)).toEqual(Array.from({ length: 25 }, (_, i) => i));
    expect(points.every(({ rounds }) => rounds === 1)).toBe(true);
    next.fallSilent();
  });

  it('begins again at round 0 when there is no checkpoint', async () => {
    const { id, coordinator } = await running();
    await coordinator.publish(coordinator.rounds(0, 9), { round: 10 });
    await coordinator.publish([failed('SERVER_LOST')], { phase: 'failed', seats: [] });
    coordinator.fallSilent();
    expect((await placementOf(id)).payload).toMatchObject({ attempt: 2, restore: null });
    expect(await runOf(id)).toMatchObject({
      progress: { round: 0 },
      ledger: { committedRounds: 0, expectedExamples: 0 },
      metrics: [{ points: [] }],
    });
  });

  it('is noticed in seconds when nobody listens at its port any more', async () => {
    const { id, server, coordinator } = await running({}, { port: 1 });
    // Silence alone, by which others are lost, proves nothing to this api; that nobody listens does.
    vi.spyOn(plane.api.app.get(Fleet), 'isReliable').mockReturnValue(false);
    coordinator.fallSilent();
    server.stop();
    await until('the end of the attempt', async () =>
      (await runOf(id)).statusHistory.some(({ to }: { to: string }) => to === 'RECOVERING'),
    );
  });

  it('is noticed when its process lives and its coordinator says nothing for twenty seconds', async () => {
    const { id, coordinator } = await running();
    coordinator.fallSilent();
    await coordinator.acknowledged();
    // The api hears of everybody else.
    vi.spyOn(plane.api.app.get(Fleet), 'reliableForMs').mockReturnValue(60_000);
    await plane.passTime(id, 19_000);
    await until('the end of the attempt', async () => (await runOf(id)).attempt === 2);
    const { statusHistory } = (await plane.admin.gql('query($id: ID!) { run(id: $id) { statusHistory { to reason } } }', { id })).data.run;
    const reason: string = statusHistory.find(({ to }: { to: string }) => to === 'RECOVERING').reason;
    const [, seconds] = /coordinator .* has not reported for (\d+) s; 4 of 5 restarts are left/.exec(reason) ?? [];
    expect(Number(seconds), reason).toBeGreaterThanOrEqual(20);
  });

  it('whose checkpoint cannot be loaded is followed by one from the checkpoint before, without a charge', async () => {
    const { id, coordinator } = await running({ restarts: 1 });
    await coordinator.publish([checkpointWritten(1, 10), checkpointWritten(1, 20), failed('STOPPED')], {
      phase: 'failed',
      round: 20,
      seats: [],
    });
    coordinator.fallSilent();
    const invalid = async (attempt: number, round: number) => {
      const held = await placementOf(id);
      expect(held.payload).toMatchObject({ attempt, restore: { round } });
      await fleet.report({
        kind: 'server.failed',
        runId: id,
        attempt,
        index: 0,
        code: 'CHECKPOINT_INVALID',
        message: `shard 0 of round ${round} is torn`,
      });
      await held.complete('failed');
    };
    await invalid(2, 20);
    await invalid(3, 10);
    expect((await placementOf(id)).payload).toMatchObject({ attempt: 4, restore: null });
  });
});

describe('the restart budget', () => {
  const lose = async (id: string, attempt: number) => {
    const held = await placementOf(id);
    expect(held.payload.attempt).toBe(attempt);
    await fleet.report({ kind: 'server.failed', runId: id, attempt, index: 0, code: 'RangeError', message: 'out of memory' });
    await held.complete('failed');
  };

  it('ends a run that gets nowhere, with the reason and the count', async () => {
    const { id, coordinator } = await running({ restarts: 2 });
    await coordinator.publish([failed('INTERNAL')], { phase: 'failed', seats: [] });
    coordinator.fallSilent();
    await lose(id, 2);
    await lose(id, 3);
    expect((await statusOf(id, 'FAILED')).statusReason).toBe(
      'parameter server 0 failed (RangeError): out of memory; the restart budget (restarts: 2) is used up: restarted 2 times',
    );
  });

  it('does not apply to what another attempt would meet too', async () => {
    const { id, coordinator } = await running();
    await coordinator.publish([failed('NON_FINITE')], { phase: 'failed', seats: [] });
    expect(await statusOf(id, 'FAILED')).toMatchObject({ statusReason: 'failed: NON_FINITE', attempt: 1 });
  });
});

it('a result counts only when everything before it is stored', async () => {
  const { id, coordinator } = await running();
  const early = coordinator.number([...coordinator.rounds(0, 4), checkpointWritten(1, 5)]);
  await coordinator.finish();
  await new Promise((resolve) => setTimeout(resolve, 700));
  expect((await runOf(id)).status).toBe('RUNNING');
  await coordinator.send(early);
  // The finish was stored before, and is told again, as a journal does.
  const database = plane.api.app.get(Database);
  const last = await database.runEvent.findFirstOrThrow({ where: { runId: id, type: 'run.finished' } });
  await coordinator.send([
    {
      kind: 'event',
      sequence: Number(last.sequence),
      atMs: last.at.getTime(),
      type: 'run.finished',
      message: last.message,
      data: last.data as Record<string, unknown>,
    },
  ]);
  await statusOf(id, 'SUCCEEDED');
  expect(await database.checkpoint.count({ where: { runId: id } })).toBe(1);
});

it('servers that would write checkpoints to different places are told so before the start', async () => {
  const servers = [fleet.beat('server'), fleet.beat('server')];
  fleet.beat('worker');
  const id = await createRun(plane.admin, { strategy: { kind: 'parameter-server', servers: 2 } });
  await fleet.claimPlaces(
    id,
    servers.map((server) => server.id),
    { storage: ['file://a/data', 'file://b/data'] },
  );
  expect(await statusOf(id, 'FAILED')).toMatchObject({
    statusReason: expect.stringMatching(/different places \(file:\/\/a\/data, file:\/\/b\/data\).*one shared folder or bucket/),
  });
  expect(await fleet.control(id, 'start')).toBeNull();
});

describe('Redis is flushed', () => {
  it('while a run waits for its servers: the placement comes back once', async () => {
    const id = await createRun(plane.admin);
    await until('the placement', async () => (await waiting('placement')).length === 1);
    await fleet.redis.flushall();
    await until('the placement again', async () => (await waiting('placement')).length === 1);
    expect(await waiting('placement')).toEqual([`place-${id}-a1-i0-m1`]);
  });

  it('in the middle of a run: start, acknowledgement and the open seat come back, and the journal goes on', async () => {
    const { id, coordinator } = await running();
    await coordinator.publish(coordinator.rounds(0, 9), { round: 10 });
    await coordinator.acknowledged();
    await until('the job of the open seat', async () => (await waiting('step-task')).length === 1);
    const { stepTasks } = (await plane.admin.gql('query($id: ID!) { run(id: $id) { stepTasks { seat incarnation state } } }', { id })).data
      .run;
    const before = stepTasks.find((task: { state: string }) => task.state === 'OPEN');
    await fleet.redis.flushall();
    await until('the start', () => fleet.control(id, 'start'));
    await coordinator.acknowledged();
    expect((await fleet.takeStepTask()).payload).toMatchObject({ seat: before.seat, incarnation: before.incarnation + 1 });
    await coordinator.publish(coordinator.rounds(10, 19), { round: 20 });
    await coordinator.acknowledged();
    const { data } = await plane.admin.gql(
      'query($id: ID!) { run(id: $id) { status ledger { committedRounds committedExamples expectedExamples } stepTasks { state } } }',
      { id },
    );
    expect(data.run).toMatchObject({
      status: 'RUNNING',
      ledger: { committedRounds: 20, committedExamples: 5_120, expectedExamples: 5_120 },
    });
    expect(data.run.stepTasks.filter((task: { state: string }) => task.state === 'HELD')).toHaveLength(1);
  });
});
