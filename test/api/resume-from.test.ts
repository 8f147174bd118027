/** A run that begins with a checkpoint of another one: its spec, its rounds, and what is refused, over GraphQL and REST. */
import { describe, expect, it } from 'vitest';
import { RunRequests } from './run-requests.js';
import { checkpointWritten, onAFreshPlane, type ScriptedFleet } from './scripted-fleet.js';
import { CREATE_RUN, until, type ControlPlane } from './services.js';

let plane: ControlPlane;
let fleet: ScriptedFleet;
let requests: RunRequests;
onAFreshPlane((given) => {
  ({ plane, fleet } = given);
  requests = new RunRequests(plane, fleet);
});

const runOf: RunRequests['runOf'] = (id) => requests.runOf(id);
const statusOf: RunRequests['statusOf'] = (...given) => requests.statusOf(...given);
const pausedAt: RunRequests['pausedAt'] = (...given) => requests.pausedAt(...given);
const running = (spec?: object) => fleet.training(plane, spec);

describe("a run that begins with another run's checkpoint", () => {
  const RESUME = CREATE_RUN.replace('$clusterSpecId: ID', '$clusterSpecId: ID, $resumeFrom: ResumeFromInput').replace(
    'clusterSpecId: $clusterSpecId',
    'clusterSpecId: $clusterSpecId, resumeFrom: $resumeFrom',
  );
  const begin = async (spec: object, resumeFrom: object) => {
    const { data, errors } = await plane.admin.gql(RESUME, { spec, resumeFrom });
    expect(errors).toBeUndefined();
    return data.createRun;
  };
  const begun = async (spec: object, resumeFrom: object) => {
    const made = await begin(spec, resumeFrom);
    expect(made.__typename, JSON.stringify(made)).toBe('CreateRunSuccess');
    return made.run as { id: string };
  };

  it('counts from there, and is refused in words where its weights would not fit', async () => {
    const { id, coordinator } = await running();
    await coordinator.publish([...coordinator.rounds(0, 9), checkpointWritten(1, 5), checkpointWritten(1, 10)], { round: 10 });
    await pausedAt(id, coordinator, 12);
    expect((await begin({ optimizer: { name: 'adam', learningRate: 0.01 } }, { runId: id })).issues).toEqual([
      { path: 'optimizer.name', message: `is momentum in run ${id} and cannot become adam: its slots would not fit` },
    ]);
    expect((await begin({ model: 'cnn' }, { runId: id })).issues).toEqual([
      { path: 'model', message: expect.stringMatching(/^has other variables than run .* would not fit$/) },
    ]);
    expect((await begin({}, { runId: id, round: 7 })).message).toMatch(/no usable checkpoint of round 7/);
    expect((await begin({ length: { rounds: 12 } }, { runId: id })).issues).toEqual([
      { path: 'length', message: expect.stringContaining('12 committed rounds') },
    ]);
    const run = await begun({ name: 'second' }, { runId: id, round: 10 });
    expect((await fleet.takePlacement()).payload).toMatchObject({
      runId: run.id,
      attempt: 1,
      restore: { runId: id, attempt: 1, round: 10 },
    });
    expect(await runOf(run.id)).toMatchObject({
      progress: { round: 10 },
      attempts: [{ number: 1, fromRound: 10, parentNumber: 1, parentRunId: id }],
    });
  });

  it('keeps the checkpoint that it waits for, of a run that goes on and would remove it', async () => {
    const { id, coordinator } = await running({ checkpoint: { everyRounds: 5, keepLast: 1, keepBest: false } });
    await coordinator.publish([...coordinator.rounds(0, 4), checkpointWritten(1, 5)], { round: 5 });
    await until('the checkpoint', async () => (await runOf(id)).checkpoints.length === 1);
    const child = await begun({ name: 'waits' }, { runId: id });
    expect(await fleet.control(id, 'pins')).toBe('1:5');
    await coordinator.publish([...coordinator.rounds(5, 9), checkpointWritten(1, 10)], { round: 10 });
    await coordinator.publish([...coordinator.rounds(10, 14), checkpointWritten(1, 15)], { round: 15 });
    await until('the newest checkpoint', async () => (await runOf(id)).checkpoints.some(({ round }: { round: number }) => round === 15));
    expect((await runOf(id)).checkpoints.map(({ round }: { round: number }) => round)).toEqual([15, 5]);
    await plane.admin.post(`/api/v1/runs/${child.id}/cancel`).send({});
    await statusOf(child.id, 'CANCELLED');
    await coordinator.publish([...coordinator.rounds(15, 19), checkpointWritten(1, 20)], { round: 20 });
    await until('nothing is pinned', async () => (await fleet.control(id, 'pins')) === '');
  });

  it('takes over the whole spec, and what the request says is laid over it', async () => {
    const source = {
      name: 'source',
      optimizer: { name: 'adam', learningRate: 0.01, beta1: 0.8 },
      gradient: { clipNorm: 3 },
      globalBatch: 128,
      seed: 7,
      checkpoint: { everyRounds: 5, keepLast: 9 },
    };
    const { id, coordinator } = await running(source);
    await pausedAt(id, coordinator, 12);
    const { spec: whole } = await runOf(id);
    expect((await runOf((await begun({}, { runId: id })).id)).spec).toEqual(whole);
    const tuned = await begun(
      { optimizer: { learningRate: 0.001 }, gradient: { clipNorm: 1 }, globalBatch: 64, strategy: { servers: 2 } },
      { runId: id },
    );
    expect((await runOf(tuned.id)).spec).toEqual({
      ...whole,
      optimizer: { ...whole.optimizer, learningRate: 0.001 },
      gradient: { ...whole.gradient, clipNorm: 1 },
      globalBatch: 64,
      strategy: { ...whole.strategy, servers: 2 },
    });
    // Over REST the same, with the id in the query.
    const rest = await plane.admin.post(`/api/v1/runs?resumeFromRun=${id}&resumeFromRound=12`).send({ name: 'rest' });
    expect([rest.status, rest.body.spec]).toEqual([201, { ...whole, name: 'rest' }]);
    expect((await plane.admin.post('/api/v1/runs?resumeFromRound=12').send({})).body.issues).toEqual([
      { path: 'resumeFromRound', message: expect.stringContaining('resumeFromRun') },
    ]);
  });

  it('is made once per idempotency key, though the source has a newer checkpoint by the time of the second request', async () => {
    const { id, coordinator } = await running();
    await coordinator.publish([...coordinator.rounds(0, 4), checkpointWritten(1, 5)], { round: 5 });
    const path = `/api/v1/runs?resumeFromRun=${id}`;
    const send = () => plane.admin.post(path).set('idempotency-key', 'again').send({ name: 'once' });
    const first = await until('the checkpoint', async () => {
      const answer = await send();
      return answer.status === 201 && answer;
    });
    expect(first.headers['idempotent-replayed']).toBeUndefined();
    await coordinator.publish([...coordinator.rounds(5, 9), checkpointWritten(1, 10)], { round: 10 });
    await until('the newer checkpoint', async () => (await runOf(id)).checkpoints[0].round === 10);
    const second = await send();
    expect([second.status, second.body.id, second.headers['idempotent-replayed']]).toEqual([201, first.body.id, 'true']);
  });

  it('of a run that has trained to its end trains as long again', async () => {
    const { id, coordinator } = await running({ length: { rounds: 12 } });
    await pausedAt(id, coordinator, 12);
    expect((await runOf((await begun({}, { runId: id })).id)).spec.length).toEqual({ rounds: 24 });
  });

  it('fails when that checkpoint cannot be loaded: there is nothing else to go on from', async () => {
    const { id, coordinator } = await running();
    await pausedAt(id, coordinator, 4);
    const run = await begun({}, { runId: id });
    const held = await fleet.takePlacement();
    await fleet.report({ kind: 'server.failed', runId: run.id, attempt: 1, index: 0, code: 'CHECKPOINT_INVALID', message: 'torn' });
    await held.complete('failed');
    expect((await statusOf(run.id, 'FAILED')).statusReason).toMatch(/cannot be loaded any more/);
    expect((await runOf(id)).checkpoints).toMatchObject([{ round: 4, state: 'INVALID' }]);
  });
});
