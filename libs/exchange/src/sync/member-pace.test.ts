/** With codec auto or strategy auto: when a worker tells what its rounds take, and what a coordinator makes of it between two commits. */
import { FrameType, type Message, type MessageOf } from '@paceline/protocol';
import { expect, test } from 'vitest';
import { Coordinator } from '../attempt/coordinator.js';
import { Journal } from '../attempt/journal.js';
import { surroundings } from '../attempt/surroundings.fixture.js';
import type { Connection } from '../connection.js';
import { chunksOf } from '../transfer/chunks.js';
import { Member } from './member.js';
import { Rounds } from './rounds.js';

const CHUNK_BYTES = 16;
const CHUNKS = 4;

test('the first pace is told when the second step is over, before its gradient; the others by heartbeats', () => {
  let nowMs = 0;
  const sent: (Message | 'gradient')[] = [];
  const connection = {
    isOpen: true,
    queuedBytes: 0,
    sentBytes: 0,
    receivedBytes: 0,
    sendMessage: (message: Message) => void sent.push(message),
    sendData: () => void sent.push('gradient'),
  } as unknown as Connection;
  const memory = [0, 1].map(() => new Uint8Array(CHUNKS * CHUNK_BYTES));
  const member = new Member({
    id: 'w',
    attempt: 1,
    servers: 1,
    totalRounds: 9,
    chunks: Array.from({ length: CHUNKS }, (_, index) => ({
      index,
      offset: (index * CHUNK_BYTES) / 4,
      length: CHUNK_BYTES / 4,
      server: 0,
    })),
    store: { bytes: (generation) => memory[generation & 1]! },
    compute: { step: () => undefined, evaluate: () => undefined, committed: () => undefined },
    onEnd: () => undefined,
    paceClock: { now: () => nowMs, latencyMs: () => 60 },
    measuresStrategy: true,
  });
  member.attach(0, connection);
  const welcome = {
    type: 'welcome',
    id: 'w',
    server: 0,
    round: 0,
    view: 1,
    term: 1,
    applied: '',
    window: CHUNKS,
    base: 0,
    phase: 'training',
  };
  member.message(0, welcome as never);
  member.message(0, { type: 'view', view: 1, term: 1, round: 0, members: [{ id: 'w', seat: 0, incarnation: 0, replicas: [0] }] });
  const parameters = (round: number): void => {
    for (let chunk = 0; chunk < CHUNKS; chunk++) {
      nowMs += 100;
      const header = { type: FrameType.parameters, codec: 0, attempt: 1, term: 1, view: 1, round, chunk, length: CHUNK_BYTES };
      member.payloadFor(header as never);
      member.data(header as never);
    }
  };
  const step = (round: number): void => {
    nowMs += 50;
    sent.length = 0;
    member.contribution(round, 0, 4, [1, 1]);
    member.node({ round, lo: 0, hi: 1, chunk: chunksOf(new Uint8Array(CHUNKS * CHUNK_BYTES)), release: () => undefined });
  };
  const types = (): string[] => sent.map((message) => (message === 'gradient' ? message : message.type));
  const commit = (round: number): void => {
    member.message(0, { type: 'commit', round, view: 1, term: 1 });
    parameters(round + 1);
  };
  parameters(0);
  step(0);
  expect(types().slice(0, 2)).toEqual(['contribution', 'gradient']);
  nowMs += 500;
  commit(0);
  step(1);
  expect(types().slice(0, 3)).toEqual(['contribution', 'heartbeat', 'gradient']);
  // 300 ms for three chunks: 400 ms each way, and the latency. The first round's exchange took longer.
  expect((sent[1] as MessageOf<'heartbeat'>).pace).toMatchObject({ rounds: 2, stepMs: 50, waitMs: 860, latencyMs: 60 });
  commit(1);
  step(2);
  expect(types().slice(0, 2)).toEqual(['contribution', 'gradient']);
});

test('the coordinator tells what its workers have measured as soon as all have told it, in the middle of a round', () => {
  const events: string[] = [];
  const journal = new Journal({ now: () => 0 });
  const append = journal.append.bind(journal);
  journal.append = (entry) => (entry.kind === 'event' && events.push(entry.type), append(entry));
  const coordinator = new Coordinator(
    {
      attempt: 1,
      replicas: 2,
      servers: 1,
      startWorkers: 2,
      evalExamples: 0,
      journal,
      now: () => 0,
      schedule: { totalRounds: 9, examplesIn: () => 2, epochOf: () => 0, replicaExamples: () => 1 },
      surroundings: surroundings(),
      measuredExchange: { denseBytes: 400, servers: 1 },
    },
    Rounds,
  );
  const connection = { isOpen: true, queuedBytes: 0, receivedBytes: 0, sendMessage: () => undefined, close: () => undefined };
  coordinator.serverJoined(0, connection as never);
  coordinator.serverMessage(0, { type: 'standing', round: 0, view: 0, term: 1, isReduced: false });
  const hello = { type: 'hello', token: '', run: '00000000-0000-4000-8000-000000000001', role: 'worker', host: 'h' } as const;
  for (const seat of [0, 1])
    coordinator.memberJoined({ ...hello, id: `w${seat}`, seat, incarnation: 0, fingerprint: 'f', layout: 'l' }, { ...connection } as never);
  const pace = { rounds: 2, stepMs: 50, waitMs: 1000, latencyMs: 60, nodes: 1, replicas: 1 };
  const tells = (id: string): void => coordinator.memberMessage(id, { type: 'heartbeat', progress: 0, rests: false, pace });
  tells('w0');
  expect(events).not.toContain('strategy.measured');
  tells('w1');
  expect(events.filter((type) => type === 'strategy.measured')).toHaveLength(1);
});
