/** The number of the view that a coordinator goes on with after it has taken the place of another: higher than anybody has heard of. */
import type { Message, MessageOf } from '@paceline/protocol';
import { expect, test } from 'vitest';
import type { Connection } from '../connection.js';
import { Coordinator } from '../attempt/coordinator.js';
import { Rounds } from './rounds.js';
import { surroundings } from '../attempt/surroundings.fixture.js';
import { Journal } from '../attempt/journal.js';

/** A peer, and the views that it is told. */
function peer() {
  const views: MessageOf<'view'>[] = [];
  const sendMessage = (message: Message): void => void (message.type === 'view' && views.push(message));
  const connection = { isOpen: true, queuedBytes: 0, receivedBytes: 0, sendMessage, close: () => undefined } as unknown as Connection;
  return { connection, views, newest: () => views.at(-1)?.view };
}

const MEMBERS = [
  { id: 'w0', seat: 0, incarnation: 0, replicas: [0] },
  { id: 'w1', seat: 1, incarnation: 0, replicas: [1] },
];

/** Two servers and two workers in round 3; its standby had seen view 4, another server view `standing`. */
function succeeded({ standing, members = MEMBERS }: { standing: number; members?: typeof MEMBERS }) {
  const coordinator = new Coordinator(
    {
      attempt: 1,
      replicas: 2,
      servers: 2,
      evalExamples: 0,
      journal: new Journal({ now: () => 0 }),
      now: () => 0,
      schedule: { totalRounds: 9, examplesIn: () => 4, epochOf: () => 0, replicaExamples: () => 2 },
      succession: { term: 2, view: 4, members, ledgerFrom: 3, newest: 0 },
      surroundings: surroundings(),
    },
    Rounds,
  );
  const servers = [peer(), peer()];
  servers.forEach(({ connection }, index) => coordinator.serverJoined(index, connection));
  for (const [index, view] of [4, standing].entries())
    coordinator.serverMessage(index, { type: 'standing', round: 3, view, term: index === 0 ? 2 : 1, isReduced: false });
  const join = (index: number, known?: { round: number; view: number }) => {
    const worker = peer();
    const hello = { type: 'hello', token: '', run: '00000000-0000-4000-8000-000000000001', role: 'worker', host: 'h' } as const;
    coordinator.memberJoined(
      { ...hello, id: `w${index}`, seat: index, incarnation: 0, fingerprint: 'f', layout: 'l' },
      worker.connection,
      known,
    );
    return worker;
  };
  return { coordinator, servers, join };
}

test('it is above that of every server', () => {
  expect(succeeded({ standing: 4 }).coordinator.view).toBe(5);
  expect(succeeded({ standing: 9 }).coordinator.view).toBe(10);
});

test('while workers come back it rises above that of any of them, and all are told at the end', () => {
  const { coordinator, servers, join } = succeeded({ standing: 4 });
  const first = join(0, { round: 3, view: 7 });
  expect(coordinator.view).toBe(8);
  const second = join(1, { round: 3, view: 6 });
  expect(coordinator.view).toBeGreaterThan(8);
  for (const each of [...servers, first, second]) expect(each.newest()).toBe(coordinator.view);
  for (const each of [first, second]) expect(each.views.map(({ view }) => view).every((view) => view > 7)).toBe(true);
});

test('a worker that comes later with a higher one makes all others hear a higher one still', () => {
  const { coordinator, servers, join } = succeeded({ standing: 4 });
  const first = join(0, { round: 3, view: 4 });
  join(1, { round: 3, view: 4 });
  const before = coordinator.view;
  // Its connection broke meanwhile; what it had been told by the coordinator before was more than any server knew.
  const again = join(1, { round: 3, view: before + 5 });
  expect(coordinator.view).toBeGreaterThan(before + 5);
  for (const each of [...servers, first, again]) expect(each.newest()).toBe(coordinator.view);
});

