/** Pause, resume, cancel, scale, extend: in every status, twice, over GraphQL and REST. Runs that begin with another run's checkpoint are in resume-from.test.ts. */
import { controlKey } from '@paceline/control-plane';
import { serverBytes, type ModelDescription, type RunSpec } from '@paceline/spec';
import { describe, expect, it } from 'vitest';
import { Database } from '../../apps/api/src/database/database.js';
import { RunRequests } from './run-requests.js';
import { checkpointWritten, onAFreshPlane, type ScriptedFleet } from './scripted-fleet.js';
import { createRun, until, type ControlPlane } from './services.js';

let plane: ControlPlane;
let fleet: ScriptedFleet;
let requests: RunRequests;
onAFreshPlane((given) => {
  ({ plane, fleet } = given);
  requests = new RunRequests(plane, fleet);
});

const ask: RunRequests['ask'] = (...given) => requests.ask(...given);
const runOf: RunRequests['runOf'] = (id) => requests.runOf(id);
const statusOf: RunRequests['statusOf'] = (...given) => requests.statusOf(...given);
const pausedAt: RunRequests['pausedAt'] = (...given) => requests.pausedAt(...given);
const actionOf = (id: string) => fleet.control(id, 'action');
const running = (spec?: object) => fleet.training(plane, spec);

describe('pause', () => {
  it('asks the coordinator, and the run stands on the checkpoint of the cut until it is resumed', async () => {
    const { id, coordinator } = await running();
    await coordinator.publish(coordinator.rounds(0, 9), { round: 10 });
    expect(await ask('pause', id)).toEqual({ __typename: 'ChangeRunSuccess', run: { status: 'PAUSING', attempt: 1 } });
    expect((await ask('pause', id)).run.status, 'twice is once').toBe('PAUSING');
    expect((await ask('resume', id)).message).toMatch(/about to pause/);
    const run = await pausedAt(id, coordinator, 10);
    expect(run).toMatchObject({
      statusReason: 'paused in round 10',
      finishedAt: null,
      progress: { round: 10, workers: 0 },
      attempts: [{ number: 1, endCause: 'PAUSED', endRound: 10 }],
      checkpoints: [{ attempt: 1, round: 10, state: 'USABLE', reason: 'pause' }],
    });
    expect(run.stepTasks.every(({ state }: { state: string }) => state === 'CLOSED')).toBe(true);
    expect((await ask('pause', id)).run.status).toBe('PAUSED');
    expect(await ask('resume', id)).toEqual({ __typename: 'ChangeRunSuccess', run: { status: 'QUEUED', attempt: 2 } });
    expect((await ask('resume', id)).run, 'twice is once').toEqual({ status: 'QUEUED', attempt: 2 });
    const held = await fleet.takePlacement();
    expect(held.payload).toMatchObject({ attempt: 2, servers: 1, restore: { runId: id, attempt: 1, round: 10 } });
  });

  it('ends within ten seconds though the coordinator is deaf, on the last checkpoint', async () => {
    const { id, coordinator } = await running();
    await coordinator.publish([...coordinator.rounds(0, 9), checkpointWritten(1, 5)], { round: 10 });
    await ask('pause', id);
    const database = plane.api.app.get(Database);
    const { pauseRequestedAt } = await database.run.findUniqueOrThrow({ where: { id } });
    await until('the wish', async () => (await actionOf(id)) === '1:pause');
    await plane.passTime(id, 8_000);
    const run = await statusOf(id, 'PAUSED');
    const { at } = await database.runStatusChange.findFirstOrThrow({ where: { runId: id, from: 'PAUSING' } });
    expect(at.getTime() - pauseRequestedAt!.getTime() + 8_000, 'it had its time').toBeGreaterThanOrEqual(9_000);
    expect(run.statusReason).toMatch(/did not confirm .* rounds after that will be redone/);
    await until('the deaf one is told to let go', async () => (await actionOf(id)) === '1:cancel');
    await ask('resume', id);
    expect((await fleet.takePlacement()).payload).toMatchObject({ attempt: 2, restore: { round: 5 } });
  });

  it('of a run that waits is at once, and its jobs are taken back', async () => {
    const id = await createRun(plane.admin);
    expect((await ask('pause', id)).run.status).toBe('PAUSED');
    expect(await actionOf(id).then((action) => action === null || action === '1:cancel')).toBe(true);
    expect((await ask('resume', id, ', servers: 2')).run).toEqual({ status: 'QUEUED', attempt: 2 });
    expect(await runOf(id)).toMatchObject({ spec: { strategy: { servers: 2 } } });
    expect((await ask('cancel', id)).__typename).toBe('CancelRunSuccess');
    await statusOf(id, 'CANCELLED');
    for (const [request, rest] of [['pause'], ['resume'], ['cancel'], ['scale', ', workers: 1'], ['extend', ', rounds: 1']] as const)
      expect(await ask(request, id, rest), request).toMatchObject({
        __typename: 'Conflict',
        message: 'The run is over already: CANCELLED.',
      });
  });

  it('on fewer servers is refused where none that is connected has the memory for its part', async () => {
    const id = await createRun(plane.admin, { strategy: { kind: 'parameter-server', servers: 2 } });
    await ask('pause', id);
    const { spec, model } = await plane.api.app.get(Database).run.findUniqueOrThrow({ where: { id }, select: { spec: true, model: true } });
    const { parameterCount, stateCount } = model as unknown as ModelDescription;
    const [whole] = [spec as unknown as RunSpec].map((one) =>
      serverBytes({ ...one, strategy: { ...one.strategy, servers: 1 } as never }, 1, parameterCount + stateCount),
    );
    fleet.beat('server', 'small', { memoryBytes: whole! - 1 });
    await until('the server', async () => (await plane.admin.gql('{ servers { id } }')).data.servers.length === 1);
    const refused = await ask('resume', id, ', servers: 1');
    expect(refused).toMatchObject({ __typename: 'InvalidInput', issues: [{ path: 'servers' }] });
    expect(refused.message).toMatch(
      /the server needs \d+ MB, the largest that is connected \(small on test-host\) may use \d+ MB: use 2 servers \(`servers`\)/,
    );
    expect((await runOf(id)).status).toBe('PAUSED');
    expect((await ask('resume', id, ', servers: 3')).run).toEqual({ status: 'QUEUED', attempt: 2 });
  });

  it('of a run that loses its server while it pauses leaves it PAUSED on its last checkpoint', async () => {
    const { id, coordinator, server } = await running({ restarts: 0 });
    await coordinator.publish([...coordinator.rounds(0, 9), checkpointWritten(1, 8)], { round: 10 });
    await ask('pause', id);
    await fleet.report({
      kind: 'server.failed',
      runId: id,
      attempt: 1,
      index: 0,
      code: 'COORDINATOR_LOST',
      message: `${server.id} is gone`,
    });
    expect((await statusOf(id, 'PAUSED')).attempts[0]).toMatchObject({ endCause: 'SERVER_LOST', endRound: 10 });
  });
});

