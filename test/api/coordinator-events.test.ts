/** What the api makes of events of a coordinator: what a codec has lost of replicas, along the lineage of the weights, and what the first rounds take, with strategy auto. */
import { randomUUID } from 'node:crypto';
import { RESIDUAL_LOST } from '@paceline/protocol';
import { parseRunSpec, workerBytes, type ModelDescription } from '@paceline/spec';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Database } from '../../apps/api/src/database/database.js';
import { isBeforeLocalUpdates } from '../../apps/api/src/runs/strategy-choice.js';
import { checkpointWritten, Coordinator, ScriptedFleet } from './scripted-fleet.js';
import { ControlPlane } from './services.js';

const KEEPS = { codec: { kind: 'top-k', density: 0.1, errorFeedback: true } };

let plane: ControlPlane;
let fleet: ScriptedFleet;
beforeAll(async () => {
  plane = await ControlPlane.start();
  fleet = await new ScriptedFleet(plane.redis.url).ready();
});
afterAll(async () => {
  await fleet?.stop();
  await plane?.stop();
});

const lost = (cause: string, fromRound: number, replicas: number) =>
  ({ kind: 'event', type: RESIDUAL_LOST, message: `${replicas} are lost`, data: { cause, fromRound, replicas } }) as const;

async function told(id: string): Promise<unknown> {
  const { data } = await plane.admin.gql('query($id: ID!) { run(id: $id) { lostResiduals { fromRound replicas causes } } }', { id });
  const { body } = await plane.admin.get(`/api/v1/runs/${id}`);
  expect((body as { lostResiduals: unknown }).lostResiduals).toEqual(data.run.lostResiduals);
  return data.run.lostResiduals;
}

async function publish(coordinator: Coordinator, ...events: ReturnType<typeof lost>[]): Promise<void> {
  await coordinator.publish(events);
  await coordinator.acknowledged();
}

test('lost residuals are told from the first round that they change, with the newest count of each cause', async () => {
  const { id, coordinator } = await fleet.training(plane, KEEPS);
  await coordinator.publish(coordinator.rounds(0, 19), { round: 20 });
  expect(await told(id)).toBeNull();
  await publish(coordinator, lost('moved', 12, 2), lost('gap', 15, 1), lost('moved', 12, 5));
  expect(await told(id)).toEqual({ fromRound: 12, replicas: 6, causes: ['moved', 'gap'] });
  // Another coordinator takes over and counts from nothing; one says what no coordinator means.
  await publish(coordinator, lost('moved', 18, 1), lost('theft', 3, 1), lost('moved', -1, 0));
  expect(await told(id)).toEqual({ fromRound: 12, replicas: 7, causes: ['moved', 'gap'] });
  // The next attempt begins at round 0: what the one before has lost is in no weights.
  const database = plane.api.app.get(Database);
  await database.$transaction([
    database.run.update({ where: { id }, data: { attempt: 2 } }),
    database.attempt.create({ data: { runId: id, number: 2 } }),
  ]);
  expect(await told(id)).toBeNull();
  coordinator.fallSilent();
});

test('with parameters as differences a checkpoint has lost what workers had of them', async () => {
  const { id, coordinator } = await fleet.training(plane, { codec: { parameters: 'delta-int4' } });
  await coordinator.publish(coordinator.rounds(0, 19), { round: 20 });
  await publish(coordinator, lost('checkpoint', 12, 4));
  expect(await told(id)).toEqual({ fromRound: 12, replicas: 4, causes: ['checkpoint'] });
  coordinator.fallSilent();
});

test('a run whose codec keeps nothing has no residuals to lose', async () => {
  const { id, coordinator } = await fleet.training(plane, { codec: { kind: 'int8' } });
  await publish(coordinator, lost('moved', 12, 2));
  expect(await told(id)).toBeNull();
  coordinator.fallSilent();
});

