/** Runs that leave more work items out than anybody can name: what is kept of them is bounded, and whoever takes over counts right or says why not. */
import { MAX_ITEMS_AHEAD, type Message } from '@paceline/protocol';
import { expect, test } from 'vitest';
import type { Connection } from '../connection.js';
import { Coordinator } from '../attempt/coordinator.js';
import { surroundings } from '../attempt/surroundings.fixture.js';
import { Journal } from '../attempt/journal.js';
import { DoneSet } from './done-set.js';
import { WorkItems } from './work-items.js';
import { ClockedItems } from './work-source.js';

const REPLICAS = 4;
const plan = { replicas: REPLICAS, totalRounds: 100_000, replicaExamples: (_round: number, replica: number) => replica + 1 };
const examplesOf = (numbers: readonly number[]): number => numbers.reduce((sum, number) => sum + (number % REPLICAS) + 1, 0);

/** Every third work item of the first `items` is left out, all are done. */
function marksOf(items: number): { marks: DoneSet; left: number[] } {
  const marks = new DoneSet(plan);
  const left: number[] = [];
  for (let number = 0; number < items; number++) {
    const item = marks.itemOf(number);
    if (number % 3 === 0) {
      marks.leaveOut(item);
      left.push(number);
    }
    marks.add(item);
  }
  return { marks, left };
}

test('work items that were left out are named as far back as one may not be done somewhere, and are counted before that', () => {
  const { marks, left } = marksOf(300_000);
  const { dropped, droppedBefore } = marks.told(0);
  expect(dropped.length).toBeLessThanOrEqual(MAX_ITEMS_AHEAD);
  expect(dropped).toEqual(left.filter((number) => number > left.at(-1)! - MAX_ITEMS_AHEAD));
  const before = left.filter((number) => number < dropped[0]!);
  expect([before.length + dropped.length, droppedBefore]).toEqual([left.length, { examples: examplesOf(before), end: before.at(-1)! + 1 }]);
  expect(marks.leaveOut(marks.itemOf(0))).toBe(false); // told again, it is nothing new
});

test('when all are left out, no more are kept than may not be done somewhere', () => {
  const marks = new DoneSet(plan);
  for (let number = 0; number < 200_000; number++) marks.leaveOut(marks.itemOf(number));
  const { dropped, droppedBefore } = marks.told(0);
  expect(dropped).toHaveLength(MAX_ITEMS_AHEAD);
  expect(droppedBefore.end).toBe(200_000 - MAX_ITEMS_AHEAD);
  expect(droppedBefore.examples + examplesOf(dropped)).toBe((200_000 / 4) * 10);
});

test('in mode ssp, too, no work item is issued further beyond the first one that is not done', () => {
  const marks = new DoneSet({ ...plan, replicas: 16 });
  const source = new ClockedItems({ ...plan, replicas: 16 }, marks, 10_000);
  const others = Array.from({ length: 15 }, (_, i) => i + 1);
  let issued = 0;
  for (;;) {
    const next = source.next(others);
    if ('waitsFor' in next) {
      expect(next.waitsFor).toContain(`replica 0 in round 0: ${MAX_ITEMS_AHEAD} work items beyond it are issued`);
      break;
    }
    issued++;
    marks.add(next);
    source.done(next);
  }
  expect(issued).toBe((MAX_ITEMS_AHEAD / 16) * 15);
});

