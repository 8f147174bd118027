/** What a coordinator does around validations, with a plan that takes each loss for better which is smaller. */
import type { Message } from '@paceline/protocol';
import { expect, test } from 'vitest';
import type { Connection } from '../connection.js';
import { Coordinator } from './coordinator.js';
import { Rounds } from '../sync/rounds.js';
import type { CoordinatorOptions } from './attempt-options.js';
import { surroundings } from './surroundings.fixture.js';
import { Journal } from './journal.js';
import type { Measures } from './measures.js';
import type { ValidationPlan } from './validations.js';

interface Course {
  readonly best: number;
  readonly loss: number;
}

const PLAN: ValidationPlan = {
  firstCourse: JSON.stringify({ best: 0, loss: 1e9 } satisfies Course),
  isDue: () => true,
  judge: (course, generation, { loss }) => {
    const isBetter = loss! < (JSON.parse(course) as Course).loss;
    return { course: isBetter ? JSON.stringify({ best: generation, loss } as Course) : course, events: [] };
  },
  withResult: (course) => course,
  stopOf: () => undefined,
  bestOf: (course) => (JSON.parse(course) as Course).best,
  lastOf: () => undefined,
  endOf: (course, generation): { generation: number; values: Measures } | undefined => {
    const { best, loss } = JSON.parse(course) as Course;
    return { generation: Math.min(best, generation), values: { loss } };
  },
};

function peer() {
  const heard: Message[] = [];
  const connection = {
    isOpen: true,
    queuedBytes: 0,
    receivedBytes: 0,
    sendMessage: (message: Message) => void heard.push(message),
    close: () => undefined,
  } as unknown as Connection;
  const types = (): string[] => heard.splice(0).map(({ type }) => type);
  return { connection, heard, types };
}

/** One server, one worker with the only replica, and 1000 evaluation examples: two blocks. */
function validating(more: Partial<CoordinatorOptions> = {}) {
  const coordinator = new Coordinator(
    {
      attempt: 1,
      replicas: 1,
      servers: 1,
      evalExamples: 1_000,
      validation: PLAN,
      journal: new Journal({ now: () => 0 }),
      now: () => 0,
      schedule: { totalRounds: 9, examplesIn: () => 4, epochOf: () => 0, replicaExamples: () => 4 },
      checkpoints: { everyRounds: 0, everyMs: 0, deadlineMs: 60_000, final: false },
      surroundings: surroundings(),
      ...more,
    },
    Rounds,
  );
  const [server, worker] = [peer(), peer()];
  const join = (known?: { round: number; view: number }): void => {
    const hello = { type: 'hello', token: '', run: '00000000-0000-4000-8000-000000000001', role: 'worker', host: 'h' } as const;
    coordinator.memberJoined({ ...hello, id: 'w', seat: 0, incarnation: 0, fingerprint: 'f', layout: 'l' }, worker.connection, known);
  };
  const measure = (loss: number): void => {
    const { round } = coordinator;
    for (const from of [500, 0])
      coordinator.memberMessage('w', {
        type: 'evaluated',
        generation: round + 1,
        from,
        to: from + 500,
        examples: 500,
        sums: [loss * 500, 0],
      });
  };
  const round = (loss: number): void => {
    const { round: k } = coordinator;
    coordinator.memberMessage('w', { type: 'contribution', round: k, replica: 0, examples: 4, sums: [4, 4] });
    coordinator.serverMessage(0, { type: 'reduced', round: k });
    measure(loss);
  };
  return { coordinator, server, worker, join, measure, round };
}

test('COMMIT of the best generation has the shards keep it, that of another does not', () => {
  const { coordinator, server, join, round } = validating();
  coordinator.serverJoined(0, server.connection);
  join();
  for (const loss of [3, 5, 2]) round(loss);
  const commits = server.heard.flatMap((message) => (message.type === 'commit' ? [[message.round, message.best ?? false]] : []));
  expect(commits).toEqual([
    [0, true],
    [1, false],
    [2, true],
  ]);
});

test('a server that lacks the last COMMIT after a takeover is told that it made the best generation', () => {
  const course = JSON.stringify({ best: 3, loss: 1 } satisfies Course);
  const { coordinator, server } = validating({ servers: 2, succession: { term: 2, view: 4, members: [], ledgerFrom: 3, newest: 0 } });
  const ahead = peer();
  coordinator.serverJoined(0, ahead.connection);
  coordinator.serverJoined(1, server.connection);
  coordinator.serverMessage(0, { type: 'standing', round: 3, view: 4, term: 2, isReduced: false, course });
  coordinator.serverMessage(1, { type: 'standing', round: 2, view: 4, term: 1, isReduced: true });
  expect(server.heard.find(({ type }) => type === 'commit')).toMatchObject({ round: 2, course, best: true });
});

test('better generations that come faster than they are written: the fifth waits for the checkpoint of the fourth', () => {
  const { coordinator, server, join, round } = validating();
  coordinator.serverJoined(0, server.connection);
  join();
  for (const loss of [9, 8, 7, 6]) round(loss);
  expect([coordinator.round, coordinator.waitingFor()]).toEqual([4, null]);
  round(5);
  expect([coordinator.round, coordinator.waitingFor()]).toEqual([4, 'its best checkpoint to be written']);
  coordinator.stops.published(4, { bytes: 1, sha256: '', loss: null });
  expect([coordinator.round, coordinator.waitingFor()]).toEqual([5, null]);
});

test('a round that only a worker knows to be committed is measured, and what the worker has told of the next one meanwhile is asked for again', () => {
  const members = [{ id: 'w', seat: 0, incarnation: 0, replicas: [0] }];
  const { coordinator, server, worker, join, measure } = validating({
    succession: { term: 2, view: 4, members, ledgerFrom: 3, newest: 0 },
  });
  coordinator.serverJoined(0, server.connection);
  coordinator.serverMessage(0, { type: 'standing', round: 3, view: 4, term: 2, isReduced: true });
  join({ round: 4, view: 4 });
  expect([coordinator.round, worker.types().filter((type) => type === 'evaluate')]).toEqual([3, ['evaluate']]);
  coordinator.memberMessage('w', { type: 'contribution', round: 4, replica: 0, examples: 4, sums: [4, 4] });
  measure(1);
  expect(coordinator.round).toBe(4);
  expect(worker.types()).toEqual(['commit', 'tell-again']);
  coordinator.memberMessage('w', { type: 'contribution', round: 4, replica: 0, examples: 4, sums: [4, 4] });
  coordinator.serverMessage(0, { type: 'reduced', round: 4 });
  measure(1);
  expect(coordinator.round).toBe(5);
});

test('a worker that delivers other sums than the run measures is dropped, not believed', () => {
  const { coordinator, server, join } = validating();
  coordinator.serverJoined(0, server.connection);
  join();
  coordinator.memberMessage('w', { type: 'contribution', round: 0, replica: 0, examples: 4, sums: [4] });
  expect(coordinator.seats()).toEqual([]);
  join();
  coordinator.memberMessage('w', { type: 'contribution', round: 0, replica: 0, examples: 4, sums: [4, 4] });
  coordinator.serverMessage(0, { type: 'reduced', round: 0 });
  coordinator.memberMessage('w', { type: 'evaluated', generation: 1, from: 0, to: 500, examples: 500, sums: [] });
  expect(coordinator.seats()).toEqual([]);
});
