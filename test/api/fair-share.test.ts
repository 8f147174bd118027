/**
 * Which run gets the next place on the servers, over real queues, and which may go on within the limits of its team.
 * The rules are held by fair-share.test.ts and team-limits.test.ts of libs/control-plane.
 */
import { ManualQueue, placementJobSchema, WORKER_PLACEMENT_QUEUE } from '@paceline/control-plane';
import { serverPartBytes, type ModelDescription, type RunSpec } from '@paceline/spec';
import { describe, expect, it } from 'vitest';
import { BackgroundDatabase, Database } from '../../apps/api/src/database/database.js';
import { Queues } from '../../apps/api/src/dispatch/queues.js';
import { Shares } from '../../apps/api/src/dispatch/shares.js';
import { Settings } from '../../apps/api/src/environment.js';
import { Fleet } from '../../apps/api/src/fleet/fleet.js';
import { checkpointWritten, onAFreshPlane, type ScriptedFleet } from './scripted-fleet.js';
import { CREATE_RUN, createRun, until, untilStatus, type ControlPlane } from './services.js';

let plane: ControlPlane;
let fleet: ScriptedFleet;
onAFreshPlane((given) => ({ plane, fleet } = given));

const waiting = (kind: 'placement' | 'step-task') => plane.api.app.get(Queues).waitingIds(kind);

describe('places of servers', () => {
  it('go to the team that holds fewest: one with sixty runs does not keep another’s waiting, and the reason says who holds them', async () => {
    fleet.beat('server');
    const [greedy, small] = [await plane.team('greedy'), await plane.team('small')];
    const many: string[] = [];
    for (let i = 0; i < 14; i++) many.push(await createRun(greedy, { length: { rounds: 1_000_000 } }));
    const isSent = async (id: string) => (await waiting('placement')).some((jobId) => jobId.includes(id));
    await until('twelve placements', async () => (await waiting('placement')).length === 12);
    const reasonOf = async (caller: typeof greedy, id: string): Promise<string> =>
      (await caller.gql('query($id: ID!) { run(id: $id) { statusReason } }', { id })).data.run.statusReason;
    await until('the reason', async () => /the team holds 12 of 16 places/.test(await reasonOf(greedy, many[13]!)));
    const first = await createRun(small, { length: { rounds: 20 } });
    await until('its placement', () => isSent(first));
    const others = [await createRun(small), await createRun(small), await createRun(small)];
    await until('two more', async () => (await isSent(others[0]!)) && (await isSent(others[1]!)));
    await until('the reason', async () => /the team holds 3 of 16 places, and one team may hold 3/.test(await reasonOf(small, others[2]!)));
    expect(await isSent(many[12]!)).toBe(false);
    expect(await reasonOf(small, others[2]!)).not.toContain('greedy');
  });

  it('are not held by a run that is made while they are counted', async () => {
    const { app } = plane.api;
    const database = app.get(BackgroundDatabase);
    let made: string | undefined;
    const run = Object.create(database.run, {
      findMany: {
        value: async (query: Parameters<typeof database.run.findMany>[0]) => {
          // It needs more servers than there are, so nobody sends its placements meanwhile.
          made ??= await createRun(plane.admin, { strategy: { kind: 'parameter-server', servers: 2 } });
          return database.run.findMany(query);
        },
      },
    });
    const shares = new Shares(Object.create(database, { run: { value: run } }), app.get(Fleet), app.get(Settings));
    const { holding, attempts } = await shares.read();
    expect(attempts.get(made!)).toBe(1);
    expect([...holding]).not.toContain(made);
  });
});

describe('memory of servers', () => {
  it('is shared by the runs that a server holds: one that fits beside them nowhere waits and says why, until there is room', async () => {
    const reason = async (id: string): Promise<string> =>
      (await plane.admin.gql('query($id: ID!) { run(id: $id) { statusReason } }', { id })).data.run.statusReason;
    const first = await createRun(plane.admin);
    const row = await plane.api.app.get(Database).run.findUniqueOrThrow({ where: { id: first }, select: { spec: true, model: true } });
    const bytes = serverPartBytes(row.spec as unknown as RunSpec, row.model as unknown as ModelDescription);
    const server = fleet.beat('server', 'tight', { memoryBytes: Math.floor(1.5 * bytes) });
    fleet.beat('worker');
    await fleet.claim(first, [server.id]);
    const second = await createRun(plane.admin);
    const MB = (amount: number) => Math.ceil(amount / 1e6);
    await until('the reason', async () =>
      (await reason(second)).startsWith(
        `waits for a parameter server with ${MB(bytes)} MB free: the one with the most has ${Math.floor((Math.floor(1.5 * bytes) - bytes) / 1e6)} of ${MB(1.5 * bytes)} MB beside 1 run. It begins when that run ends`,
      ),
    );
    const other = fleet.beat('server', 'empty', { memoryBytes: bytes });
    await until('another reason', async () => !(await reason(second)).includes('MB free'));
    await fleet.claim(second, [other.id]);
  });
});

