/** When the first rounds of a run with `strategy: auto` are told, and with `codec: auto` too. */
import { exchangeMeasuresSchema, STRATEGY_MEASURED, type CodecSwitch, type WorkerPace } from '@paceline/protocol';
import { expect, test } from 'vitest';
import type { Connection } from '../connection.js';
import { Rounds } from '../sync/rounds.js';
import { Coordinator } from './coordinator.js';
import { ExchangeMeasuring } from './exchange-measuring.js';
import { Journal } from './journal.js';
import type { CoordinatedMember } from './membership.js';
import { surroundings } from './surroundings.fixture.js';

const PACE: WorkerPace = { rounds: 9, stepMs: 10, waitMs: 5, latencyMs: 1, nodes: 1, replicas: 2, cores: 4 };
const membersOf = (...ids: string[]) => ids.map((id) => ({ id, replicas: id === 'idle' ? [] : [0] }) as unknown as CoordinatedMember);

const NAMED = { isOpen: false, change: undefined };

function setUp(codec: { isOpen: boolean; change: CodecSwitch | undefined }, more: { decidesBeforeCodec?: boolean } = {}) {
  const events: { type: string; data: unknown }[] = [];
  const journal = { append: (entry: never) => void events.push(entry) } as never;
  return { events, measuring: new ExchangeMeasuring({ denseBytes: 400, servers: 2, ...more }, journal, codec) };
}

test('once, when all that compute have measured enough: the slowest step, the shortest wait, the fewest cores', () => {
  const { events, measuring } = setUp(NAMED);
  const members = membersOf('a', 'b', 'idle');
  measuring.tellIfEnough(members);
  measuring.heard('a', PACE);
  measuring.heard('b', { ...PACE, rounds: 2 });
  measuring.tellIfEnough(members);
  expect(events).toEqual([]);
  measuring.heard('b', { ...PACE, stepMs: 30, waitMs: 3, latencyMs: 2, nodes: 2, cores: 2 });
  for (let i = 0; i < 2; i++) measuring.tellIfEnough(members);
  const data = { stepMs: 30, waitMs: 3, latencyMs: 1, nodes: 2, workers: 2, cores: 2, denseBytes: 400, servers: 2 };
  expect(events).toMatchObject([
    { type: STRATEGY_MEASURED, data, message: '2 workers measured the first rounds for strategy auto: 30 ms step, 3 ms exchange' },
  ]);
  expect(exchangeMeasuresSchema.parse(events[0]!.data)).toEqual(data);
  const named = new ExchangeMeasuring(undefined, { append: () => expect.unreachable() } as never, NAMED);
  named.heard('a', PACE);
  named.tellIfEnough(membersOf('a'));
});

test('with codec auto the codec comes first, and only rounds that have it are told', () => {
  const codec: { isOpen: boolean; change: CodecSwitch | undefined } = { isOpen: true, change: undefined };
  const { events, measuring } = setUp(codec);
  const members = membersOf('a', 'b');
  for (const id of ['a', 'b']) measuring.heard(id, PACE);
  measuring.tellIfEnough(members);
  expect(events, 'the codec is not picked yet').toEqual([]);
  Object.assign(codec, { isOpen: false, change: { kind: 'int8', parameters: 'int8', fromRound: 12 } });
  measuring.tellIfEnough(members);
  expect(events, 'those rounds had no codec').toEqual([]);
  measuring.heard('a', { ...PACE, fromRound: 12 });
  measuring.tellIfEnough(members);
  measuring.heard('b', { ...PACE, fromRound: 12, waitMs: 2 });
  measuring.tellIfEnough(members);
  expect(events).toMatchObject([{ data: { waitMs: 2, codec: { kind: 'int8', parameters: 'int8' } } }]);
  expect(exchangeMeasuresSchema.parse(events[0]!.data)).toEqual(events[0]!.data);
});

