/** From a run to jobs and back: outbox, servers, cancelling, and what happens when a server dies. The seats of workers are in seats.test.ts. */
import { PROTOCOL_VERSION } from '@paceline/protocol';
import { jwtVerify } from 'jose';
import { describe, expect, it, vi } from 'vitest';
import { Database } from '../../apps/api/src/database/database.js';
import { Dispatcher } from '../../apps/api/src/dispatch/dispatcher.js';
import { Queues } from '../../apps/api/src/dispatch/queues.js';
import { Fleet } from '../../apps/api/src/fleet/fleet.js';
import { onAFreshPlane, type ScriptedFleet } from './scripted-fleet.js';
import { createRun, ticks, TOKEN_SECRET, until, untilStatus, type ControlPlane } from './services.js';

let plane: ControlPlane;
let fleet: ScriptedFleet;
onAFreshPlane((given) => ({ plane, fleet } = given));

const waiting = (kind: 'placement' | 'step-task') => plane.api.app.get(Queues).waitingIds(kind);
const runOf = async (id: string) =>
  (
    await plane.admin.gql(
      'query($id: ID!) { run(id: $id) { status statusReason stepTasks { seat incarnation state replicas worker { id } } servers { index serverId state } } }',
      { id },
    )
  ).data.run;
const statusOf = (id: string, status: string) => untilStatus(() => runOf(id), status);

const running = (spec?: object) => fleet.training(plane, spec);

describe('the outbox', () => {
  it('sends each job once, also when an api died between adding it and saying so', async () => {
    const id = await createRun(plane.admin);
    const [jobId] = await until('the placement', async () => (await waiting('placement')).length === 1 && waiting('placement'));
    const database = plane.api.app.get(Database);
    await database.outbox.updateMany({ data: { sentAt: null } });
    await until('it was sent again', async () => (await database.outbox.count({ where: { sentAt: null } })) === 0);
    expect(await waiting('placement')).toEqual([jobId]);
    // And when its job was done meanwhile, it is not done twice.
    const held = await fleet.takePlacement();
    expect(held.payload).toMatchObject({ runId: id, attempt: 1, index: 0, servers: 1, data: { trainExamples: 60_000 } });
    await fleet.report({
      kind: 'server.claimed',
      runId: id,
      attempt: 1,
      address: { index: 0, serverId: 'ps-1', host: 'h', port: 1, unixPath: null },
    });
    await held.complete('claimed');
    await database.outbox.updateMany({ where: { kind: 'placement' }, data: { sentAt: null } });
    const isSent = async (): Promise<boolean> => (await database.outbox.count({ where: { sentAt: null, kind: 'placement' } })) === 0;
    await until('it was sent again', isSent);
    expect(await waiting('placement')).toEqual([]);
    // Nor when the queue has forgotten that it was: its server has the place.
    await plane.api.app.get(Queues).remove('placement', jobId!);
    await database.outbox.updateMany({ where: { kind: 'placement' }, data: { sentAt: null } });
    await until('its row was looked at', isSent);
    expect(await waiting('placement')).toEqual([]);
  });

  it('sends exactly one job for a run whose api died before it could enqueue, when two others start together', async () => {
    await plane.api.app.get(Dispatcher).onModuleDestroy();
    const id = await createRun(plane.admin);
    await new Promise((resolve) => setTimeout(resolve, 700));
    expect(await waiting('placement')).toEqual([]);
    await plane.api.stop();
    const [second] = await Promise.all([plane.startApi(), plane.startApi()]);
    plane.api = second;
    await until('the placement', async () => (await waiting('placement')).length > 0);
    await new Promise((resolve) => setTimeout(resolve, 700));
    expect(await waiting('placement')).toEqual([`place-${id}-a1-i0-m0`]);
  });

  it('holds placements of several servers back until so many are there, and does not let them block others', async () => {
    fleet.beat('server');
    const two = await createRun(plane.admin, { strategy: { kind: 'parameter-server', servers: 2 } });
    const one = await createRun(plane.admin);
    await until('the placement of the small run', async () => (await waiting('placement')).some((jobId) => jobId.includes(one)));
    expect((await waiting('placement')).some((jobId) => jobId.includes(two))).toBe(false);
    expect(await until('a reason', async () => /only one is connected/.exec((await runOf(two)).statusReason)?.[0])).toBeTruthy();
    fleet.beat('server');
    await until('both placements', async () => (await waiting('placement')).filter((jobId) => jobId.includes(two)).length === 2);
  });
});

