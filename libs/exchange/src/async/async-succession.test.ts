/** Modes async and ssp: a coordinator that has taken the place of another, and former primaries that have not heard that they were replaced. */
import type { Message, MessageOf, DoneSetMessage } from '@paceline/protocol';
import { expect, test } from 'vitest';
import type { Connection } from '../connection.js';
import { Coordinator } from '../attempt/coordinator.js';
import { surroundings } from '../attempt/surroundings.fixture.js';
import { Journal } from '../attempt/journal.js';
import type { Succession } from '../attempt/succession.js';
import { DoneSet } from './done-set.js';
import { WorkItems } from './work-items.js';

const REPLICAS = 2;
const ROUNDS = 4;
const plan = { replicas: REPLICAS, totalRounds: ROUNDS, replicaExamples: () => 3 };

function peer() {
  const messages: Message[] = [];
  const connection = {
    isOpen: true,
    queuedBytes: 0,
    receivedBytes: 0,
    close: () => undefined,
    sendMessage: (message: Message) => void messages.push(message),
  } as unknown as Connection;
  const newest = <T extends Message['type']>(type: T) =>
    messages.filter((message): message is MessageOf<T> => message.type === type).at(-1);
  return { connection, messages, newest };
}

/** As a server tells them that is done with the work items of these numbers. */
function marks(numbers: readonly number[], { since = 0, leftOut = [] as readonly number[] } = {}): DoneSetMessage {
  const all = new DoneSet(plan);
  for (const number of numbers) all.add(all.itemOf(number));
  for (const number of leftOut) all.leaveOut(all.itemOf(number));
  return all.told(since);
}

/** The successor of the coordinator in term 3; shard 1 was led in `terms[1]` when the arbiter answered. */
function succeeding(terms: Succession['terms']) {
  const coordinator = new Coordinator(
    {
      attempt: 1,
      replicas: REPLICAS,
      servers: 2,
      shards: [0, 1],
      evalExamples: 0,
      mode: 'async',
      stalenessBound: 0,
      nonFinite: 'skip',
      journal: new Journal({ now: () => 0 }),
      now: () => 0,
      surroundings: surroundings(),
      schedule: { totalRounds: ROUNDS, examplesIn: () => 6, epochOf: () => 0, replicaExamples: () => 3 },
      checkpoints: { everyRounds: 0, everyMs: 0, deadlineMs: 1_000, final: false },
      succession: { term: 3, view: 4, members: [], ledgerFrom: 0, newest: 0, terms },
    },
    WorkItems,
  );
  const join = (index: number, term: number) => {
    coordinator.serverComes(index, term);
    const server = peer();
    coordinator.serverJoined(index, server.connection);
    return server;
  };
  const stands = (index: number, term: number, told: DoneSetMessage, view = 4): void =>
    coordinator.serverMessage(index, { type: 'standing', round: 0, view, term, isReduced: false, marks: told });
  const worker = () => {
    const { connection, newest } = peer();
    const hello = { type: 'hello', token: '', run: '00000000-0000-4000-8000-000000000001', role: 'worker', host: 'h' } as const;
    coordinator.memberJoined({ ...hello, id: 'w0', seat: 0, incarnation: 0, fingerprint: 'f', layout: 'l' }, connection, {
      round: 0,
      view: 4,
    });
    return { newest, numbers: () => newest('items')?.items.map(({ round, replica }) => round * REPLICAS + replica) };
  };
  return { coordinator, join, stands, worker };
}

test('a former primary, whose shard was taken over before the coordinator was, is refused: its marks lack what counts', () => {
  const { coordinator, join, stands, worker } = succeeding([3, 2]);
  join(0, 3);
  stands(0, 3, marks([0, 1, 2]));
  expect(() => join(1, 1)).toThrow(/STALE_TERM.*another server leads it in term 2/u);
  expect(coordinator.takeovers.isAsking).toBe(true);
  join(1, 2);
  stands(1, 2, marks([0, 1, 2]));
  for (const [index, term] of [3, 2].entries()) stands(index, term, marks([0, 1, 2], { since: 3 }));
  expect(coordinator.plan.marks.count).toBe(3);
  expect(worker().numbers()).toEqual([3, 4]);
});

