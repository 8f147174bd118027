/** When the codec of a run is picked, and which messages say so. */
import { CODEC_PICKED, type CodecChoice, type WorkerPace } from '@paceline/protocol';
import { expect, test } from 'vitest';
import { RoundPace } from '../sync/round-pace.js';
import { CodecPicking, type CodecPicker } from './codec-picking.js';
import type { CoordinatedMember } from './membership.js';

const PACE: WorkerPace = { rounds: 9, stepMs: 10, waitMs: 5, latencyMs: 1, nodes: 1, replicas: 2 };
const MEASURED = { stepMs: 1, waitMs: 1, latencyMs: 1, bytesPerSecond: 1, denseBytes: 1, roundMs: 1, expectedMs: 1 };
const INT8 = { kind: 'int8', parameters: 'int8' };
const membersOf = (...ids: string[]) => ids.map((id) => ({ id, replicas: id === 'idle' ? [] : [0] }) as unknown as CoordinatedMember);

function setUp(picker: Partial<CodecPicker> = {}, kind = 'int8') {
  const asked: (readonly WorkerPace[])[] = [];
  const events: { type: string; data: unknown }[] = [];
  const pick: CodecPicker['pick'] = (paces) => {
    asked.push(paces);
    return { kind, parameters: kind === 'none' ? 'float32' : kind, why: 'it is', measured: MEASURED };
  };
  const picking = new CodecPicking({ pick, ...picker }, { append: (entry: never) => void events.push(entry) } as never);
  return { picking, asked, events };
}

test('it is picked once, when all that compute have measured enough, and said from that COMMIT on to the one before it holds', () => {
  const { picking, asked, events } = setUp();
  const members = membersOf('a', 'b', 'idle');
  picking.heard('a', PACE);
  expect([picking.committed(9, members), picking.isOpen]).toEqual([undefined, true]);
  picking.heard('b', { ...PACE, rounds: 2 });
  expect(picking.committed(10, members)).toBeUndefined();
  picking.heard('b', PACE);
  const change = { ...INT8, fromRound: 13 };
  expect([11, 12, 13].map((round) => picking.committed(round, members))).toEqual([change, change, undefined]);
  expect(picking.change).toEqual(change);
  expect(asked).toEqual([[PACE, PACE]]);
  expect(picking.isOpen).toBe(false);
  expect(events).toEqual([{ ...events[0], type: CODEC_PICKED, data: { ...change, why: 'it is', measured: MEASURED } }]);
});

test('slow rounds need not be so many', () => {
  const { picking } = setUp();
  picking.heard('a', { ...PACE, rounds: 2, waitMs: 1000 });
  expect(picking.committed(3, membersOf('a'))?.fromRound).toBe(5);
  const { picking: early } = setUp();
  early.heard('a', { ...PACE, rounds: 1, waitMs: 60_000 });
  expect(early.committed(3, membersOf('a'))).toBeUndefined();
});

test('none is an event, and nothing that anybody has to be told', () => {
  const { picking, events } = setUp({}, 'none');
  picking.heard('a', PACE);
  expect(picking.committed(4, membersOf('a'))).toBeUndefined();
  expect([picking.change, events.length]).toEqual([undefined, 1]);
});

test('gradients as they are with parameters in fewer bytes are told to everybody', () => {
  const { picking, events } = setUp({ pick: () => ({ kind: 'none', parameters: 'int8', why: 'it is', measured: MEASURED }) });
  picking.heard('a', PACE);
  expect(picking.committed(4, membersOf('a'))).toEqual({ kind: 'none', parameters: 'int8', fromRound: 6 });
  expect(events).toMatchObject([{ message: 'codec auto has picked none for gradients, int8 for parameters, from round 6 on: it is' }]);
});

test('what an earlier attempt has picked holds from its round on, and nothing is measured', () => {
  const picked: CodecChoice = { ...INT8, fromRound: 20, why: '', measured: MEASURED };
  const { picking, asked, events } = setUp({ picked });
  picking.heard('a', PACE);
  expect([17, 18, 19, 20].map((round) => picking.committed(round, membersOf('a'))?.fromRound)).toEqual([undefined, 20, 20, undefined]);
  expect([picking.change?.kind, asked, events]).toEqual(['int8', [], []]);
});

