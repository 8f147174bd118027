/** Whom a coordinator waits for before the first round. */
import type { Message, MessageOf } from '@paceline/protocol';
import { expect, test } from 'vitest';
import type { Connection } from '../connection.js';
import { Rounds } from '../sync/rounds.js';
import { Coordinator } from './coordinator.js';
import { Journal } from './journal.js';
import { surroundings } from './surroundings.fixture.js';

/** A peer, and the newest view that it is told. */
function peer() {
  const views: MessageOf<'view'>[] = [];
  const sendMessage = (message: Message): void => void (message.type === 'view' && views.push(message));
  const connection = { isOpen: true, queuedBytes: 0, receivedBytes: 0, sendMessage, close: () => undefined } as unknown as Connection;
  return { connection, newest: () => views.at(-1)! };
}

/** Three servers with standbys, of which the second is taken over, and two of three workers: what the run waits for before that and after it. */
function takenOver(membersHoldShards: boolean) {
  const coordinator = new Coordinator(
    {
      attempt: 1,
      replicas: 3,
      servers: 3,
      startWorkers: 3,
      membersHoldShards,
      evalExamples: 0,
      journal: new Journal({ now: () => 0 }),
      now: () => 0,
      schedule: { totalRounds: 9, examplesIn: () => 3, epochOf: () => 0, replicaExamples: () => 1 },
      surroundings: surroundings(),
    },
    Rounds,
  );
  const serves = (index: number, term: number): void => {
    coordinator.serverJoined(index, peer().connection);
    coordinator.serverMessage(index, { type: 'standing', round: 0, view: 0, term, isReduced: false });
    if (term === 1) coordinator.serverMessage(index, { type: 'standby-link', up: true, id: `s${index}`, why: '' });
  };
  for (const index of [0, 1, 2]) serves(index, 1);
  const workers = [0, 2].map((seat) => {
    const worker = peer();
    const hello = { type: 'hello', token: '', run: '00000000-0000-4000-8000-000000000001', role: 'worker', host: 'h' } as const;
    coordinator.memberJoined({ ...hello, id: `w${seat}`, seat, incarnation: 0, fingerprint: 'f', layout: 'l' }, worker.connection);
    return worker;
  });
  const before = coordinator.waitingFor();
  coordinator.serverLost(1, 'its process is gone');
  expect(coordinator.waitingFor()).toBe('the standby of parameter server 1 to take over');
  serves(1, 2);
  return { before, after: coordinator.waitingFor(), given: workers[1]!.newest().members.map(({ id, replicas }) => [id, replicas.length]) };
}

test('a run whose workers hold the shards begins without the worker whose shard another has taken over', () => {
  expect(takenOver(true)).toEqual({
    before: '1 more worker to take a step task: it begins with 3',
    after: null,
    given: [
      ['w0', 1],
      ['w2', 2],
    ],
  });
});

test('a run with parameter servers waits for as many workers as before, whichever server is taken over', () => {
  const waits = '1 more worker to take a step task: it begins with 3';
  expect(takenOver(false)).toMatchObject({ before: waits, after: waits });
});