it('a paused run is cancelled at once; one that recovers too', async () => {
  const { id, coordinator } = await running();
  await pausedAt(id, coordinator, 3);
  await ask('cancel', id);
  expect((await runOf(id)).status).toBe('CANCELLED');
});

describe('scale', () => {
  it('goes to the coordinator, opens no seat beyond it, and outlives a flush and an attempt', async () => {
    const { id, coordinator } = await running();
    const workersOf = () => fleet.control(id, 'workers');
    expect(await ask('scale', id, ', workers: 5')).toMatchObject({ __typename: 'InvalidInput', issues: [{ path: 'workers' }] });
    expect((await ask('scale', id, ', workers: 0')).message).toMatch(/from 1 to 4.*pause it/);
    expect((await ask('scale', id, ', workers: 1')).__typename).toBe('ChangeRunSuccess');
    await until('the wish', async () => (await workersOf()) === '1:1');
    await until('no open seat', async () => !(await runOf(id)).stepTasks.some(({ state }: { state: string }) => state === 'OPEN'));
    await fleet.redis.del(controlKey(id));
    await until('the wish again', async () => (await workersOf()) === '1:1');
    await ask('scale', id, ', workers: 3');
    await until('the new wish', async () => (await workersOf()) === '1:3');
    await until('an open seat', async () => (await runOf(id)).stepTasks.some(({ state }: { state: string }) => state === 'OPEN'));
    expect((await runOf(id)).workersWanted).toBe(3);
    await pausedAt(id, coordinator, 2);
    await ask('resume', id);
    await until('the wish of the next attempt', async () => (await workersOf()) === '2:3');
  });
});