describe('a run that waits', () => {
  it('says for what: no server, no worker, a worker of another protocol; and stays QUEUED', async () => {
    const id = await createRun(plane.admin);
    const reason = (pattern: RegExp) => until(String(pattern), async () => pattern.test((await runOf(id)).statusReason));
    await reason(/waits for 1 parameter server: none is connected; waits for a worker: none is connected; start one with `paceline up`/);
    const server = fleet.beat('server');
    await fleet.claim(id, [server.id]);
    await reason(/^waits for a worker: none is connected; start one with `paceline up`$/);
    const old = fleet.beat('worker', 'worker-old', { protocolVersion: PROTOCOL_VERSION - 1 });
    const versions = `speaks protocol ${PROTOCOL_VERSION - 1}, this control plane speaks ${PROTOCOL_VERSION}`;
    await reason(new RegExp(`^waits for a worker: worker worker-old ${versions}`));
    expect((await plane.admin.gql('{ workers { id status } }')).data.workers).toEqual([{ id: old.id, status: 'INCOMPATIBLE' }]);
    expect((await runOf(id)).status).toBe('QUEUED');
    fleet.beat('worker', 'worker-new');
    await statusOf(id, 'PROVISIONING');
  });

  it('gives servers and workers tokens for this run, attempt and role only', async () => {
    const server = fleet.beat('server');
    const id = await createRun(plane.admin);
    const held = await fleet.takePlacement();
    const verify = async (token: string) =>
      (await jwtVerify(token, new TextEncoder().encode(TOKEN_SECRET), { issuer: 'paceline-api', audience: 'paceline-data-plane' })).payload;
    const payload = await verify(held.payload.token);
    expect(payload).toMatchObject({ run: id, attempt: 1, role: 'server' });
    // It is shown again at every connection of the attempt, which may last for weeks.
    expect(payload.exp! - payload.iat!).toBeGreaterThan(365 * 86_400);
    await fleet.report({
      kind: 'server.claimed',
      runId: id,
      attempt: 1,
      address: { index: 0, serverId: server.id, host: 'h', port: 1, unixPath: null },
    });
    await held.complete('claimed');
    expect(await verify((await fleet.takeStepTask()).payload.token)).toMatchObject({ run: id, attempt: 1, role: 'worker' });
  });
});

describe('a job that is given back', () => {
  it('waits again, before those that waited, and its holder has it no more', async () => {
    const [first, second] = [await createRun(plane.admin), await createRun(plane.admin)];
    await until('both placements', async () => (await waiting('placement')).length === 2);
    const held = await fleet.takePlacement();
    expect(await held.giveBack()).toBe(true);
    expect(await plane.api.app.get(Queues).stateOf('placement', held.id)).toBe('waiting');
    expect([await held.giveBack(), await held.complete('too late')]).toEqual([false, false]);
    const again = await fleet.takePlacement();
    expect(again.payload).toEqual(held.payload);
    expect(await again.complete('claimed')).toBe(true);
    const other = await fleet.takePlacement();
    expect(new Set([again.payload.runId, other.payload.runId])).toEqual(new Set([first, second]));
  });
});

