/** What a server of a shard without chunks, and one that was replaced, tell others: both have nothing that would stop them. And what a server tells again. */
import { expect, test, vi } from 'vitest';
import type { FrameHeader, Message, MessageOf } from '@paceline/protocol';
import type { Connection, FrameReceiver } from '../connection.js';
import { Shard } from '../sync/shard.js';
import { Standby } from './standby.js';
import { ShardPlace } from './shard-place.js';

const header = (term: number) => ({ attempt: 1, term }) as FrameHeader;
const commit = (round: number): Message => ({ type: 'commit', round, view: 1, term: 1 });

/** A connection whose far end is read from `sent`, and speaks through `receiver`. */
function link() {
  const sent: Message[] = [];
  const state: { receiver?: FrameReceiver } = {};
  const breaks = (): void => state.receiver!.closed({ error: undefined, description: 'it broke' });
  const connection = {
    isOpen: true,
    queuedBytes: 0,
    receivedBytes: 0,
    close: () => undefined,
    sendMessage: (message: Message) => void sent.push(message),
    setReceiver: (receiver: FrameReceiver) => (state.receiver = receiver),
  } as unknown as Connection;
  return { sent, connection, breaks, hears: (message: Message, term = 1) => state.receiver!.message(message, header(term)) };
}

const emptyShard = (tell: (message: Message) => void, also: { twoPhase?: { hasBackups: boolean } } = {}) =>
  new Shard({
    ...also,
    index: 0,
    attempt: 1,
    replicas: 2,
    chunks: [],
    initial: [],
    firstRound: 0,
    createReduction: () => {
      throw new Error('a shard without chunks reduces nothing');
    },
    isValidNode: () => true,
    store: { update: () => undefined },
    coordinator: { tell },
  });

/** A primary with its standby, and its coordinator in the same process. */
function pair() {
  const toCoordinator = link();
  const toStandby = link();
  const place = new ShardPlace({
    index: 0,
    attempt: 1,
    serverId: 'p0',
    isStandby: false,
    clock: { now: () => 0, after: () => () => undefined, every: () => () => undefined, soon: () => undefined },
    surroundings: {
      connect: () => Promise.reject(new Error('nobody is dialled')),
      hello: () => ({}) as MessageOf<'hello'>,
      ask: () => undefined,
      coordinatorHere: () => toCoordinator.connection,
      promoted: () => undefined,
      placeOver: () => undefined,
      guard: (act) => act(),
    },
  });
  const shard = emptyShard((message) => place.tell(message));
  place.start(shard, { servers: [{ index: 0, serverId: 'p0' }], standbys: [{ index: 0, serverId: 's0' }] });
  place.admitStandby('s0', toStandby.connection);
  const reduced = () => toCoordinator.sent.filter((message) => message.type === 'reduced').map(({ round }) => round);
  return { shard, toCoordinator, toStandby, reduced };
}

test('a shard without chunks is reduced when its standby has the COMMIT before', () => {
  const { toCoordinator, toStandby, reduced } = pair();
  expect(reduced()).toEqual([0]);
  toCoordinator.hears(commit(0));
  expect(reduced()).toEqual([0]);
  toStandby.hears({ type: 'replicated', round: 1, chunk: 0 });
  expect(reduced()).toEqual([0, 1]);
  // COMMIT that comes again is owed nothing.
  toCoordinator.hears(commit(0));
  toCoordinator.hears(commit(1));
  toStandby.hears({ type: 'replicated', round: 2, chunk: 0 });
  expect(reduced()).toEqual([0, 1, 2]);
});

test('the standby of a shard without chunks acknowledges each COMMIT', () => {
  const { connection, sent } = link();
  const shard = emptyShard(() => undefined);
  const none = () => undefined;
  const standby = new Standby({ attempt: 1, shard, now: () => 0, place: { askToPromote: none, promoted: none, standbyOver: none } });
  standby.linked(connection);
  standby.message(commit(0), header(1));
  standby.message(commit(1), header(1));
  expect(sent).toEqual([1, 2].map((round) => ({ type: 'replicated', round, chunk: 0 })));
});

test('a server speaks in the term in which it leads, also after its coordinator was replaced', () => {
  const { shard, toCoordinator } = pair();
  toCoordinator.hears({ type: 'view', view: 2, term: 3, round: 0, members: [] }, 3);
  expect(shard.view).toBe(2);
  expect(shard.numbers().term).toBe(1);
  shard.promote(4);
  expect(shard.numbers().term).toBe(4);
});

test('what a server has told of a round goes over the next connection again, where the coordinator has a standby', async () => {
  const links = [link(), link()];
  const [first, second] = links as [ReturnType<typeof link>, ReturnType<typeof link>];
  const dialled = [first, second].values();
  const place = new ShardPlace({
    index: 1,
    attempt: 1,
    serverId: 'p1',
    isStandby: false,
    clock: { now: () => 0, after: (ms, act) => (ms < 1_000 && act(), () => undefined), every: () => () => undefined, soon: (act) => act() },
    surroundings: {
      connect: () => Promise.resolve(dialled.next().value!.connection),
      hello: () => ({ type: 'hello' }) as MessageOf<'hello'>,
      ask: () => undefined,
      coordinatorHere: () => expect.fail('it is elsewhere'),
      promoted: () => undefined,
      placeOver: () => undefined,
      guard: (act) => act(),
    },
  });
  const shard = emptyShard((message) => place.tell(message), { twoPhase: { hasBackups: false } });
  const servers = ['p0', 'p1'].map((serverId, index) => ({ index, serverId }));
  place.start(shard, { servers, standbys: [{ index: 0, serverId: 's0' }] });
  const view: Message = { type: 'view', view: 2, term: 1, round: 0, members: [] };
  const types = ({ sent }: ReturnType<typeof link>) => sent.map(({ type }) => type);
  await vi.waitFor(() => expect(first.sent.length).toBeGreaterThan(0));
  first.hears(view);
  // Nothing has broken: the view of the coordinator asks for nothing.
  expect(types(first)).toEqual(['hello', 'standing', 'scalars']);
  first.breaks();
  await vi.waitFor(() => expect(second.sent.length).toBeGreaterThan(0));
  expect(types(second)).toEqual(['hello', 'standing']);
  second.hears(view);
  expect(types(second)).toEqual(['hello', 'standing', 'standing', 'scalars']);
  // Once is enough.
  second.hears(Object.assign({}, view, { view: 3 }));
  expect(types(second)).toHaveLength(4);
});