describe('extend', () => {
  it('lets a run that SUCCEEDED go on from its last checkpoint, with its history', async () => {
    const { id, coordinator } = await running({ length: { epochs: 5 } });
    expect((await ask('extend', id, ', epochs: 1')).message).toMatch(/Pause the run first/);
    await coordinator.publish([checkpointWritten(1, 1175, { reason: 'final' })], { round: 1175 });
    await coordinator.finish();
    expect((await statusOf(id, 'SUCCEEDED')).result).toEqual({ rounds: 1175 });
    expect((await ask('extend', id)).issues).toEqual([{ path: 'rounds' }]);
    expect((await ask('extend', id, ', rounds: 2, epochs: 2')).issues).toEqual([{ path: 'rounds' }]);
    expect((await ask('extend', id, ', epochs: -1')).issues).toEqual([{ path: 'epochs' }]);
    expect((await ask('extend', id, ', epochs: 2')).run).toEqual({ status: 'QUEUED', attempt: 2 });
    expect(await runOf(id)).toMatchObject({
      spec: { length: { epochs: 7 } },
      result: { rounds: 1175 },
      finishedAt: null,
      progress: { round: 1175, totalRounds: 1645 },
      attempts: [
        { number: 2, fromRound: 1175, parentNumber: 1, parentRunId: null, endCause: null },
        { number: 1, endCause: 'FINISHED', endRound: 1175 },
      ],
    });
    expect((await fleet.takePlacement()).payload).toMatchObject({
      attempt: 2,
      spec: { length: { epochs: 7 } },
      restore: { round: 1175 },
      succeededIn: 1,
    });
  });

  it('happens once per idempotency key', async () => {
    const { id, coordinator } = await running();
    await pausedAt(id, coordinator, 4);
    const twice = [
      await ask('extend', id, ', rounds: 100, idempotencyKey: "e1"'),
      await ask('extend', id, ', rounds: 100, idempotencyKey: "e1"'),
    ];
    expect(twice).toEqual(twice.map(() => ({ __typename: 'ChangeRunSuccess', run: { status: 'QUEUED', attempt: 2 } })));
    expect((await runOf(id)).spec.length).toEqual({ rounds: 1275 });
    expect((await ask('extend', id, ', rounds: 101, idempotencyKey: "e1"')).message).toMatch(/used for another request/);
    const rest = await plane.admin.post(`/api/v1/runs/${id}/extend`).set('idempotency-key', 'e1').send({ rounds: 100 });
    expect([rest.status, rest.headers['idempotent-replayed']]).toEqual([202, 'true']);
  });

  it('that is cancelled or fails leaves the result of before: metrics, weights and another extension', async () => {
    const { id, coordinator } = await running({ length: { epochs: 5 } });
    await coordinator.publish([...coordinator.rounds(0, 4), checkpointWritten(1, 1175, { reason: 'final' })], { round: 1175 });
    await coordinator.finish();
    await statusOf(id, 'SUCCEEDED');
    const shown = async () =>
      (
        await plane.admin.gql(
          `query($id: ID!) { run(id: $id) { status statusReason spec result { rounds loss accuracy weightsSha256 } progress { phase round totalRounds loss }
             ledger { committedRounds } metrics(names: ["loss"]) { points { round } } } }`,
          { id },
        )
      ).data.run;
    const before = await shown();
    await ask('extend', id, ', epochs: 4');
    const extension = await fleet.claim(id, [fleet.beat('server').id]);
    await extension.train('w', (await fleet.takeStepTask()).payload);
    await extension.publish(extension.rounds(1175, 1190), { round: 1191 });
    const during = await statusOf(id, 'RUNNING');
    expect(during).toMatchObject({ result: { rounds: 1175 }, progress: { totalRounds: 2115 } });
    await ask('cancel', id);
    await until('the wish', async () => (await actionOf(id)) === '2:cancel');
    await extension.publish([{ kind: 'event', type: 'run.cancelled', message: 'cancelled in round 1191', data: {} }], {
      phase: 'cancelled',
    });
    extension.fallSilent();
    await statusOf(id, 'SUCCEEDED');
    expect(await shown()).toEqual({
      ...before,
      statusReason: 'the extension was cancelled (cancelled in round 1191); the result of round 1175 stands',
      progress: { phase: 'finished', round: 1175, totalRounds: 1175, loss: null },
    });
    expect(await plane.admin.get(`/api/v1/runs/${id}`).then(({ body }) => body)).toMatchObject({
      status: 'SUCCEEDED',
      result: { weightsSha256: 'ab'.repeat(32) },
    });
    expect((await ask('extend', id, ', rounds: 10')).run).toEqual({ status: 'QUEUED', attempt: 3 });
    await fleet.report({ kind: 'server.failed', runId: id, attempt: 3, index: 0, code: 'CONFIG_CHANGED', message: 'another config' });
    const failed = await statusOf(id, 'SUCCEEDED');
    expect(failed.statusReason).toBe(
      'the extension failed (parameter server 0 failed (CONFIG_CHANGED): another config); the result of round 1175 stands',
    );
    await until('whoever holds a part is told to let go', async () => (await actionOf(id)) === '3:cancel');
  });

  it('of a paused run adds rounds and resumes it; without a checkpoint a finished one cannot go on', async () => {
    const { id, coordinator } = await running();
    await pausedAt(id, coordinator, 4);
    expect((await ask('extend', id, ', rounds: 100')).run).toEqual({ status: 'QUEUED', attempt: 2 });
    expect((await runOf(id)).spec.length).toEqual({ rounds: 1275 });
    await (await fleet.takePlacement()).complete('claimed');
    await ask('cancel', id);
    await statusOf(id, 'CANCELLED');
    const other = await running();
    await other.coordinator.finish();
    await statusOf(other.id, 'SUCCEEDED');
    expect((await ask('extend', other.id, ', rounds: 1')).message).toMatch(/no checkpoint to go on from/);
  });
});