describe('servers', () => {
  it('start with the first that claimed a part; a second claim changes nothing', async () => {
    const id = await createRun(plane.admin);
    const held = await fleet.takePlacement();
    const claim = (serverId: string) =>
      fleet.report({ kind: 'server.claimed', runId: id, attempt: 1, address: { index: 0, serverId, host: 'h', port: 1, unixPath: null } });
    await claim('ps-first');
    await claim('ps-second');
    await held.complete('claimed');
    const start = await until('the start', async () => (await fleet.control(id, 'start')) ?? undefined);
    expect(JSON.parse(start)).toMatchObject({ attempt: 1, servers: [{ serverId: 'ps-first' }] });
    await new Promise((resolve) => setTimeout(resolve, 500));
    expect((await runOf(id)).servers).toEqual([{ index: 0, serverId: 'ps-first', state: 'STARTED' }]);
  });

  it('have their part while they load: it is not offered again, and a copy of its job that fails ends nothing', async () => {
    fleet.beat('server', 'ps-first');
    const id = await createRun(plane.admin, { restarts: 0 });
    const held = await fleet.takePlacement();
    const report = (serverId: string, loading?: boolean) =>
      fleet.report({
        kind: 'server.claimed',
        runId: id,
        attempt: 1,
        address: { index: 0, serverId, host: 'h', port: 1, unixPath: null },
        ...(loading ? { loading } : {}),
      });
    await report('ps-first', true);
    await held.complete('claimed');
    await until('the reason', async () => /waits for parameter server 0 to load/.test((await runOf(id)).statusReason));
    await fleet.report({
      kind: 'server.failed',
      runId: id,
      attempt: 1,
      index: 0,
      serverId: 'ps-second',
      code: 'RangeError',
      message: 'out of memory',
    });
    await new Promise((resolve) => setTimeout(resolve, 4_500));
    expect(await waiting('placement')).toEqual([]);
    expect(await fleet.control(id, 'start')).toBeNull();
    await report('ps-first');
    await until('the start', async () => (await fleet.control(id, 'start')) ?? undefined);
    await fleet.report({
      kind: 'server.failed',
      runId: id,
      attempt: 1,
      index: 0,
      serverId: 'ps-second',
      code: 'RangeError',
      message: 'out of memory',
    });
    await new Promise((resolve) => setTimeout(resolve, 500));
    expect((await runOf(id)).status).not.toBe('FAILED');
  });

  it('that wait to begin are told when the run has failed meanwhile', async () => {
    fleet.beat('server', 'ps-first');
    const id = await createRun(plane.admin, { restarts: 0, strategy: { kind: 'parameter-server', servers: 1 } });
    const held = await fleet.takePlacement();
    await fleet.report({ kind: 'server.failed', runId: id, attempt: 1, index: 0, code: 'RangeError', message: 'out of memory' });
    await held.complete('failed');
    await statusOf(id, 'FAILED');
    await until('the word', async () => (await fleet.control(id, 'action')) === '1:cancel');
  });

  it('that stop before the start are replaced', async () => {
    const [first, second] = [fleet.beat('server', 'ps-first'), fleet.beat('server', 'ps-second')];
    const id = await createRun(plane.admin, { strategy: { kind: 'parameter-server', servers: 2 } });
    const held = await fleet.takePlacement();
    const { index } = held.payload;
    await fleet.report({
      kind: 'server.claimed',
      runId: id,
      attempt: 1,
      address: { index, serverId: first.id, host: 'h', port: 1, unixPath: null },
    });
    await held.complete('claimed');
    await until('the claim', async () => (await runOf(id)).servers.length === 1);
    first.stop();
    await fleet.report({ kind: 'goodbye', role: 'server', id: first.id });
    fleet.beat('server', 'ps-third');
    await until('the part is free again', async () => (await runOf(id)).servers.length === 0);
    await fleet.claim(id, [second.id, 'ps-third']);
    expect((await runOf(id)).servers.map((server: { serverId: string }) => server.serverId).sort()).toEqual(['ps-second', 'ps-third']);
  });

  it('that fall silent end a run without restarts with a reason that names server and round, and the others are told to stop', async () => {
    const { id, coordinator, server } = await running({ restarts: 0 });
    await coordinator.publish(coordinator.rounds(0, 11), { round: 12 });
    server.stop();
    const stopped = performance.now();
    const run = await statusOf(id, 'FAILED');
    expect(performance.now() - stopped).toBeGreaterThan(3_500); // its last beat, of up to one second ago, is waited on for five
    expect(run.statusReason).toMatch(new RegExp(`parameter server 0 \\(${server.id}\\) was lost in round 12; the run has no restarts`));
    await coordinator.publish([], {});
    await until('the stop', async () => (await fleet.control(id, 'action')) === '1:cancel');
  });

  it('that report a failure end a run without restarts at once', async () => {
    const { id } = await running({ restarts: 0 });
    await fleet.report({ kind: 'server.failed', runId: id, attempt: 1, index: 0, code: 'RangeError', message: 'out of memory' });
    expect((await statusOf(id, 'FAILED')).statusReason).toBe(
      'parameter server 0 failed (RangeError): out of memory; the run has no restarts (restarts: 0)',
    );
  });

  it('are not called lost because the api was away', async () => {
    const { id, coordinator, server } = await running();
    server.stop();
    await coordinator.publish([coordinator.event('behind its last heartbeat')]);
    await coordinator.acknowledged(); // so the new api finds none to be read
    await plane.api.stop();
    await plane.passTime(id, 7_000);
    // What the new api knows of the server is seven seconds old; it has not heard for long enough to judge that until something newer comes.
    const reliable = vi.spyOn(Fleet.prototype, 'isReliable').mockReturnValue(false);
    try {
      const startedAt = Date.now();
      plane.api = await plane.startApi();
      const members = plane.api.app.get(Fleet);
      expect(members.reliableForMs()).toBeLessThanOrEqual(Date.now() - startedAt);
      expect((await members.find('server', server.id))!.lastSeenMs).toBeLessThanOrEqual(startedAt - 7_000);
      await ticks(plane.api, 4);
      expect((await runOf(id)).status).toBe('RUNNING');
      fleet.beat('server', server.id);
      await until('its heartbeat', async () => ((await members.find('server', server.id))?.lastSeenMs ?? 0) >= startedAt);
    } finally {
      reliable.mockRestore();
    }
    await until('the new api to have heard for long enough', () => plane.api.app.get(Fleet).isReliable());
    await ticks(plane.api, 4);
    expect((await runOf(id)).status).toBe('RUNNING');
    await coordinator.finish();
    await statusOf(id, 'SUCCEEDED');
  });
});

