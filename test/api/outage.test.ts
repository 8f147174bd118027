/** PostgreSQL and Redis go away in the middle of a run and come back: what is asked meanwhile is answered, and nothing is lost. */
import { ackValue, controlKey } from '@paceline/control-plane';
import { patient } from '@paceline/testkit';
import { createClient } from 'graphql-ws';
import request from 'supertest';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import pg from 'pg';
import { WebSocket } from 'ws';
import { BackgroundDatabase } from '../../apps/api/src/database/database.js';
import { Coordinator, ScriptedFleet } from './scripted-fleet.js';
import { ControlPlane, createRun, until } from './services.js';

let plane: ControlPlane;
let fleet: ScriptedFleet;
let serverId: string;
beforeAll(async () => {
  plane = await ControlPlane.start({ durable: true });
  fleet = await new ScriptedFleet(plane.redis.url).ready();
  serverId = fleet.beat('server').id;
  fleet.beat('worker', 'worker-a');
});
afterAll(async () => {
  await fleet?.stop();
  await plane?.stop();
});

/** Nobody who asks during an outage hangs: the api gives up on PostgreSQL after a few seconds. */
const answered = (asked: request.Test): request.Test => asked.timeout(patient(10_000));
const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

async function training(): Promise<Coordinator> {
  const id = await createRun(plane.admin);
  const coordinator = await fleet.claim(id, [serverId]);
  await coordinator.train('worker-a', (await fleet.takeStepTask()).payload);
  await until('RUNNING', async () => (await statusOf(id)) === 'RUNNING');
  return coordinator;
}
/** What a test leaves would be offered in the next one. */
async function cancelled(id: string): Promise<void> {
  await plane.admin.gql('mutation($id: ID!) { cancelRun(id: $id) { __typename } }', { id });
  await until('it to be cancelled', async () => (await statusOf(id)) === 'CANCELLED');
}
const statusOf = async (id: string) => (await plane.admin.gql('query($id: ID!) { run(id: $id) { status } }', { id })).data?.run?.status;
const reasonOf = async (id: string): Promise<string> =>
  (await plane.admin.gql('query($id: ID!) { run(id: $id) { statusReason } }', { id })).data.run.statusReason;
const ledgerOf = async (id: string) =>
  (
    await plane.admin.gql(
      'query($id: ID!) { run(id: $id) { ledger { committedRounds committedExamples } events(last: 1) { edges { node { seq } } } } }',
      { id },
    )
  ).data.run;

it('a connection that PostgreSQL ends before anything went through Prisma is logged, and the next statement has another', async () => {
  const warned: string[] = [];
  const log = { warn: (_: object, text: string) => void warned.push(text) } as unknown as ConstructorParameters<
    typeof BackgroundDatabase
  >[1];
  const database = new BackgroundDatabase({ databaseUrl: plane.postgres.url } as ConstructorParameters<typeof BackgroundDatabase>[0], log);
  const pid = async () => (await database.statement<{ pid: number }>('own-pid', 'SELECT pg_backend_pid() AS pid'))[0]!.pid;
  const first = await pid();
  const other = new pg.Client({ connectionString: plane.postgres.url });
  await other.connect();
  await other.query('SELECT pg_terminate_backend($1)', [first]);
  await until('the end to be heard', () => Promise.resolve(warned.length > 0));
  expect(warned).toEqual(['a connection to PostgreSQL was lost']);
  const second = await pid();
  expect(second).not.toBe(first);
  await database.onApplicationShutdown();
  const isThere = async () => (await other.query('SELECT 1 FROM pg_stat_activity WHERE pid = $1', [second])).rowCount;
  await until('the pool to be closed', async () => (await isThere()) === 0);
  await other.end();
});

