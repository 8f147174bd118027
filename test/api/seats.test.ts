/** Seats of a run as jobs: opened, taken in the order of need, made again when they fail, and closed with the run. */
import { priorityOf, stepTaskJobId, type ObservedRun } from '@paceline/control-plane';
import { describe, expect, it } from 'vitest';
import { Database } from '../../apps/api/src/database/database.js';
import { Executor } from '../../apps/api/src/dispatch/executor.js';
import { Queues } from '../../apps/api/src/dispatch/queues.js';
import { onAFreshPlane, type ScriptedFleet } from './scripted-fleet.js';
import { createRun, until, untilStatus, type ControlPlane } from './services.js';

let plane: ControlPlane;
let fleet: ScriptedFleet;
onAFreshPlane((given) => ({ plane, fleet } = given));

const waiting = (kind: 'placement' | 'step-task') => plane.api.app.get(Queues).waitingIds(kind);
const runOf = async (id: string) =>
  (await plane.admin.gql('query($id: ID!) { run(id: $id) { status statusReason stepTasks { seat incarnation state replicas } } }', { id }))
    .data.run;
const statusOf = (id: string, status: string) => untilStatus(() => runOf(id), status);

const running = (spec?: object) => fleet.training(plane, spec);

describe('seats', () => {
  it('are opened one at a time until every replica has a worker, and again when one is left', async () => {
    const server = fleet.beat('server');
    const worker = fleet.beat('worker');
    const id = await createRun(plane.admin, { replicas: 2 });
    const coordinator = await fleet.claim(id, [server.id]);
    const first = await fleet.takeStepTask();
    expect(first.payload).toMatchObject({ runId: id, seat: 0, incarnation: 0, heldSeats: 0, servers: [{ serverId: server.id }] });
    await coordinator.seat(worker.id, first.payload, [0]);
    const second = await fleet.takeStepTask();
    expect(second.payload).toMatchObject({ seat: 1, incarnation: 0, heldSeats: 1 });
    await coordinator.seat('worker-b', second.payload, [1]);
    await until(
      'both are held',
      async () => (await runOf(id)).stepTasks.filter((task: { state: string }) => task.state === 'HELD').length === 2,
    );
    await new Promise((resolve) => setTimeout(resolve, 900));
    expect(await waiting('step-task')).toEqual([]);
    expect((await runOf(id)).stepTasks).toHaveLength(2);
    // The worker of seat 0 leaves: the same seat, made once more.
    await coordinator.publish([], { seats: coordinator.state.seats.filter(({ seat }) => seat === 1) });
    expect((await fleet.takeStepTask()).payload).toMatchObject({ seat: 0, incarnation: 1, heldSeats: 1 });
    // A short list has those that train: what was closed, and what waits, comes after them.
    expect((await runOf(id)).stepTasks.map((task: { seat: number; state: string }) => [task.seat, task.state])).toEqual([
      [1, 'HELD'],
      [0, 'OPEN'],
      [0, 'CLOSED'],
    ]);
  });

  it('of the run with fewer workers are taken first, also after that has changed', async () => {
    const { id: rich, coordinator } = await running();
    await until('the second seat', async () => (await waiting('step-task')).length === 1);
    const poor = await createRun(plane.admin);
    await fleet.claim(poor, [fleet.beat('server').id]);
    await until('both seats', async () => (await waiting('step-task')).length === 2);
    // The rich run loses its only worker: now its open seat is as urgent, and its data says so.
    await coordinator.publish([], { seats: [] });
    const job = stepTaskJobId(rich, 1, 1, 0);
    await until('the new priority', async () => (await fleet.redis.hget(`bull:paceline-step-tasks:${job}`, 'priority')) === '1');
    await coordinator.seat('worker-x', { seat: 0, incarnation: 0 });
    await until(
      'the old priority',
      async () => (await fleet.redis.hget(`bull:paceline-step-tasks:${job}`, 'priority')) === String(priorityOf(1, 1)),
    );
    expect((await fleet.takeStepTask()).payload).toMatchObject({ runId: poor, heldSeats: 0 });
    expect((await fleet.takeStepTask()).payload).toMatchObject({ runId: rich, heldSeats: 1 });
  });

  it('of the team with fewer workers are taken first among runs with equally many, also after that has changed', async () => {
    const [greedy, small] = [await plane.team('greedy'), await plane.team('small')];
    const train = async (team: typeof greedy, workerId: string) => {
      const id = await createRun(team);
      const coordinator = await fleet.claim(id, [fleet.beat('server').id]);
      const own = async (seat: number) => (await waiting('step-task')).includes(stepTaskJobId(id, 1, seat, 0));
      await until('its seat', () => own(0));
      const { payload } = await fleet.takeStepTask();
      expect(payload.runId).toBe(id);
      await coordinator.train(workerId, payload);
      await until('its next seat', () => own(1));
      return { id, coordinator };
    };
    const first = await train(greedy, 'worker-a');
    const second = await train(greedy, 'worker-b');
    const other = await train(small, 'worker-c');
    // A seat of the greedy team waits again as one of a run with a worker.
    const job = stepTaskJobId(second.id, 1, 1, 0);
    const priority = () => fleet.redis.hget(`bull:paceline-step-tasks:${job}`, 'priority');
    await second.coordinator.publish([], { seats: [] });
    await until('the higher priority', async () => (await priority()) === String(priorityOf(0, 1)));
    await second.coordinator.seat('worker-b', { seat: 0, incarnation: 0 });
    await until('the lower priority', async () => (await priority()) === String(priorityOf(1, 2)));
    const order = [await fleet.takeStepTask(), await fleet.takeStepTask(), await fleet.takeStepTask()].map(({ payload }) => payload.runId);
    expect(order.at(-1), 'its team holds two').toBe(second.id);
    expect(order).toContain(other.id);
    expect(order).toContain(first.id);
  });

  it('that fail are made again after a pause, and a run that no worker can hold fails with the last reason', async () => {
    const server = fleet.beat('server');
    fleet.beat('worker');
    const id = await createRun(plane.admin);
    await fleet.claim(id, [server.id]);
    const fail = async (message: string, incarnation: number) =>
      fleet.report({
        kind: 'seat.failed',
        runId: id,
        attempt: 1,
        seat: 0,
        incarnation,
        workerId: 'worker-a',
        code: 'ENGINE_MISSING',
        message,
        serverIndex: null,
      });
    const held = await fleet.takeStepTask();
    await fail('no wasm here', 0);
    await held.complete('given-up');
    expect((await fleet.takeStepTask()).payload).toMatchObject({ seat: 0, incarnation: 1 });
    for (let i = 0; i < 7; i++) await fail(`no wasm here, ${i}`, 1 + i);
    expect((await statusOf(id, 'FAILED')).statusReason).toMatch(
      /no worker can take a seat: 8 failed in a row; the last one: worker worker-a could not take or keep seat 0 \(ENGINE_MISSING\): no wasm here, 6/,
    );
  });

  it('of a run that has ended meanwhile are not revived by what was decided before', async () => {
    const { id, coordinator } = await running();
    const { attempt, stepTasks } = await until('the held seat', async () => {
      const select = { attempt: true, stepTasks: { where: { state: 'HELD' } } } as const;
      const run = await plane.api.app.get(Database).run.findUniqueOrThrow({ where: { id }, select });
      return run.stepTasks.length > 0 && run;
    });
    await coordinator.finish();
    await statusOf(id, 'SUCCEEDED');
    const [held] = stepTasks;
    const executor = plane.api.app.get(Executor);
    const observed = { runId: id, attempt } as ObservedRun;
    const { seat, incarnation, workerId, replicas } = held!;
    await executor.carryOut(observed, { kind: 'hold-seat', seat, incarnation, workerId: workerId!, replicas, isNew: false });
    await executor.carryOut(observed, { kind: 'open-seat', seat: 3, heldSeats: 1 });
    const states = (await runOf(id)).stepTasks.map(({ state }: { state: string }) => state);
    expect(new Set(states)).toEqual(new Set(['CLOSED']));
  });

  it('that nobody asked for are swept out of the queue', async () => {
    const queues = plane.api.app.get(Queues);
    const { id } = await running();
    const held = await until('the open seat', async () => (await waiting('step-task'))[0]);
    await queues.add([
      { jobId: `step-${id}-a1-s9-n9`, payload: { kind: 'step-task' } as never },
      { jobId: 'forged', payload: { kind: 'step-task', seat: 'x'.repeat(1000) } as never },
    ]);
    await until('only the real one is left', async () => String(await waiting('step-task')) === held, 8_000);
  });
});