test('a server that is taken over, and had heard of a higher one first, makes all others hear a higher one still', () => {
  const { coordinator, servers, join } = succeeded({ standing: 4 });
  const workers = [join(0, { round: 3, view: 4 }), join(1, { round: 3, view: 4 })];
  coordinator.serverMessage(1, { type: 'standby-link', up: true, id: 's1', why: 'it follows' });
  coordinator.serverLost(1, 'it was killed');
  const follower = peer();
  coordinator.serverJoined(1, follower.connection);
  coordinator.serverMessage(1, { type: 'standing', round: 3, view: 20, term: 3, isReduced: false });
  expect(coordinator.view).toBeGreaterThan(20);
  for (const each of [servers[0]!, follower, ...workers]) expect(each.newest()).toBe(coordinator.view);
});

test('an equal one of a server that is taken over is of the coordinator before, with other members: all hear a higher one', () => {
  const { coordinator, servers, join } = succeeded({ standing: 4 });
  const workers = [join(0, { round: 3, view: 4 }), join(1, { round: 3, view: 4 })];
  coordinator.serverMessage(1, { type: 'standby-link', up: true, id: 's1', why: 'it follows' });
  coordinator.serverLost(1, 'it was killed');
  const follower = peer();
  coordinator.serverJoined(1, follower.connection);
  const { view } = coordinator;
  coordinator.serverMessage(1, { type: 'standing', round: 3, view, term: 3, isReduced: false });
  expect(coordinator.view).toBeGreaterThan(view);
  for (const each of [servers[0]!, follower, ...workers]) expect(each.newest()).toBe(coordinator.view);
  // Said again by the same server, it is of this coordinator.
  const { view: present } = coordinator;
  coordinator.serverMessage(1, { type: 'standing', round: 3, view: present, term: 3, isReduced: false });
  expect(coordinator.view).toBe(present);
});

test('a lower one changes nothing, and neither does a coordinator that has succeeded nobody believe one', () => {
  const { coordinator, join } = succeeded({ standing: 4 });
  join(0, { round: 3, view: 2 });
  expect(coordinator.view).toBe(5);
  const fresh = new Coordinator(
    {
      attempt: 1,
      replicas: 1,
      servers: 1,
      evalExamples: 0,
      journal: new Journal({ now: () => 0 }),
      now: () => 0,
      schedule: { totalRounds: 9, examplesIn: () => 4, epochOf: () => 0, replicaExamples: () => 2 },
      surroundings: surroundings(),
    },
    Rounds,
  );
  const hello = { type: 'hello', token: '', run: '00000000-0000-4000-8000-000000000001', role: 'worker', id: 'w', host: 'h' } as const;
  fresh.memberJoined({ ...hello, seat: 0, incarnation: 0, fingerprint: 'f', layout: 'l' }, peer().connection, { round: 0, view: 50 });
  expect(fresh.view).toBeLessThan(50);
});

/** A coordinator that has succeeded another, of two servers; the first stands in round 3. */
function asking() {
  const clock = { now: 0 };
  const coordinator = new Coordinator(
    {
      attempt: 1,
      replicas: 1,
      servers: 2,
      evalExamples: 0,
      journal: new Journal({ now: () => clock.now }),
      now: () => clock.now,
      schedule: { totalRounds: 9, examplesIn: () => 4, epochOf: () => 0, replicaExamples: () => 4 },
      succession: { term: 2, view: 4, members: [], ledgerFrom: 3, newest: 0 },
      surroundings: surroundings(),
      takeoverDeadlineMs: 60_000,
    },
    Rounds,
  );
  const stands = (index: number, round: number, term: number): void => {
    coordinator.serverComes(index, term);
    coordinator.serverJoined(index, peer().connection);
    coordinator.serverMessage(index, { type: 'standing', round, view: 4, term, isReduced: false });
  };
  stands(0, 3, 2);
  return { clock, coordinator, stands };
}

test('a former primary that lacks rounds is no broken invariant: who leads its shard now is waited for', () => {
  const { coordinator, stands } = asking();
  stands(1, 1, 1);
  expect(coordinator.waitingFor()).toMatch(/parameter server 1 stands in round 1, another one in 3: its standby/u);
  coordinator.tick();
  coordinator.serverLost(1, 'it has come again');
  stands(1, 3, 3);
  expect(coordinator.waitingFor()).toBe('a worker to take a step task');
  expect(coordinator.numbers()).toMatchObject({ round: 3, term: 2 });
  expect(() => coordinator.serverComes(1, 1)).toThrow('STALE_TERM');
});