describe('memory of servers that two runs share', () => {
  it('goes to the older run when each holds what the other waits for: the younger one lets go, begins anew, and no restart is charged', async () => {
    const [ids, database] = [[] as string[], plane.api.app.get(Database)];
    const strategy = { kind: 'parameter-server', servers: 2 };
    for (let i = 0; i < 2; i++) ids.push(await createRun(plane.admin, { strategy, restarts: 0 }));
    const [older, younger] = ids as [string, string];
    const row = await database.run.findUniqueOrThrow({ where: { id: older }, select: { spec: true, model: true } });
    const bytes = serverPartBytes(row.spec as unknown as RunSpec, row.model as unknown as ModelDescription);
    for (const id of ['s1', 's2']) fleet.beat('server', id, { memoryBytes: Math.floor(1.5 * bytes) });
    fleet.beat('worker');
    const jobs = await Promise.all([0, 1, 2, 3].map(() => fleet.takePlacement()));
    for (const [runId, serverId] of [
      [older, 's1'],
      [younger, 's2'],
    ] as const) {
      const job = jobs.find(({ payload }) => payload.runId === runId && payload.index === 0)!;
      const address = { index: 0, serverId, host: '127.0.0.1', port: fleet.port, unixPath: null };
      await fleet.report({ kind: 'server.claimed', runId, attempt: 1, address });
      await job.complete('claimed');
    }
    const read = async (id: string) => {
      const { data } = await plane.admin.gql('query($id: ID!) { run(id: $id) { status statusReason attempt } }', { id });
      return data.run as { status: string; statusReason: string; attempt: number };
    };
    for (const id of ids) await until('its reason', async () => /MB free \(1 of 2 is ready\)/.test((await read(id)).statusReason));
    // As if both had waited for a minute.
    await database.runServer.updateMany({
      where: { runId: { in: ids }, serverId: { not: null } },
      data: { claimedAt: new Date(Date.now() - 60_000) },
    });
    await until('the younger one to let go', async () => (await read(younger)).status === 'RECOVERING');
    expect((await read(younger)).statusReason).toMatch(/an older run waits for that of its servers; its other servers are free again$/);
    await until('its next attempt', async () => (await read(younger)).attempt === 2);
    expect(await read(older)).toMatchObject({ status: 'QUEUED', attempt: 1 });
    const { restartsUsed, restartsTotal } = await database.run.findUniqueOrThrow({ where: { id: younger } });
    expect([restartsUsed, restartsTotal]).toEqual([0, 0]);
  });
});

describe('places of workers', () => {
  const MIRRORED = { globalBatch: 64, replicas: 2, strategy: { kind: 'multi-worker-mirrored', workers: 2 } };

  it('are those of workers that hold shards, and what is left of a placement goes when it is taken', async () => {
    const [queues, jobs] = [
      plane.api.app.get(Queues),
      new ManualQueue(WORKER_PLACEMENT_QUEUE, placementJobSchema, fleet.redisUrl, 'scripted-worker'),
    ];
    fleet.beat('worker', 'without', { holdsShards: false });
    fleet.beat('worker', 'with', { holdsShards: true });
    const id = await createRun(plane.admin, MIRRORED);
    const reason = async (): Promise<string> =>
      (await plane.admin.gql('query($id: ID!) { run(id: $id) { statusReason } }', { id })).data.run.statusReason;
    await until('the reason', async () => (await reason()).includes('2 are connected, 1 of them with a folder for checkpoints'));
    expect(await queues.waitingIds('worker-placement')).toEqual([]);
    fleet.beat('worker'); // one of an older release says nothing of it
    await until('both placements', async () => (await queues.waitingIds('worker-placement')).length === 2);
    const held = await until('a placement', () => jobs.take());
    expect(await held.complete('claimed')).toBe(true);
    expect(await queues.stateOf('worker-placement', held.id), 'it has the key of its attempt in it').toBe('missing');
    await jobs.close();
  });
});