test('what the first rounds take makes a run of strategy auto one of local updates, which has no checkpoint of before', async () => {
  const { id, coordinator } = await fleet.training(plane, {
    strategy: { kind: 'auto', allowedLocalSteps: 20 },
    learningRate: { schedule: 'cosine' },
    codec: { kind: 'auto' },
  });
  const measured = {
    stepMs: 50,
    waitMs: 800,
    latencyMs: 0,
    denseBytes: 1e6,
    nodes: 1,
    workers: 2,
    servers: 1,
    cores: 2,
    isBeforeCodec: true,
  };
  await coordinator.publish([
    ...coordinator.rounds(0, 5),
    checkpointWritten(1, 3),
    { kind: 'event', type: 'strategy.measured', message: 'measured', data: measured },
  ]);
  await coordinator.acknowledged();
  const database = plane.api.app.get(Database);
  // 60,000 examples in batches of 256 are 235 steps of an epoch, and 12 rounds of twenty: 5 epochs.
  expect(await database.run.findUniqueOrThrow({ where: { id } })).toMatchObject({
    totalRounds: 60n,
    roundsPerEpoch: 12n,
    spec: {
      strategy: { kind: 'local-update', localSteps: 20 },
      codec: { kind: 'top-k', parameters: 'int8' },
      learningRate: { decayRounds: 60 },
    },
  });
  const kept = await database.checkpoint.findMany({ where: { runId: id } });
  expect(kept.map(({ round, invalidAt }) => [round, invalidAt !== null])).toEqual([[3, true]]);
  // One that was under way may still be told before the next attempt begins.
  const areBefore = await database.$transaction((transaction) =>
    Promise.all([1, 2].map((attempt) => isBeforeLocalUpdates(transaction, id, attempt))),
  );
  expect(areBefore).toEqual([true, false]);
});

test.each([
  ['memory for two', { threads: 2 }, {}, {}],
  [
    'an engine of one thread that it has chosen',
    undefined,
    { engine: 'auto' },
    { refusal: /engine tensorflow, which a worker has chosen/ },
  ],
  ['memory that another one shares', undefined, {}, { workers: 2, refusal: /2 workers of one machine need \d+ MB for them, and may use/ }],
  [
    'memory that another run has',
    undefined,
    {},
    { others: 1, refusal: /a worker needs \d+ MB for them, and may use 0 MB beside those of other runs/ },
  ],
] as const)('a worker with eight cores gets compute threads by what the first rounds take: %s', async (_, threads, more, also) => {
  const { workers = 1, others = 0, refusal }: { readonly workers?: number; readonly others?: number; readonly refusal?: RegExp } = also;
  const asked = { strategy: { kind: 'auto' }, replicas: 4, ...more };
  const { id, coordinator, worker } = await fleet.training(plane, asked);
  worker.stop();
  const database = plane.api.app.get(Database);
  const row = await database.run.findUniqueOrThrow({ where: { id } });
  const { parameterCount, stateCount } = row.model as unknown as ModelDescription;
  const parsed = parseRunSpec({ ...asked, strategy: { kind: 'hybrid', threads: 2 } });
  const memoryBytes = parsed.ok ? workerBytes(parsed.spec, parameterCount + stateCount) : 0;
  const engines = [{ name: 'tensorflow', fingerprint: null, examplesPerSecond: null, isChosen: true }];
  const has = (worker: string, changes: object) =>
    fleet.report({ kind: 'heartbeat', role: 'worker', member: fleet.member('worker', worker, changes) });
  // Workers of another machine have the cores of that one.
  for (let i = 0; i < 8; i++) await has(`foreign-${i}`, { host: 'another-host', runId: randomUUID() });
  for (let i = 0; i < workers; i++) await has(i === 0 ? worker.id : `${worker.id}-${i}`, { runId: id, host: id, memoryBytes, engines });
  for (let i = 0; i < others; i++) await has(`${worker.id}-other-${i}`, { runId: randomUUID(), host: id });
  const data = { stepMs: 80, waitMs: 4, latencyMs: 0, denseBytes: 1e6, nodes: 1, workers, servers: 1, cores: 8 };
  await coordinator.publish([...coordinator.rounds(0, 5), { kind: 'event', type: 'strategy.measured', message: 'measured', data }]);
  await coordinator.acknowledged();
  const { spec, status } = await database.run.findUniqueOrThrow({ where: { id } });
  const picked = await database.runEvent.findFirstOrThrow({ where: { runId: id, type: 'strategy.picked' } });
  if (threads) {
    expect(spec).toMatchObject({ strategy: { kind: 'hybrid', servers: 1, ...threads } });
    expect(status).not.toBe('RUNNING'); // the next attempt has them
    expect(picked.message).toMatch(
      /picked hybrid: .*with hybrid .* in 2 compute threads of each worker; .*; 8 cores for each worker: hybrid saves/,
    );
  } else {
    expect(spec).toMatchObject({ strategy: { kind: 'parameter-server' } });
    expect(picked.message).toMatch(/since with more: /);
    expect(picked.message).toMatch(refusal!);
  }
  coordinator.fallSilent();
});
