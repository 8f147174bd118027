/** What the coordinator of a run is given by its spec. */
import { Journal, type Connection, type CoordinatorOptions } from '@paceline/exchange';
import { RESIDUAL_LOST } from '@paceline/protocol';
import { parseRunSpec } from '@paceline/spec';
import { expect, test } from 'vitest';
import { createCoordinator } from './coordinator-machine.js';

const LAYOUT = { chunks: [{ index: 0, offset: 0, length: 4, section: 'trainable' }] } as never;

const EF21 = { kind: 'top-k', density: 0.1, errorFeedback: true, feedbackRule: 'ef21' };

/** Plays a round of an attempt that begins in `firstRound`, and gives the events of residuals. */
function eventsOf(codec: object, firstRound: number, late: 'absent' | undefined = undefined): unknown[] {
  const { coordinator, events } = begun(codec, firstRound);
  for (const replica of [0, 1])
    coordinator.memberMessage('w', { type: 'contribution', round: firstRound, replica, examples: 2, sums: [1, 1] });
  coordinator.serverMessage(0, { type: 'reduced', round: firstRound });
  expect(coordinator.round).toBe(firstRound + 1);
  const behind = { type: 'contribution' as const, replica: 1, examples: 2, sums: [1, 1], lost: late };
  for (const round of [firstRound - 1, firstRound]) if (late && round >= 0) coordinator.memberMessage('w', { ...behind, round });
  return events;
}

/** Workers with both replicas are there. Events are those of residuals, and of a failure. */
function begun(codec: object, firstRound: number, ids: readonly string[] = ['w']) {
  const parsed = parseRunSpec({ codec, replicas: 2, globalBatch: 4, seed: 5 });
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.issues));
  const events: unknown[] = [];
  const journal = new Journal({ now: () => 0 });
  const append = journal.append.bind(journal);
  journal.append = (entry) => {
    if (entry.kind === 'event' && (entry.type === RESIDUAL_LOST || entry.type === 'run.failed')) events.push(entry.data);
    return append(entry);
  };
  const nothing = (): void => undefined;
  const coordinator = createCoordinator({ spec: parsed.spec, servers: 1 } as never, LAYOUT, {
    attempt: 2,
    replicas: 2,
    servers: 1,
    firstRound,
    evalExamples: 0,
    journal,
    now: () => 0,
    schedule: { totalRounds: 9, examplesIn: () => 4, epochOf: () => 0, replicaExamples: () => 2 },
    surroundings: {
      publishCheckpoint: nothing,
      findCheckpoint: nothing,
      collectWeights: nothing,
      serverBack: nothing,
      concluded: (end) => end.say(),
      over: nothing,
    },
  } satisfies Omit<CoordinatorOptions, 'nonFinite' | 'twoPhase'>);
  const peerOf = (): Connection =>
    ({ isOpen: true, queuedBytes: 0, receivedBytes: 0, sendMessage: nothing, close: nothing }) as unknown as Connection;
  coordinator.serverJoined(0, peerOf());
  const hello = { type: 'hello', token: '', run: '00000000-0000-4000-8000-000000000001', role: 'worker', host: 'h' } as const;
  const join = (id: string): Connection => {
    const peer = peerOf();
    coordinator.memberJoined({ ...hello, id, seat: ids.indexOf(id), incarnation: 0, fingerprint: 'f', layout: 'l' }, peer);
    return peer;
  };
  const peers = new Map(ids.map((id) => [id, join(id)]));
  return { coordinator, events, join, peers };
}

test('an attempt that begins with a checkpoint says that its bits are others, where workers get differences of parameters', () => {
  expect(eventsOf({ parameters: 'delta-top-k' }, 3)).toEqual([{ cause: 'checkpoint', fromRound: 3, replicas: 2 }]);
  expect(eventsOf({ parameters: 'delta-top-k' }, 0)).toEqual([]);
  expect(eventsOf({ parameters: 'int8' }, 3)).toEqual([]);
});

test('a worker whose contribution comes when its round is committed already has lost what it says', () => {
  const codec = { kind: 'top-k', density: 0.1, errorFeedback: true };
  expect(eventsOf(codec, 3)).toEqual([]);
  expect(eventsOf(codec, 3, 'absent')).toEqual([{ cause: 'checkpoint', fromRound: 3, replicas: 1 }]);
});

test('with EF21 a replica whose estimate is lost ends the attempt before its round is committed', () => {
  expect(eventsOf(EF21, 3)).toEqual([]);
  const { coordinator, events } = begun(EF21, 3);
  const contribution = { type: 'contribution' as const, round: 3, examples: 2, sums: [1, 1] };
  coordinator.memberMessage('w', { ...contribution, replica: 0 });
  expect(events).toEqual([]);
  coordinator.memberMessage('w', { ...contribution, replica: 1, lost: 'absent' });
  expect(events).toMatchObject([{ cause: 'ESTIMATE_LOST', round: 3, replica: 1 }]);
  coordinator.serverMessage(0, { type: 'reduced', round: 3 });
  expect(coordinator.round).toBe(3);
});

test('with EF21 a loss that is heard when its round is committed ends the attempt too: its worker goes on from another estimate', () => {
  const { coordinator, events } = begun(EF21, 3);
  const contribution = { type: 'contribution' as const, round: 3, examples: 2, sums: [1, 1] };
  for (const replica of [0, 1]) coordinator.memberMessage('w', { ...contribution, replica });
  coordinator.serverMessage(0, { type: 'reduced', round: 3 });
  coordinator.memberMessage('w', { ...contribution, replica: 1, lost: 'absent' });
  expect(events).toMatchObject([{ cause: 'ESTIMATE_LOST', replica: 1 }]);
});

test('with EF21 a worker that is away when its round is committed has its replicas when it is back', () => {
  for (const codec of [EF21, { kind: 'top-k', density: 0.1, errorFeedback: true }]) {
    const { coordinator, join, peers } = begun(codec, 3, ['a', 'b']);
    const held = () => Object.fromEntries(coordinator.seats().map(({ workerId, replicas }) => [workerId, replicas]));
    const contribute = (round: number): void => {
      for (const { workerId, replicas } of coordinator.seats())
        for (const replica of replicas)
          coordinator.memberMessage(workerId, { type: 'contribution', round, replica, examples: 2, sums: [1, 1] });
    };
    contribute(3);
    coordinator.serverMessage(0, { type: 'reduced', round: 3 });
    expect(held()).toEqual({ a: [0], b: [1] });
    contribute(4);
    coordinator.memberClosed('a', peers.get('a')!, 'it broke');
    coordinator.serverMessage(0, { type: 'reduced', round: 4 });
    expect(coordinator.round).toBe(5);
    join('a');
    expect(held()['a']).toEqual(codec === EF21 ? [0] : []);
  }
});