/** A coordinator that takes over from one whose shards have done this. */
function successorOf(shards: readonly DoneSet[], ledgerFrom: number) {
  const journal = new Journal({ now: () => 0 });
  const over: unknown[] = [];
  const sent: Message[] = [];
  const coordinator = new Coordinator(
    {
      attempt: 1,
      replicas: REPLICAS,
      evalExamples: 0,
      journal,
      now: () => 0,
      schedule: { ...plan, examplesIn: () => 10, epochOf: () => 0 },
      servers: shards.length,
      shards: [...shards.keys()],
      mode: 'async',
      stalenessBound: 0,
      nonFinite: 'skip',
      surroundings: surroundings((...how) => void over.push(how)),
      succession: { term: 2, view: 1, members: [], ledgerFrom, newest: 0 },
    },
    WorkItems,
  );
  const connection = { isOpen: true, close: () => undefined, sendMessage: (message: Message) => void sent.push(message) };
  for (const index of shards.keys()) coordinator.serverJoined(index, connection as unknown as Connection);
  for (const since of [0, 2])
    for (const [index, marks] of shards.entries()) {
      const { view } = coordinator;
      const [term, told] = [index === 0 ? 2 : 1, marks.told(since)];
      coordinator.serverMessage(index, { type: 'standing', round: marks.rounds, view, term, isReduced: false, marks: told });
    }
  return { coordinator, journal, over, sent };
}

test('whoever takes over counts those that are not named any more, as long as their rounds are stored', () => {
  const { marks, left } = marksOf(300_000);
  const { coordinator, over, journal } = successorOf([marks], 74_990);
  expect(over).toEqual([]);
  expect(coordinator.round).toBe(75_000);
  expect(coordinator.ledger.state().examples).toBe(75_000 * 10 - examplesOf(left));
  const [row] = journal.batch(1_000).filter((entry) => entry.kind === 'ledger');
  const ofRows = left.filter((number) => number >= 74_990 * REPLICAS);
  expect(row).toMatchObject({ fromRound: 74_990, toRound: 74_999, examples: 10 * 10 - examplesOf(ofRows), dropped: examplesOf(ofRows) });
});

test('whoever takes over after very many work items does so at once', () => {
  const marks = new DoneSet(plan);
  const ITEMS = 390_000;
  marks.skipTo(ITEMS);
  const beyond = marks.itemOf(ITEMS + 5);
  marks.add(beyond);
  let asked = 0;
  const replicaExamples = plan.replicaExamples;
  plan.replicaExamples = (...item) => (asked++, replicaExamples(...item));
  try {
    const { coordinator, over } = successorOf([marks, marks], ITEMS / REPLICAS);
    expect(over).toEqual([]);
    expect(coordinator.plan.marks.watermark).toBe(ITEMS);
    expect(coordinator.ledger.state().examples).toBe((ITEMS / REPLICAS) * 10 + examplesOf([ITEMS + 5]));
    expect(asked).toBeLessThan(1_000);
  } finally {
    plan.replicaExamples = replicaExamples;
  }
});

test('when they are not stored, the attempt ends with its server, and the next one takes up from the newest checkpoint', () => {
  const { over, journal } = successorOf([marksOf(300_000).marks], 10);
  expect(over).toHaveLength(1);
  const failed = journal.batch().find((entry) => entry.kind === 'event' && entry.type === 'run.failed');
  expect(failed).toMatchObject({ data: { cause: 'SERVER_LOST' } });
  expect(JSON.stringify(failed)).toContain('more work items were dropped than a successor is told of');
});

test('what one shard names and another has let go of is left out at both: only what a DROP has not reached is told again', () => {
  const shards = [200_000, 200_002].map((items) => {
    const marks = new DoneSet(plan);
    for (let number = 0; number < items; number++) {
      marks.leaveOut(marks.itemOf(number));
      marks.add(marks.itemOf(number));
    }
    return marks;
  });
  const { coordinator, over, sent } = successorOf(shards, 40_000);
  expect(over).toEqual([]);
  expect(coordinator.plan.marks.watermark).toBe(200_000);
  const drops = sent.filter((message) => message.type === 'drop').map(({ round, replica }) => round * REPLICAS + replica);
  expect([...new Set(drops)]).toEqual([200_000, 200_001]);
  coordinator.serverMessage(0, { type: 'applied', round: 50_000, replica: 0, staleness: 0, isDropped: true });
  coordinator.serverMessage(0, { type: 'applied', round: 50_000, replica: 1, staleness: 0, isDropped: true });
  expect(coordinator.plan.marks.watermark).toBe(200_002);
  expect(coordinator.ledger.state().examples).toBe(0);
});