it('the same over REST, with problem documents', async () => {
  const id = await createRun(plane.admin);
  const post = (path: string, body: object = {}) => plane.admin.post(`/api/v1/runs/${id}/${path}`).send(body);
  expect((await post('scale', { workers: 9 })).body).toMatchObject({ status: 422, code: 'INVALID_INPUT', issues: [{ path: 'workers' }] });
  expect((await post('scale', { workers: 'two' })).status).toBe(422);
  expect((await post('scale', { workers: 2, status: 1 })).body.detail).toMatch(/status: unknown field/);
  expect((await post('scale', { workers: 2 })).body).toMatchObject({ workersWanted: 2, restartsLeft: 5 });
  const pausedRun = await post('pause');
  expect([pausedRun.status, pausedRun.body.status]).toEqual([202, 'PAUSED']);
  expect((await post('resume', { servers: 65 })).body).toMatchObject({ status: 422, issues: [{ path: 'servers' }] });
  expect((await post('resume')).body).toMatchObject({ status: 'QUEUED', attempt: 2 });
  expect((await post('extend', { rounds: 5 })).body).toMatchObject({ status: 409, code: 'CONFLICT' });
  expect((await plane.admin.get(`/api/v1/runs/${id}/attempts`)).body.items).toMatchObject([
    { number: 2 },
    { number: 1, endCause: 'PAUSED' },
  ]);
  expect((await plane.admin.get(`/api/v1/runs/${id}/checkpoints`)).body).toEqual({ items: [] });
});

it('arguments that no request can have are typed refusals, and nothing changes', async () => {
  const { id, coordinator } = await running();
  const FOREIGN = '0190c5a5-0000-7000-8000-00000000dead';
  const post = async (run: string, path: string, body: unknown): Promise<number> => {
    const answer = await plane.admin.post(`/api/v1/runs/${run}/${path}`).send(body as object);
    expect(answer.body, `${path} ${JSON.stringify(body)}`).toMatchObject({ type: expect.any(String), title: expect.any(String) });
    return answer.status;
  };
  // That the first seat is held is heard, and the next one is offered, by themselves.
  const before = await until('a seat that is held and one that waits', async () => {
    const run = await runOf(id);
    return ['HELD', 'OPEN'].every((wanted) => run.stepTasks.some(({ state }: { state: string }) => state === wanted)) && run;
  });
  for (const value of [-1, 0, 0.5, 1e9, 1e308, 2 ** 53, '1', null, [1], { a: 1 }, true])
    for (const [path, name] of [
      ['scale', 'workers'],
      ['extend', 'rounds'],
      ['extend', 'epochs'],
    ] as const)
      expect(await post(id, path, { [name]: value }), `${path} ${name} ${JSON.stringify(value)}`).toBeOneOf([400, 409, 422]);
  for (const body of [{}, [], [1], { rounds: 1, epochs: 1 }, { workers: 1, __proto__x: 1 }, { constructor: 1 }])
    for (const path of ['scale', 'extend'])
      expect(await post(id, path, body), `${path} ${JSON.stringify(body)}`).toBeOneOf([400, 409, 422]);
  for (const path of ['pause', 'resume', 'scale', 'extend', 'cancel'])
    for (const unknown of [FOREIGN, 'no-id'])
      expect(await post(unknown, path, path === 'scale' ? { workers: 1 } : path === 'extend' ? { rounds: 1 } : {})).toBe(404);
  expect((await plane.admin.get(`/api/v1/runs/${FOREIGN}/checkpoints`)).status).toBe(404);
  expect(await runOf(id)).toEqual(before);
  await pausedAt(id, coordinator, 3);
  for (const value of [-1, 0, 65, 0.5, 1e308, 'x']) expect(await post(id, 'resume', { servers: value })).toBeOneOf([400, 422]);
  for (const rounds of [-1, 0, 1.5, 1e9, 1e308]) expect(await post(id, 'extend', { rounds })).toBeOneOf([400, 422]);
  expect((await runOf(id)).status).toBe('PAUSED');
});
