import type { ControlFields, HeldJob, JobQueue, PlacementJob, StepTaskJob } from '@paceline/control-plane';
import { beforeEach, expect, it } from 'vitest';
import { StandbyQueue } from './standby-queue.js';
import { WorkerQueues } from './worker-queues.js';

const RUN = '0190c5a5-0000-7000-8000-000000000000';
const TASK = '0190c5a5-0000-7000-8000-000000000001';
const placement = (changes: Partial<PlacementJob> = {}): PlacementJob =>
  ({
    kind: 'placement',
    runId: RUN,
    attempt: 2,
    index: 1,
    servers: 3,
    token: 'server token',
    spec: { strategy: { kind: 'multi-worker-mirrored', standby: 1 } },
    member: { tokenKey: 'key', seatToken: 'seat token' },
    ...changes,
  }) as PlacementJob;
const stepTask = { runId: 'another', seat: 0, heldSeats: 2 } as StepTaskJob;

/** One job waits, again after it was given back. */
class OneJob<T> implements JobQueue<T> {
  isWaiting = true;
  given = 0;
  onTake: () => void = () => undefined;
  constructor(private readonly payload: T) {}
  take(): Promise<HeldJob<T> | undefined> {
    if (!this.isWaiting) return Promise.resolve(undefined);
    this.isWaiting = false;
    this.onTake();
    const giveBack = (): Promise<boolean> => {
      this.given++;
      return Promise.resolve((this.isWaiting = true));
    };
    return Promise.resolve({
      id: 'j',
      payload: this.payload,
      keep: () => Promise.resolve(true),
      complete: () => Promise.resolve(true),
      giveBack,
    });
  }
  peek = () => Promise.resolve(this.isWaiting ? this.payload : undefined);
  close = () => Promise.resolve();
}

let hosted: PlacementJob | undefined;
let control: ControlFields;
let steps: OneJob<StepTaskJob>;
let placements: OneJob<PlacementJob>;
let queues: WorkerQueues;
beforeEach(() => {
  [hosted, control] = [undefined, {}];
  [steps, placements] = [new OneJob(stepTask), new OneJob(placement())];
  queues = new WorkerQueues({
    stepTasks: steps,
    placements,
    controlPlane: { readControl: () => Promise.resolve(control) },
    holdsShards: true,
    hosted: () => hosted,
  });
});
const offer = (attempt: number, ...seats: readonly [seat: number, incarnation: number][]): void => {
  const servers = [0, 1, 2].map((index) => ({ index, serverId: `w${index}`, host: 'h', port: 1 + index, unixPath: null }));
  control = {
    start: JSON.stringify({ attempt, servers }),
    seats: JSON.stringify({ attempt, seats: seats.map(([seat, incarnation]) => ({ seat, incarnation, stepTaskId: TASK })) }),
  };
};

it('a worker in a seat takes no shard until it has left', async () => {
  const seat = (await queues.seats.take())!;
  expect(seat.payload.runId).toBe('another');
  expect(await queues.placements.take()).toBeUndefined();
  await seat.complete('left');
  expect((await queues.placements.take())?.payload.index).toBe(1);
});

it('who is offered a seat and a shard at once keeps one of the two, and the other waits again', async () => {
  steps.onTake = () => (hosted = placement());
  expect(await queues.seats.take()).toBeUndefined();
  expect(steps.given).toBe(1);
  steps.onTake = () => undefined;
  hosted = undefined;
  const [shard, seat] = await Promise.all([queues.placements.take(), queues.seats.take()]);
  expect([shard, seat].filter((held) => held !== undefined)).toHaveLength(1);
  expect(placements.given + steps.given).toBe(2);
});