test('a pace is the best of the rounds, without the first step', () => {
  let nowMs = 0;
  const hello: { ms?: number } = {};
  const pace = new RoundPace({ now: () => nowMs, latencyMs: () => hello.ms });
  const rounds: [step: number, wait: number][] = [
    [1, 13], // warming up
    [30, 12],
    [20, 15],
  ];
  for (const [round, [step, wait]] of rounds.entries()) {
    pace.begins(round);
    pace.begins(round); // more replicas of it
    nowMs += step;
    pace.computed(1, 2);
    nowMs += wait;
  }
  pace.begins(3);
  expect(pace.pace).toBeUndefined();
  hello.ms = 4;
  expect(pace.pace).toEqual({ rounds: 3, stepMs: 20, waitMs: 12, latencyMs: 4, nodes: 1, replicas: 2 });
  // The coordinator answers sooner; an answer to another question is none.
  const echo = pace.asks();
  nowMs += 3;
  pace.answered(echo - 1);
  expect(pace.pace?.latencyMs).toBe(4);
  pace.answered(echo);
  expect(pace.pace?.latencyMs).toBe(3);
  // A round that was computed elsewhere is none of its own.
  nowMs += 1;
  pace.computed(1, 1);
  nowMs += 1;
  pace.begins(5);
  expect(pace.pace?.rounds).toBe(3);
  // From round 7 on with a codec: what was measured without one does not count, and neither does the first step with it.
  for (const round of [6, 7, 8, 9]) {
    pace.begins(round, round < 7 ? undefined : 7);
    if (round < 9) expect(pace.pace?.fromRound).toBeUndefined();
    nowMs += 40;
    pace.computed(2, 2);
    nowMs += 5;
  }
  pace.begins(10, 7);
  expect(pace.pace).toEqual({ rounds: 3, stepMs: 40, waitMs: 5, latencyMs: 3, nodes: 2, replicas: 2, fromRound: 7 });
});

/** Ten chunks of a first generation, one in so many milliseconds, then a round, then the step of the next one. */
function secondStepAfter({ chunkMs, chunks = 10, waitMs }: { chunkMs: number; chunks?: number; waitMs: number }): RoundPace {
  let nowMs = 0;
  const pace = new RoundPace({ now: () => nowMs, latencyMs: () => 60 });
  for (let chunk = 0; chunk < chunks; chunk++) {
    nowMs += chunkMs;
    pace.arrived(100);
  }
  pace.begins(0);
  nowMs += 300; // warming up
  pace.computed(1, 1);
  nowMs += waitMs;
  pace.begins(1);
  pace.arrived(1e9); // of a later generation
  expect(pace.pace, 'a step that is warm is still to come').toBeUndefined();
  nowMs += 50;
  pace.computed(1, 1);
  return pace;
}

test('the second step makes a pace: the exchange of the first round, or one at the rate of the first generation, which is shorter', () => {
  const also = { stepMs: 50, latencyMs: 60, nodes: 1, replicas: 1 };
  // Ten chunks take 400 ms each way.
  expect(secondStepAfter({ chunkMs: 40, waitMs: 1000 }).pace).toEqual({ rounds: 2, waitMs: 860, ...also });
  expect(secondStepAfter({ chunkMs: 40, waitMs: 700 }).pace).toEqual({ rounds: 2, waitMs: 700, ...also });
  // A server that was still beginning in the first round does not make a fast link slow.
  expect(secondStepAfter({ chunkMs: 0.1, waitMs: 1000 }).pace).toEqual({ rounds: 2, waitMs: 62, ...also });
  expect(secondStepAfter({ chunkMs: 40, chunks: 1, waitMs: 700 }).pace, 'one chunk has no rate').toBeUndefined();
  const pace = secondStepAfter({ chunkMs: 0.1, waitMs: 700 });
  pace.begins(2);
  expect(pace.pace, 'from here on rounds alone').toMatchObject({ rounds: 2, stepMs: 50, waitMs: 0 });
});