describe('a run that goes on', () => {
  const ask = async (request: 'pause' | 'resume' | 'extend', id: string, rest = '') => {
    const change = `mutation($id: ID!) { asked: ${request}Run(id: $id${rest}) { __typename ... on LimitReached { message limit most used asked } } }`;
    const { data, ...answer } = await plane.admin.gql(change, { id });
    if (!data) throw new Error(`${request}: ${JSON.stringify(answer)}`);
    return data.asked;
  };
  const statusOf = (id: string, status: string) =>
    untilStatus(async () => (await plane.admin.gql('query($id: ID!) { run(id: $id) { status } }', { id })).data.run, status);
  async function setLimits(limits: object): Promise<void> {
    const { data } = await plane.admin.gql('{ viewer { team { id } } }');
    const set = 'mutation($id: ID!, $limits: TeamLimitsInput!) { asked: setTeamLimits(teamId: $id, limits: $limits) { __typename } }';
    const answer = await plane.admin.gql(set, { id: data.viewer.team.id, limits });
    expect(answer.data.asked.__typename).toBe('SetTeamLimitsSuccess');
  }

  it('may have as many workers that hold its shards as the limit of the team allows', async () => {
    const id = await createRun(plane.admin, { globalBatch: 64, replicas: 4, strategy: { kind: 'multi-worker-mirrored', workers: 2 } });
    const scale = async (workers: number) =>
      (
        await plane.admin.gql(
          'mutation($id: ID!, $workers: Int!) { scaleRun(id: $id, workers: $workers) { __typename ... on LimitReached { limit most asked } ... on InvalidInput { issues { path message } } ... on ChangeRunSuccess { run { workersWanted } } } }',
          { id, workers },
        )
      ).data.scaleRun;
    await setLimits({ workers: 3 });
    try {
      expect(await scale(4)).toEqual({ __typename: 'LimitReached', limit: 'workers', most: 3, asked: 4 });
      expect(await scale(3)).toEqual({ __typename: 'ChangeRunSuccess', run: { workersWanted: 3 } });
      expect(await scale(5)).toMatchObject({ __typename: 'InvalidInput', issues: [{ path: 'workers' }] });
      await setLimits({ workers: 1 });
      // Fewer is always better, even where it is still too much.
      expect(await scale(2)).toEqual({ __typename: 'ChangeRunSuccess', run: { workersWanted: 2 } });
    } finally {
      await setLimits({ workers: null });
    }
    const found = async () => (await plane.admin.gql('query($id: ID!) { run(id: $id) { attempt spec workersWanted } }', { id })).data.run;
    expect(await found()).toMatchObject({ attempt: 1, workersWanted: 2, spec: { strategy: { workers: 2 } } });
    expect(await scale(1)).toEqual({ __typename: 'ChangeRunSuccess', run: { workersWanted: 1 } });
    await until('the next attempt', async () => (await found()).attempt === 2);
    expect(await found()).toMatchObject({ workersWanted: 1, spec: { strategy: { workers: 1 } } });
    // A number that is above the limit by now keeps nobody from ending the run.
    expect(await scale(2)).toMatchObject({ __typename: 'ChangeRunSuccess' });
    await setLimits({ workers: 1 });
    const { cancelled } = (await plane.admin.gql('mutation($id: ID!) { cancelled: cancelRun(id: $id) { __typename } }', { id })).data;
    await setLimits({ workers: null });
    expect(cancelled.__typename).toBe('CancelRunSuccess');
  });

  it('counts again when it was over, and its servers must fit; beside creations at the same moment no lock waits for another', async () => {
    const { id, coordinator } = await fleet.training(plane, { length: { epochs: 5 } });
    await coordinator.publish([checkpointWritten(1, 1175, { reason: 'final' })], { round: 1175 });
    await coordinator.finish();
    await statusOf(id, 'SUCCEEDED');
    const waits = await createRun(plane.admin);
    await ask('pause', waits);
    await statusOf(waits, 'PAUSED');
    await setLimits({ activeRuns: 1, serverPlaces: 2 });
    try {
      expect(await ask('extend', id, ', epochs: 1')).toEqual({
        __typename: 'LimitReached',
        limit: 'activeRuns',
        most: 1,
        used: 1,
        asked: 1,
        message: expect.stringMatching(/limit is 1 runs that are not over: 1 are in use/),
      });
      const rest = await plane.admin.post(`/api/v1/runs/${id}/extend`).send({ epochs: 1 });
      expect([rest.status, rest.body.code]).toEqual([409, 'LIMIT_REACHED']);
      expect(await ask('resume', waits, ', servers: 3')).toMatchObject({ __typename: 'LimitReached', limit: 'serverPlaces', asked: 3 });
      const together = await Promise.all([
        ...Array.from({ length: 4 }, () => ask('extend', id, ', epochs: 1')),
        ...Array.from({ length: 4 }, () => plane.admin.gql(CREATE_RUN, { spec: {} }).then(({ data }) => data.createRun)),
        ask('resume', waits, ', servers: 2'),
      ]);
      expect(together.map(({ __typename }) => __typename)).toEqual([...Array<string>(8).fill('LimitReached'), 'ChangeRunSuccess']);
    } finally {
      await setLimits({ activeRuns: null, serverPlaces: null });
    }
    expect(await ask('extend', id, ', epochs: 1')).toEqual({ __typename: 'ChangeRunSuccess' });
  });
});
