/** What is expected of whoever stores a run: its places, its seats, and what is late for them. */
import { expect } from 'vitest';
import type { DispatchAction } from '@paceline/control-plane';
import { placeOf, type ContractRows, type ContractScenario } from './stored-contract.fixture.js';

const open = (seat: number, heldSeats = 0): DispatchAction => ({ kind: 'open-seat', seat, heldSeats });
const hold = (seat: number, incarnation: number, isNew = true, replicas = [0, 1]): DispatchAction => ({
  kind: 'hold-seat',
  seat,
  incarnation,
  workerId: `w${seat}`,
  replicas,
  isNew,
});
/** Each side knows the row's id. */
const task = (seat: number, incarnation: number) => ({
  id: '',
  seat,
  incarnation,
  workerId: null,
  replicas: [],
  heldSeats: 0,
  createdAtMs: 0,
  heldAtMs: null,
});
const close = (seat: number, incarnation: number, why = 'no longer wanted'): DispatchAction => ({
  kind: 'close-seat',
  task: task(seat, incarnation),
  why,
});
const again = (index: number, incarnation: number, serverId: string | null, role: 'primary' | 'standby' = 'primary'): DispatchAction => ({
  kind: 'make-placement-again',
  index,
  role,
  incarnation,
  serverId,
  why: 'lost',
});
const end: DispatchAction = { kind: 'end-attempt', end: { kind: 'failed', cause: 'SERVER_LOST', message: 'lost' } };

const EVERY_ACTION: readonly DispatchAction[] = [
  { kind: 'mark-started' },
  again(0, 0, null),
  open(3),
  hold(0, 0),
  close(0, 0),
  { kind: 'forget-seat-failures' },
  { kind: 'reprioritise-seat', task: task(0, 0), heldSeats: 3 },
  { kind: 'move', to: 'FAILED', reason: 'an old voice' },
  { kind: 'explain', reason: 'an old voice', isWaiting: true },
  end,
  { kind: 'begin-attempt', reason: 'an old voice' },
];

const seatOf = ({ seats }: ContractRows, seat: number, incarnation: number, attempt = 1) =>
  seats.find((row) => row.attempt === attempt && row.seat === seat && row.incarnation === incarnation);
