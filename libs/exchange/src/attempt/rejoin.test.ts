/** Workers that come again over another connection, before anybody knows that the former one is gone, or while nobody else is there. */
import type { Message, MessageOf } from '@paceline/protocol';
import { expect, test } from 'vitest';
import type { Connection } from '../connection.js';
import { Coordinator } from './coordinator.js';
import { WorkItems } from '../async/work-items.js';
import { Rounds } from '../sync/rounds.js';
import { surroundings } from './surroundings.fixture.js';
import { Journal } from './journal.js';

interface Heard {
  readonly connection: Connection;
  readonly messages: Message[];
}

function listening(): Heard {
  const messages: Message[] = [];
  const connection = {
    isOpen: true,
    queuedBytes: 0,
    receivedBytes: 0,
    close: () => undefined,
    sendMessage: (message: Message) => void messages.push(message),
  };
  return { connection: connection as unknown as Connection, messages };
}

const lastOf = <T extends Message['type']>({ messages }: Heard, type: T): MessageOf<T> =>
  messages.findLast((message): message is MessageOf<T> => message.type === type)!;

const helloOf = (id: string, seat: number, incarnation = 0): MessageOf<'hello'> => ({
  type: 'hello',
  token: '',
  run: '00000000-0000-4000-8000-000000000001',
  role: 'worker',
  host: 'h',
  fingerprint: 'f',
  layout: 'l',
  id,
  seat,
  incarnation,
});

const options = {
  attempt: 1,
  replicas: 2,
  evalExamples: 0,
  journal: new Journal({ now: () => 0 }),
  now: () => 0,
  schedule: { totalRounds: 5, examplesIn: () => 4, epochOf: () => 0, replicaExamples: () => 2 },
  surroundings: surroundings(),
};

function items(): Coordinator {
  const coordinator = new Coordinator(
    { ...options, servers: 1, shards: [0], mode: 'async', stalenessBound: 0, nonFinite: 'fail' },
    WorkItems,
  );
  coordinator.serverJoined(0, listening().connection);
  return coordinator;
}

test.each([0, 1])('a worker that takes seat %i over another connection is given its work items anew', (seat) => {
  const coordinator = items();
  coordinator.memberJoined(helloOf('w', 0), listening().connection);
  const again = listening();
  coordinator.memberJoined(helloOf('w', seat, 1), again.connection);
  expect(lastOf(again, 'items').items).toEqual([
    { round: 0, replica: 0 },
    { round: 0, replica: 1 },
  ]);
});

test('a connection that is refused takes nothing from a worker', () => {
  const coordinator = items();
  const present = listening();
  coordinator.memberJoined(helloOf('w', 0, 1), present.connection);
  coordinator.memberJoined(helloOf('other', 1), listening().connection);
  // An echo of a seat that it held before, and of one that another holds.
  for (const old of [helloOf('w', 0, 0), helloOf('w', 1, 0)])
    expect(() => coordinator.memberJoined(old, listening().connection)).toThrow('SEAT_TAKEN');
  expect(lastOf(present, 'items').items).toHaveLength(2);
});

test('a server that connects while the only worker is away is told of it: its replicas are its own when it is back', () => {
  const coordinator = new Coordinator({ ...options, servers: 1 }, Rounds);
  coordinator.serverJoined(0, listening().connection);
  const worker = listening();
  coordinator.memberJoined(helloOf('w', 0), worker.connection);
  const { view, members } = lastOf(worker, 'view');
  expect(members).toMatchObject([{ id: 'w', replicas: [0, 1] }]);
  coordinator.memberClosed('w', worker.connection, 'it broke');
  const server = listening();
  coordinator.serverJoined(0, server.connection);
  expect(lastOf(server, 'view')).toMatchObject({ view, members });
});

test('a worker that comes while a server is away, and nobody else is there, has its replicas when the server is back', () => {
  const coordinator = new Coordinator({ ...options, servers: 2 }, Rounds);
  for (const index of [0, 1]) coordinator.serverJoined(index, listening().connection);
  coordinator.memberJoined(helloOf('w', 0), listening().connection);
  coordinator.serverMessage(1, { type: 'standby-link', up: true, id: 's1', why: '' });
  coordinator.serverLost(1, 'it was killed');
  coordinator.memberMessage('w', { type: 'leave', reason: 'its process ends' });
  const next = listening();
  coordinator.memberJoined(helloOf('x', 1), next.connection);
  coordinator.serverJoined(1, listening().connection);
  expect(lastOf(next, 'view').members).toMatchObject([{ id: 'x', replicas: [0, 1] }]);
});