it('with a shard it takes the seat of that shard, each incarnation once, with the token for it', async () => {
  hosted = placement();
  expect(await queues.seats.take()).toBeUndefined();
  for (const [attempt, seat] of [
    [1, 1],
    [2, 0],
  ] as const) {
    offer(attempt, [seat, 0]);
    expect(await queues.seats.take()).toBeUndefined();
  }
  offer(2, [0, 0], [1, 0]);
  const held = (await queues.seats.take())!;
  expect(held.payload).toMatchObject({ runId: RUN, attempt: 2, seat: 1, incarnation: 0, token: 'seat token', stepTaskId: TASK });
  expect(held.payload.servers).toHaveLength(3);
  await held.complete('left');
  expect(await queues.seats.take()).toBeUndefined();
  offer(2, [1, 1]);
  expect((await queues.seats.take())?.payload.incarnation).toBe(1);
  expect(steps.isWaiting, 'no other seat was taken').toBe(true);
});

it('takes the shard of the next attempt as soon as its own is over, though that shard has not let go', async () => {
  hosted = placement({ attempt: 1 });
  expect(await queues.placements.take()).toBeUndefined();
  control = { action: '1:cancel' };
  expect((await queues.placements.take())?.payload.attempt).toBe(2);
});

it('takes the shard of the next attempt when nobody has said that its own is over, as after a pause that was taken back at once', async () => {
  hosted = placement({ attempt: 1 });
  control = { claims: JSON.stringify({ attempt: 1, claims: [] }) };
  expect(await queues.placements.take()).toBeUndefined();
  control = { claims: JSON.stringify({ attempt: 2, claims: [] }) };
  expect((await queues.placements.take())?.payload.attempt).toBe(2);
});

it('yields its seat to a run that waits for workers, and never with a shard', async () => {
  expect(await queues.seats.peek()).toEqual({ runId: RUN, heldSeats: 0 });
  placements.isWaiting = false;
  expect(await queues.seats.peek()).toBe(stepTask);
  hosted = placement();
  expect(await queues.seats.peek()).toBeUndefined();
});

it('the standby of the next shard goes with a shard, once, and again when it was lost', async () => {
  let [hasStandby, nowMs] = [false, 0];
  const standbys = new StandbyQueue({ hosted: () => hosted, hasStandby: () => hasStandby, nowMs: () => nowMs });
  expect(await standbys.take()).toBeUndefined();
  hosted = placement({ index: 2 });
  expect((await standbys.take())?.payload).toMatchObject({ index: 0, role: 'standby', runId: RUN, attempt: 2 });
  expect(await standbys.take()).toBeUndefined();
  [hasStandby, nowMs] = [true, 10_000];
  expect(await standbys.take()).toBeUndefined();
  hasStandby = false;
  expect((await standbys.take())?.payload.index).toBe(0);
  hosted = placement({ attempt: 3, spec: { strategy: { kind: 'multi-worker-mirrored', standby: 0 } } as PlacementJob['spec'] });
  expect(await standbys.take()).toBeUndefined();
});

it('a worker that can hold no shard yields to no placement', async () => {
  const without = new WorkerQueues({
    stepTasks: steps,
    placements,
    hosted: () => undefined,
    holdsShards: false,
    controlPlane: { readControl: () => Promise.resolve(control) },
  });
  expect(await without.seats.peek()).toBe(stepTask);
});

it('a worker that is told to end takes neither a seat nor a shard, and gives back what it is given meanwhile', async () => {
  steps.onTake = placements.onTake = () => queues.stop();
  expect(await queues.seats.take()).toBeUndefined();
  expect(steps.given).toBe(1);
  expect(await queues.seats.take()).toBeUndefined();
  expect(await queues.placements.take()).toBeUndefined();
  expect(steps.isWaiting && placements.isWaiting).toBe(true);
  hosted = placement();
  offer(2, [1, 0]);
  expect((await queues.seats.take())?.payload.seat, 'its shard is still there').toBe(1);
});

it('a worker whose attempt is cancelled takes any seat, though its shard has not let go', async () => {
  hosted = placement();
  control = { action: '2:cancel' };
  expect((await queues.seats.take())?.payload.runId).toBe('another');
});