export const PLACE_SCENARIOS: readonly ContractScenario[] = [
  {
    name: 'a new run: its places and their jobs are there, and nothing else',
    spec: { standby: 1 },
    async play(script) {
      const rows = await script.run.rows();
      expect(rows.run).toMatchObject({ status: 'QUEUED', attempt: 1, serverCount: 4, totalRounds: 100, coordinator: null });
      expect(rows.attempts).toMatchObject([{ number: 1, hasStarted: false, parent: null, storedSequence: 0, coordinatorTerm: 1 }]);
      expect(rows.jobs).toEqual(['place-a1-i0-m0', 'place-a1-i0-standby-m0', 'place-a1-i1-m0', 'place-a1-i1-standby-m0']);
      expect([rows.seats, rows.checkpoints, rows.entries]).toEqual([[], [], []]);
    },
  },
  {
    name: 'what was decided for an older attempt changes nothing, whichever action it is',
    async play(script) {
      await script.train();
      await script.act(open(0));
      await script.end('SERVER_LOST');
      const before = await script.begin();
      expect(before.run).toMatchObject({ attempt: 2, status: 'QUEUED' });
      for (const action of EVERY_ACTION)
        for (const status of ['RUNNING', 'QUEUED', 'RECOVERING'] as const)
          expect(await script.act(action, { attempt: 1, status }), action.kind).toEqual(before);
    },
  },
  {
    name: 'after the end of an attempt nothing of it is revived: no seat, no place, no job, no start',
    async play(script) {
      await script.train();
      await script.act(open(0));
      await script.act(hold(0, 0));
      await script.act(open(1));
      const ended = await script.end('SERVER_LOST');
      expect(ended.jobs).toEqual([]);
      expect(ended.seats.map(({ state, closeReason }) => [state, closeReason])).toEqual([
        ['CLOSED', 'the run is RECOVERING'],
        ['CLOSED', 'the run is RECOVERING'],
      ]);
      const late: DispatchAction[] = [open(2), hold(0, 0), hold(1, 0, false), again(0, 0, 'p0-a1'), end, { kind: 'mark-started' }];
      for (const action of late) expect(await script.act(action, { attempt: 1, status: 'RUNNING' }), action.kind).toEqual(ended);
      expect(await script.seatFailed(1, 0)).toEqual(ended);
    },
  },
  {
    name: 'a placement is made again once: by its counter, and by the server that had it',
    async play(script) {
      expect(placeOf(await script.act(again(0, 1, null)), 0)).toMatchObject({ incarnation: 0 });
      const once = await script.act(again(0, 0, null));
      expect(placeOf(once, 0)).toMatchObject({ incarnation: 1, isClaimed: false });
      expect(once.jobs).toContain('place-a1-i0-m1');
      expect(await script.act(again(0, 0, null))).toEqual(once);
      await script.claim(1, 0, 'p', { incarnation: 1 });
      const claimed = await script.act(again(0, 1, null));
      expect(placeOf(claimed, 0)).toMatchObject({ incarnation: 1, serverId: 'p' });
      expect(await script.act(again(0, 1, 'q'))).toEqual(claimed);
      const free = await script.act(again(0, 1, 'p'));
      expect(placeOf(free, 0)).toMatchObject({
        incarnation: 2,
        serverId: null,
        port: null,
        storage: null,
        isClaimed: false,
        isLoading: false,
      });
      expect(free.jobs).toContain('place-a1-i0-m2');
    },
  },
  {
    name: 'the first claim of a part counts; loading ends by its own word; a standby has a part of its own',
    spec: { standby: 1 },
    async play(script) {
      const first = await script.claim(1, 0, 'p', { loading: true, storage: 'here', incarnation: 0 });
      expect(placeOf(first, 0)).toMatchObject({ serverId: 'p', port: 7000, storage: 'here', isClaimed: true, isLoading: true });
      expect(placeOf(first, 0, 'standby')).toMatchObject({ isClaimed: false });
      expect(await script.claim(1, 0, 'q')).toEqual(first);
      expect(await script.claim(1, 0, 'q', { loading: true })).toEqual(first);
      expect(await script.claim(2, 0, 'p')).toEqual(first);
      const loaded = await script.claim(1, 0, 'p');
      expect(placeOf(loaded, 0)).toMatchObject({ isLoading: false, storage: 'here' });
      expect(await script.claim(1, 0, 'p', { loading: true })).toEqual(loaded);
      expect(placeOf(await script.claim(1, 0, 's', { role: 'standby' }), 0, 'standby')).toMatchObject({ serverId: 's', isLoading: false });
      await script.act(again(1, 0, null));
      expect(placeOf(await script.claim(1, 1, 'late', { incarnation: 0 }), 1)).toMatchObject({ incarnation: 1, isClaimed: false });
      expect(placeOf(await script.claim(1, 1, 'new', { incarnation: 1 }), 1)).toMatchObject({ serverId: 'new', isClaimed: true });
    },
  },
  {
    name: 'seats open side by side, each once; after its end a seat opens under a new number',
    async play(script) {
      await script.train();
      await script.act(open(0));
      const both = await script.act(open(1, 1));
      expect(both.seats).toMatchObject([
        { seat: 0, incarnation: 0, state: 'OPEN', heldSeats: 0 },
        { seat: 1, incarnation: 0, state: 'OPEN', heldSeats: 1 },
      ]);
      expect(both.jobs.filter((job) => job.startsWith('step'))).toEqual(['step-a1-s0-n0', 'step-a1-s1-n0']);
      expect(await script.act(open(0))).toEqual(both);
      expect(await script.act(open(1, 3))).toEqual(both);
      const closed = await script.act(close(1, 0));
      expect(seatOf(closed, 1, 0)).toMatchObject({ state: 'CLOSED', closeReason: 'no longer wanted' });
      expect(await script.act(close(1, 0, 'again'))).toEqual(closed);
      const reopened = await script.act(open(1));
      expect(reopened.seats.map(({ seat, incarnation, state }) => [seat, incarnation, state])).toEqual([
        [0, 0, 'OPEN'],
        [1, 0, 'CLOSED'],
        [1, 1, 'OPEN'],
      ]);
      // A seat that is held may be offered beside it: the coordinator says who has it.
      await script.act(hold(0, 0));
      expect(seatOf(await script.act(open(0)), 0, 1)).toMatchObject({ state: 'OPEN' });
    },
  },
  {
    name: 'a seat is held as the coordinator reports it: also one that is closed, when it is new; never one that nobody opened',
    async play(script) {
      await script.train();
      await script.act(open(0));
      const held = await script.act(hold(0, 0));
      expect(seatOf(held, 0, 0)).toMatchObject({ state: 'HELD', workerId: 'w0', replicas: [0, 1], wasHeld: true, closeReason: null });
      expect(seatOf(await script.act(hold(0, 0, false, [2, 3])), 0, 0)).toMatchObject({ state: 'HELD', replicas: [2, 3] });
      const left = await script.seatLeft(1, 0, 0);
      expect(seatOf(left, 0, 0)).toMatchObject({ state: 'CLOSED', closeReason: 'it leaves' });
      expect(await script.act(hold(0, 0, false))).toEqual(left);
      expect(seatOf(await script.act(hold(0, 0)), 0, 0)).toMatchObject({ state: 'HELD', closeReason: null });
      const before = await script.run.rows();
      expect(await script.act(hold(0, 1))).toEqual(before);
      expect(await script.act(hold(3, 0))).toEqual(before);
    },
  },
  {
    name: 'the priority of a seat changes while it is open',
    async play(script) {
      await script.train();
      await script.act(open(0));
      const reprioritise: DispatchAction = { kind: 'reprioritise-seat', task: task(0, 0), heldSeats: 2 };
      expect(seatOf(await script.act(reprioritise), 0, 0)).toMatchObject({ heldSeats: 2 });
      const held = await script.act(hold(0, 0));
      expect(await script.act({ ...reprioritise, heldSeats: 3 })).toEqual(held);
    },
  },
  {
    name: 'a seat that failed is counted and closed where it is open; one that was left is free',
    async play(script) {
      await script.train();
      for (const action of [open(0), hold(0, 0), open(0), open(1)]) await script.act(action);
      const failed = await script.seatFailed(1, 0, 1);
      expect(failed.attempts[0]).toMatchObject({ seatFailures: 1, hasFailedSeat: true });
      expect(failed.seats.map(({ state, closeReason }) => [state, closeReason])).toEqual([
        ['HELD', null],
        ['CLOSED', 'w: ENGINE_CRASHED'],
        ['OPEN', null],
      ]);
      expect((await script.seatFailed(1, 0)).attempts[0]).toMatchObject({ seatFailures: 2 }); // of the one that is held
      const before = await script.act({ kind: 'forget-seat-failures' });
      expect(before.attempts[0]).toMatchObject({ seatFailures: 0, hasFailedSeat: true });
      expect(await script.seatFailed(2, 1)).toEqual(before);
      const left = await script.seatLeft(1, 0, 0);
      expect(seatOf(left, 0, 0)).toMatchObject({ state: 'CLOSED', closeReason: 'it leaves', wasHeld: true });
      expect(seatOf(left, 1, 0)).toMatchObject({ state: 'OPEN' });
      expect(await script.seatLeft(1, 0, 0)).toEqual(left);
      expect(await script.seatLeft(2, 1, 0)).toEqual(left);
    },
  },
  {
    name: 'a seat that failed, told late or twice, is counted once, and the next one that waits, or is about to be held, stays open',
    async play(script) {
      await script.train();
      await script.act(open(0));
      const failed = await script.seatFailed(1, 0, 0);
      expect(failed.attempts[0]).toMatchObject({ seatFailures: 1 });
      expect(failed.events.at(-1)).toMatchObject({
        type: 'seat.failed',
        data: { workerId: 'w', seat: 0, incarnation: 0, code: 'ENGINE_CRASHED' },
      });
      const again = await script.act(open(0));
      expect(await script.seatFailed(1, 0, 0)).toEqual(again);
      expect(seatOf(again, 0, 1)).toMatchObject({ state: 'OPEN' });
      // The reconciler had closed it before its worker was heard: counted, and nothing else is closed.
      await script.act(close(0, 1));
      await script.act(open(0));
      const late = await script.seatFailed(1, 0, 1);
      expect(late.attempts[0]).toMatchObject({ seatFailures: 2 });
      expect(late.seats.map(({ incarnation, state, closeReason }) => [incarnation, state, closeReason])).toEqual([
        [0, 'CLOSED', 'w: ENGINE_CRASHED'],
        [1, 'CLOSED', 'no longer wanted'],
        [2, 'OPEN', null],
      ]);
      // A job that came twice: both of its workers failed.
      expect((await script.seatFailed(1, 0, 1, 'another')).attempts[0]).toMatchObject({ seatFailures: 3 });
    },
  },
  {
    name: 'a complaint counts from who has the part, and after the start from who leads',
    spec: { standby: 1 },
    async play(script, another) {
      await script.claim(1, 0, 'p');
      const claimed = await script.claim(1, 0, 's', { role: 'standby' });
      expect(await script.serverFailed(1, 0, 'a copy')).toEqual(claimed);
      expect(await script.serverFailed(2, 0, 'p')).toEqual(claimed);
      const ended = await script.serverFailed(1, 0, 'p', 'CHECKPOINT_ELSEWHERE');
      expect(ended.run).toMatchObject({ status: 'FAILED', statusReason: 'parameter server 0 failed (CHECKPOINT_ELSEWHERE): it says so' });
      expect(ended.attempts[0]).toMatchObject({ hasEnded: true, endCause: 'STORAGE_NOT_SHARED' });
      expect(await script.serverFailed(1, 0, 'p')).toEqual(ended);

      const other = await another();
      const training = await other.train();
      expect(await other.serverFailed(1, 1, 's1-a1')).toEqual(training);
      expect((await other.serverFailed(1, 1, 'p1-a1')).run).toMatchObject({ status: 'RECOVERING', restartsUsed: 1 });
    },
  },
];