test('the fence is the term of its own shard: that of another shard, which is higher, says nothing of who issued a work item', () => {
  const { coordinator, join, stands } = succeeding([3, 2]);
  join(1, 4);
  stands(1, 4, marks([]));
  join(0, 3);
  stands(0, 3, marks([]));
  for (const [index, term] of [3, 4].entries()) stands(index, term, marks([], { since: 4 }));
  expect(coordinator.takeovers.isAsking).toBe(true);
  for (const [index, term] of [3, 4].entries()) stands(index, term, marks([], { since: 3 }));
  expect(coordinator.takeovers.isAsking).toBe(false);
});

/** It has begun by what a former primary of shard 1 has told, which the arbiter replaces only now. */
function begun(numbers: readonly number[]) {
  const all = succeeding([3, 1]);
  const servers = [all.join(0, 3), all.join(1, 1)];
  for (const since of [0, 3]) for (const [index, term] of [3, 1].entries()) all.stands(index, term, marks(numbers, { since }));
  all.coordinator.serverMessage(1, { type: 'standby-link', up: true, id: 's1', why: '' });
  return { ...all, servers };
}

test('what a standby heard of the coordinator before, which had not heard that it was replaced either, is begun: no checkpoint is taken without it', () => {
  const { coordinator, join, stands, worker } = begun([0]);
  const { newest, numbers } = worker();
  expect(numbers()).toEqual([1, 2]);
  coordinator.serverLost(1, 'it has come again');
  join(1, 4);
  stands(1, 4, marks([0, 4]), 9);
  expect(coordinator.view).toBeGreaterThan(9);
  expect(newest('view')?.view).toBe(coordinator.view);
  coordinator.stops.pause();
  // Work items 3 and 5 complete the rounds that are begun with work item 4; round 3 is not.
  for (let turn = 0; turn < 6; turn++)
    for (const number of numbers() ?? []) {
      const item = { round: Math.floor(number / REPLICAS), replica: number % REPLICAS };
      for (const index of [0, 1]) coordinator.serverMessage(index, { type: 'applied', ...item, staleness: 0 });
      coordinator.memberMessage('w0', { type: 'contribution', ...item, examples: 3, sums: [1, 1] });
    }
  expect(coordinator.plan.marks.rounds).toBe(3);
  expect(coordinator.plan.marks.isExactly(3)).toBe(true);
});

test('what it was told to leave out is left out at all shards', () => {
  const { coordinator, join, stands, servers, worker } = begun([]);
  const { numbers } = worker();
  expect(numbers()).toEqual([0, 1]);
  coordinator.serverLost(1, 'it has come again');
  const standby = join(1, 4);
  stands(1, 4, marks([1, 2], { leftOut: [1, 2] }));
  for (const replica of [0, 1]) {
    const round = replica === 0 ? 1 : 0;
    for (const { messages } of [servers[0]!, standby]) expect(messages).toContainEqual({ type: 'drop', round, replica });
    coordinator.serverMessage(0, { type: 'applied', round, replica, staleness: 0, isDropped: true });
  }
  expect(coordinator.plan.marks.count).toBe(2);
  expect(coordinator.ledger.state().exceptions.map(({ examples }) => examples)).toEqual([3, 3]);
});

test.each([
  ['a checkpoint of what is done is taken once it knows that', [0, 1], 'STOPPING', 0],
  ['nothing is done since the newest one, and it ends there', [], 'OVER', undefined],
])('it is told to end before it knows where the servers stand: %s', (_, done, state, committed) => {
  const { coordinator, join, stands } = succeeding([3, 1]);
  const servers = [join(0, 3), join(1, 1)];
  coordinator.stops.shutdown('its process ends');
  expect(coordinator.table.state).toBe('ISSUING');
  for (const since of [0, 3]) for (const [index, term] of [3, 1].entries()) stands(index, term, marks(done, { since }));
  expect(coordinator.table.state).toBe(state);
  for (const { newest } of servers) expect(newest('commit')?.round).toBe(committed);
});
