import { describe, expect, it } from 'vitest';
import { firstRoundOf, letGo, lineageOf, nextRestore, type AttemptOrigin, type RestoreDecision, type StoredCheckpoint } from './lineage.js';

const RUN = 'run';
const attempt = (
  number: number,
  parentNumber: number | null = null,
  parentRound: number | null = null,
  parentRunId: string | null = null,
) => ({ number, parentNumber, parentRound, parentRunId }) satisfies AttemptOrigin;
const at = (number: number, round: number, isGone = false): StoredCheckpoint => ({ attempt: number, round, isGone });

describe('the lineage', () => {
  it.each<[string, AttemptOrigin[], [attempt: number, from: number, to: number][]]>([
    ['of a first attempt', [attempt(1)], [[1, 0, Infinity]]],
    ['of one that began again at 0', [attempt(1), attempt(2)], [[2, 0, Infinity]]],
    [
      'of a chain',
      [attempt(1), attempt(2, 1, 100), attempt(3, 2, 150)],
      [
        [3, 150, Infinity],
        [2, 100, 150],
        [1, 0, 100],
      ],
    ],
    [
      'past an attempt that never wrote a checkpoint',
      [attempt(1), attempt(2, 1, 100), attempt(3, 1, 100)],
      [
        [3, 100, Infinity],
        [1, 0, 100],
      ],
    ],
    [
      'of one that went back before its parent began',
      [attempt(1), attempt(2, 1, 100), attempt(3, 2, 100), attempt(4, 1, 50)],
      [
        [4, 50, Infinity],
        [1, 0, 50],
      ],
    ],
    [
      'from another run, whose attempts are not of this one',
      [attempt(1, 7, 500, 'other'), attempt(2, 1, 600)],
      [
        [2, 600, Infinity],
        [1, 500, 600],
      ],
    ],
    ['of parents that point at themselves ends', [attempt(1, 1, 5)], [[1, 5, Infinity]]],
  ])('%s', (_, attempts, parts) => {
    const lineage = lineageOf(attempts, Math.max(...attempts.map(({ number }) => number)));
    expect(lineage).toEqual(parts.map(([number, fromRound, toRound]) => ({ attempt: number, fromRound, toRound })));
    expect(firstRoundOf(lineage)).toBe(parts.at(-1)![1]);
  });
});

it('a run keeps its newest checkpoints and the best of its lineage, never a better one that a restore made void', () => {
  const attempts = [attempt(1), attempt(2, 1, 100)];
  const rows = [
    { ...at(1, 50), loss: 0.2 },
    { ...at(1, 100), loss: 0.3 },
    { ...at(1, 120), loss: 0.1 },
    { ...at(2, 110), loss: null },
    { ...at(2, 120), loss: 0.4 },
  ];
  const gone = (keepLast: number, keepBest: boolean) =>
    letGo(lineageOf(attempts, 2), rows, { keepLast, keepBest }).map((row) => [row.attempt, row.round]);
  expect(gone(2, true)).toEqual([
    [1, 100],
    [1, 120],
  ]);
  expect(gone(2, false)).toEqual([
    [1, 50],
    [1, 100],
    [1, 120],
  ]);
  expect(gone(9, true)).toEqual([[1, 120]]);
  const pins = [at(1, 100), at(2, 50)];
  expect(letGo(lineageOf(attempts, 2), rows, { keepLast: 2, keepBest: false }, pins).map((row) => [row.attempt, row.round])).toEqual([
    [1, 50],
    [1, 120],
  ]);
});

describe('the next attempt begins', () => {
  const chain = [attempt(1), attempt(2, 1, 100)];
  const from = (number: number, round: number, runId = RUN): RestoreDecision => ({
    kind: 'checkpoint',
    restore: { runId, attempt: number, round },
  });
  it.each<[string, AttemptOrigin[], StoredCheckpoint[], boolean, RestoreDecision]>([
    ['at round 0 without a checkpoint', [attempt(1)], [], false, { kind: 'beginning' }],
    ['at the newest', chain, [at(1, 50), at(1, 100), at(2, 130)], false, from(2, 130)],
    ['not at one that a restore made void', chain, [at(1, 50), at(1, 100), at(1, 140)], false, from(1, 100)],
    ['at the one before when the newest is gone', chain, [at(1, 50), at(1, 100, true), at(2, 130, true)], false, from(1, 50)],
    ['at round 0 when all are gone', chain, [at(1, 100, true)], false, { kind: 'beginning' }],
    ['at the later attempt of two that stand at one round', chain, [at(1, 100), at(2, 100)], false, from(2, 100)],
    ['at the other run where it began', [attempt(1, 7, 500, 'other')], [], false, from(7, 500, 'other')],
    ['nowhere when that is gone', [attempt(1, 7, 500, 'other')], [], true, { kind: 'nothing' }],
    ['at its own although that is gone', [attempt(1, 7, 500, 'other')], [at(1, 510)], true, from(1, 510)],
  ])('%s', (_, attempts, checkpoints, isOriginGone, expected) => {
    const present = Math.max(...attempts.map(({ number }) => number));
    expect(nextRestore(RUN, attempts, present, checkpoints, isOriginGone)).toEqual(expected);
  });
});