describe('PostgreSQL is away', () => {
  it('answers 503 with Retry-After, acknowledges nothing, keeps subscribers, and catches up', async () => {
    const coordinator = await training();
    const { runId } = coordinator;
    await coordinator.publish(coordinator.rounds(0, 9), { round: 10 });
    await until(
      'the first acknowledgement',
      async () => (await fleet.redis.hget(controlKey(runId), 'ack1')) === ackValue({ sequence: coordinator.sequence }, 1),
    );
    const acknowledged = coordinator.sequence;
    const { port } = plane.postgres;
    const subscriber = createClient({
      url: plane.api.url.replace('http', 'ws') + '/graphql',
      webSocketImpl: WebSocket,
      connectionParams: { apiKey: plane.adminKey },
      retryAttempts: 0,
    });
    const seen: number[] = [];
    const followed = (async () => {
      const query = 'subscription($runId: ID!) { runEvents(runId: $runId) { seq } }';
      for await (const { data, errors } of subscriber.iterate<{ runEvents: { seq: number } }>({ query, variables: { runId } })) {
        if (errors) throw new Error(JSON.stringify(errors));
        seen.push(data!.runEvents.seq);
      }
    })();
    await until('the first events', () => seen.length > 2);
    await plane.postgres.stop();

    const graphql = await answered(plane.admin.post('/graphql').send({ query: '{ viewer { isAdmin } }' }));
    expect([graphql.status, graphql.body.errors?.[0]?.extensions.code, Number(graphql.headers['retry-after']) > 0]).toEqual([
      503,
      'SERVICE_UNAVAILABLE',
      true,
    ]);
    const rest = await answered(plane.admin.get('/api/v1/runs'));
    expect([rest.status, rest.body.code, Number(rest.headers['retry-after']) > 0]).toEqual([503, 'SERVICE_UNAVAILABLE', true]);
    expect(rest.body.detail).toContain('PostgreSQL');
    const create = plane.admin.post('/graphql').send({ query: 'mutation { createRun(spec: {}) { __typename } }' });
    expect((await answered(create)).status).toBe(503);
    expect((await answered(request(plane.api.url).get('/healthz'))).status).toBe(200);
    const ready = await answered(request(plane.api.url).get('/readyz'));
    expect([ready.status, ready.body.checks.postgresql.status, ready.body.checks.redis.status]).toEqual([503, 'failing', 'ok']);
    const refused = new Promise<number>((resolve) => {
      createClient({
        url: plane.api.url.replace('http', 'ws') + '/graphql',
        webSocketImpl: WebSocket,
        connectionParams: { apiKey: plane.adminKey },
        lazy: false,
        retryAttempts: 0,
        onNonLazyError: () => undefined,
        on: { closed: (event) => resolve((event as { code: number }).code) },
      });
    });
    expect(await refused).toBe(4503);

    // The coordinator goes on, and sends what is not acknowledged again, as its journal does.
    const entries = coordinator.number(coordinator.rounds(10, 49));
    coordinator.state.round = 50;
    for (let i = 0; i < 4; i++) {
      await coordinator.send(entries, { after: 0 });
      await pause(400);
    }
    await coordinator.send(coordinator.number([coordinator.event('during the outage')]));
    expect(await fleet.redis.hget(controlKey(runId), 'ack1')).toBe(ackValue({ sequence: acknowledged }, 1));

    plane.postgres = await plane.startPostgres(true, port);
    await until(
      'the acknowledgement',
      async () => (await fleet.redis.hget(controlKey(runId), 'ack1')) === ackValue({ sequence: coordinator.sequence }, 1),
      20_000,
    );
    await until('a run again', async () => (await plane.admin.gql('{ viewer { isAdmin } }')).status === 200);
    expect(await ledgerOf(runId)).toMatchObject({ ledger: { committedRounds: 50, committedExamples: 50 * 256 } });
    expect(await statusOf(runId)).toBe('RUNNING');
    // Long enough for the silence of the outage to have been taken for the server's, if it were.
    await pause(8_000);
    expect(await statusOf(runId)).toBe('RUNNING');
    await cancelled(await createRun(plane.admin, { name: 'after' }));
    await coordinator.finish();
    await until('SUCCEEDED', async () => (await statusOf(runId)) === 'SUCCEEDED');
    // The subscriber from before the outage saw all of it, once, and the end.
    await followed;
    await subscriber.dispose();
    const { events } = await ledgerOf(runId);
    expect(seen).toEqual(Array.from({ length: events.edges[0].node.seq }, (_, i) => i + 1));
  });
});