describe('cancelling', () => {
  const CANCEL = 'mutation($id: ID!) { cancelRun(id: $id) { __typename ... on Conflict { message } } }';
  const cancel = async (id: string) => (await plane.admin.gql(CANCEL, { id })).data.cancelRun;

  it('a run that waits ends it and takes its jobs back', async () => {
    const id = await createRun(plane.admin);
    await until('the placement', async () => (await waiting('placement')).length === 1);
    expect((await cancel(id)).__typename).toBe('CancelRunSuccess');
    await statusOf(id, 'CANCELLED');
    await until('no job', async () => (await waiting('placement')).length === 0);
    expect(await cancel(id)).toMatchObject({ __typename: 'Conflict', message: expect.stringContaining('CANCELLED') });
  });

  it('a running one asks its coordinator, twice is once, and what that says counts', async () => {
    const { id, coordinator } = await running();
    await cancel(id);
    await until('the wish', async () => (await fleet.control(id, 'action')) === '1:cancel');
    expect((await cancel(id)).__typename).toBe('CancelRunSuccess');
    expect((await runOf(id)).status).toBe('RUNNING');
    await coordinator.publish([{ kind: 'event', type: 'run.cancelled', message: 'cancelled in round 3', data: { round: 3 } }], {
      phase: 'cancelled',
      seats: [],
    });
    expect((await statusOf(id, 'CANCELLED')).statusReason).toBe('cancelled in round 3');
  });

  it('one whose coordinator is deaf ends it within about ten seconds all the same', async () => {
    const { id } = await running();
    await cancel(id);
    await until('the wish', async () => (await fleet.control(id, 'action')) === '1:cancel');
    const database = plane.api.app.get(Database);
    const { cancelRequestedAt } = await database.run.findUniqueOrThrow({ where: { id } });
    await plane.passTime(id, 8_000);
    const run = await statusOf(id, 'CANCELLED');
    const { at } = await database.runStatusChange.findFirstOrThrow({ where: { runId: id, to: 'CANCELLED' } });
    expect(at.getTime() - cancelRequestedAt!.getTime() + 8_000, 'it had its time').toBeGreaterThanOrEqual(9_000);
    expect(run.statusReason).toMatch(/did not confirm/);
    await until('no job', async () => (await waiting('step-task')).length === 0);
  });
});