test('where local updates may be picked the rounds before the codec are told too, and again when they are twice as many', () => {
  const codec: { isOpen: boolean; change: CodecSwitch | undefined } = { isOpen: true, change: undefined };
  const { events, measuring } = setUp(codec, { decidesBeforeCodec: true });
  const members = membersOf('a', 'b');
  measuring.heard('a', PACE);
  measuring.tellIfEnough(members);
  expect(events).toEqual([]);
  measuring.heard('b', { ...PACE, rounds: 2, waitMs: 200 }); // too few for everything else
  measuring.tellIfEnough(members);
  expect(events).toEqual([]);
  measuring.heard('b', { ...PACE, rounds: 2, waitMs: 300 });
  for (let i = 0; i < 2; i++) measuring.tellIfEnough(members);
  expect(events).toMatchObject([{ data: { waitMs: 5, isBeforeCodec: true } }]);
  for (const rounds of [3, 4, 5]) {
    measuring.heard('b', { ...PACE, rounds, waitMs: 290 });
    measuring.tellIfEnough(members);
  }
  expect(events).toMatchObject([{}, { data: { waitMs: 5, isBeforeCodec: true } }]);
  Object.assign(codec, { isOpen: false, change: { kind: 'int8', parameters: 'int8', fromRound: 12 } });
  for (const id of ['a', 'b']) measuring.heard(id, { ...PACE, fromRound: 12 });
  for (let i = 0; i < 2; i++) measuring.tellIfEnough(members);
  expect(events).toMatchObject([{}, {}, { data: { codec: { kind: 'int8', parameters: 'int8' } } }]);
  for (const { data } of events) expect(exchangeMeasuresSchema.parse(data)).toEqual(data);
  const named = setUp(NAMED, { decidesBeforeCodec: true });
  named.measuring.heard('a', PACE);
  named.measuring.tellIfEnough(membersOf('a'));
  expect(
    named.events.map(({ data }) => (data as { isBeforeCodec?: true }).isBeforeCodec),
    'a codec that is named',
  ).toEqual([undefined]);
});

test('where codec auto has picked none the rounds that it was picked by are told', () => {
  const { events, measuring } = setUp({ isOpen: false, change: undefined });
  measuring.heard('a', PACE);
  measuring.tellIfEnough(membersOf('a'));
  expect(events).toHaveLength(1);
  expect(events[0]!.data).not.toHaveProperty('codec');
});

test.each([
  ['a round is left', 2, 1],
  ['the attempt has trained', 1, 0],
])('a pace is told where %s: of a heartbeat, and of a commit that one who told none no longer takes part in', (_, totalRounds, times) => {
  for (const leavesAtCommit of [false, true]) {
    const appended: unknown[] = [];
    const journal = new Journal({ now: () => 0 });
    journal.append = (entry) => void appended.push(entry);
    const coordinator = new Coordinator(
      {
        attempt: 1,
        replicas: 2,
        servers: 1,
        evalExamples: 4,
        startWorkers: leavesAtCommit ? 2 : 1,
        journal,
        now: () => 0,
        schedule: { totalRounds, examplesIn: () => 4, epochOf: () => 0, replicaExamples: () => 2 },
        surroundings: surroundings(),
        measuredExchange: { denseBytes: 400, servers: 1 },
      },
      Rounds,
    );
    const connection = { isOpen: true, queuedBytes: 0, sendMessage: () => undefined, close: () => undefined } as unknown as Connection;
    coordinator.serverJoined(0, connection);
    const hello = { type: 'hello', token: '', run: '00000000-0000-4000-8000-000000000001', role: 'worker', host: 'h' } as const;
    const ids = leavesAtCommit ? ['w0', 'w1'] : ['w0'];
    for (const [seat, id] of ids.entries())
      coordinator.memberJoined({ ...hello, id, seat, incarnation: 0, fingerprint: 'f', layout: 'l' }, connection);
    const beat = (): void => coordinator.memberMessage('w0', { type: 'heartbeat', progress: 1, pace: PACE });
    if (leavesAtCommit) beat();
    if (leavesAtCommit) coordinator.memberMessage('w1', { type: 'leave', reason: 'it is preempted' });
    for (const replica of [0, 1])
      coordinator.memberMessage(ids[replica] ?? 'w0', { type: 'contribution', round: 0, replica, examples: 2, sums: [2, 1] });
    coordinator.serverMessage(0, { type: 'reduced', round: 0 });
    expect(coordinator.table.state).toBe(totalRounds === 1 ? 'EVALUATING' : 'GATHERING');
    if (!leavesAtCommit) beat();
    expect(appended.filter((entry) => (entry as { type?: string }).type === STRATEGY_MEASURED)).toHaveLength(times);
  }
});