describe('Redis is away', () => {
  it('the api stays, runs that are made meanwhile wait in the outbox, and no server is called lost', async () => {
    await until('the clean queue', async () => (await fleet.stepTasks.take().catch(() => undefined)) === undefined);
    for (let held = await fleet.placements.take(); held; held = await fleet.placements.take()) await held.complete('dropped');
    const coordinator = await training();
    const { port } = plane.redis;
    await plane.redis.stop();
    await pause(7_000);
    expect((await request(plane.api.url).get('/readyz')).body.checks).toMatchObject({
      postgresql: { status: 'ok' },
      redis: { status: 'failing', cause: 'does not answer' },
    });
    const id = await createRun(plane.admin, { name: 'made without Redis' });
    expect(await reasonOf(id)).toBe('waits for Redis, which does not answer');
    expect(await statusOf(coordinator.runId)).toBe('RUNNING');
    plane.redis = await plane.startRedis(true, port, plane.redis);
    const held = await until(
      'the placement',
      async () => {
        const job = await fleet.placements.take().catch(() => undefined);
        return job?.payload.runId === id && job;
      },
      15_000,
    );
    expect(held.payload.index).toBe(0);
    await fleet.ready();
    await coordinator.send(coordinator.number(coordinator.rounds(0, 9)), { after: 0 });
    await until('the journal', async () => (await ledgerOf(coordinator.runId)).ledger.committedRounds === 10, 15_000);
    await pause(8_000);
    expect(await statusOf(coordinator.runId)).toBe('RUNNING');
    await held.complete('cancelled');
    await cancelled(id);
    await coordinator.finish();
    await until('SUCCEEDED', async () => (await statusOf(coordinator.runId)) === 'SUCCEEDED');
  });
});

describe('Redis is out of memory', () => {
  it('is named where people look, by runs that wait and those that train, and forgotten as soon as there is some', async () => {
    for (let held = await fleet.stepTasks.take(); held; held = await fleet.stepTasks.take()) await held.complete('dropped');
    for (let held = await fleet.placements.take(); held; held = await fleet.placements.take()) await held.complete('dropped');
    const coordinator = await training();
    const cause = 'is out of memory (raise its maxmemory, or free some)';
    try {
      await fleet.redis.config('SET', 'maxmemory', '1');
      const unseen = `waits for Redis, which ${cause}; training goes on, and its progress shows again when Redis is back`;
      await until('the run that trains to say so', async () => (await reasonOf(coordinator.runId)) === unseen);
      const { status, body } = await request(plane.api.url).get('/readyz');
      expect([status, body.checks]).toMatchObject([503, { postgresql: { status: 'ok' }, redis: { status: 'failing', cause } }]);
      const id = await createRun(plane.admin, { name: 'made without memory' });
      await pause(7_000); // longer than anybody may be silent
      expect(await reasonOf(id)).toBe(`waits for Redis, which ${cause}`);
      expect([await statusOf(coordinator.runId), await reasonOf(coordinator.runId)]).toEqual(['RUNNING', unseen]);
      await fleet.redis.config('SET', 'maxmemory', '0');
      const held = await until('the placement', async () => {
        const job = await fleet.placements.take().catch(() => undefined);
        return job?.payload.runId === id && job;
      });
      expect(held.payload.index).toBe(0);
      await until('the run that trains to be seen again', async () => (await reasonOf(coordinator.runId)) === 'training goes on');
      expect(await reasonOf(id)).not.toContain('none is connected');
      expect((await request(plane.api.url).get('/readyz')).status).toBe(200);
    } finally {
      await fleet.redis.config('SET', 'maxmemory', '0');
    }
  });
});