test('it is waited for as long as a standby may take, no longer', () => {
  const { clock, coordinator, stands } = asking();
  stands(1, 1, 1);
  // Servers speak all the time.
  for (; clock.now < 60_000; clock.now += 1_000) {
    for (const index of [0, 1]) coordinator.serverMessage(index, { type: 'heartbeat', progress: 0 });
    coordinator.tick();
  }
  for (const index of [0, 1]) coordinator.serverMessage(index, { type: 'heartbeat', progress: 0 });
  clock.now = 60_001;
  expect(() => coordinator.tick()).toThrow('it cannot have been committed, and nobody else leads that shard');
});

test('a worker that alone has heard COMMIT waits until nobody stands for a shard who was replaced', () => {
  const { coordinator, join } = succeeded({ standing: 4 });
  expect(() => join(0, { round: 4, view: 4 })).toThrow('NOT_PRIMARY');
  coordinator.serverMessage(0, { type: 'reduced', round: 3 });
  expect(() => join(0, { round: 4, view: 4 })).toThrow(/in the place of parameter server 1 has not joined yet/u);
  coordinator.serverMessage(1, { type: 'standing', round: 3, view: 4, term: 3, isReduced: true });
  join(0, { round: 4, view: 4 });
  expect(coordinator.round).toBe(4);
});

test('its term is its own: that of another shard which is taken over is higher, and a coordinator that was replaced would hear of it too', () => {
  const { coordinator } = succeeded({ standing: 4 });
  coordinator.serverMessage(1, { type: 'standby-link', up: true, id: 's1', why: 'it follows' });
  coordinator.serverLost(1, 'it was killed');
  coordinator.serverComes(1, 3);
  const follower = peer();
  coordinator.serverJoined(1, follower.connection);
  coordinator.serverMessage(1, { type: 'standing', round: 3, view: 4, term: 3, isReduced: false });
  expect(coordinator.table.taken.has('serverTakenOver')).toBe(true);
  expect(coordinator.numbers().term).toBe(2);
  expect(follower.views.at(-1)?.term).toBe(2);
});

test('a round that only a worker knows to be committed is left out in the ledger where servers say so', () => {
  const journal = new Journal({ now: () => 0, ledgerRounds: 1 });
  const coordinator = new Coordinator(
    {
      attempt: 1,
      replicas: 1,
      servers: 1,
      evalExamples: 0,
      journal,
      now: () => 0,
      schedule: { totalRounds: 9, examplesIn: () => 4, epochOf: () => 0, replicaExamples: () => 4 },
      twoPhase: { backupReplicas: 0, decide: () => 'non-finite' },
      succession: {
        term: 2,
        view: 4,
        members: [{ id: 'w0', seat: 0, incarnation: 0, replicas: [0] }],
        ledgerFrom: 2,
        newest: 0,
        leftOut: [2],
      },
      surroundings: surroundings(),
    },
    Rounds,
  );
  coordinator.serverJoined(0, peer().connection);
  const decision = { skip: true, examples: 4, scale: 1, variables: [] };
  coordinator.serverMessage(0, { type: 'standing', round: 4, view: 4, term: 2, isReduced: true, decision });
  const hello = { type: 'hello', token: '', run: '00000000-0000-4000-8000-000000000001', role: 'worker', host: 'h' } as const;
  const worker = { ...hello, id: 'w0', seat: 0, incarnation: 0, fingerprint: 'f', layout: 'l' };
  coordinator.memberJoined(worker, peer().connection, { round: 5, view: 4 });
  expect(coordinator.round).toBe(5);
  const rows = journal.batch(100).flatMap((entry) => (entry.kind === 'ledger' ? [[entry.examples, entry.dropped ?? 0]] : []));
  expect(rows).toEqual([
    [0, 4],
    [4, 0],
    [0, 4],
  ]);
});
