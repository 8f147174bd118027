import { expect, test } from 'vitest';
import { Journal } from '../attempt/journal.js';
import { SEVERAL } from '../attempt/ledger-state.js';
import { RoundLedger } from './round-ledger.js';

/** Round k has 10 + k examples. */
const schedule = { totalRounds: 20, examplesIn: (round: number) => 10 + round, epochOf: () => 0, replicaExamples: () => 1 };
const examplesBefore = (round: number): number => Array.from({ length: round }, (_, k) => 10 + k).reduce((sum, each) => sum + each, 0);

function taken(round: number, ledgerFrom: number, stored?: { examples: number; dropped: number }, leftOut?: readonly number[]) {
  const journal = new Journal({ now: () => 0, ledgerRounds: 1 });
  const ledger = new RoundLedger(schedule, journal, () => 0);
  ledger.succeed(round, ledgerFrom, stored, leftOut);
  const entries = () => journal.batch(1_000);
  return {
    ledger,
    rows: () => entries().flatMap((entry) => (entry.kind === 'ledger' ? [[entry.fromRound, entry.toRound, entry.examples]] : [])),
    metrics: () => entries().flatMap((entry) => (entry.kind === 'metric' ? [entry.round] : [])),
    skipped: () => entries().flatMap((entry) => (entry.kind === 'event' && entry.type === 'round.skipped' ? [entry.data] : [])),
    gaps: () => entries().flatMap((entry) => (entry.kind === 'event' && entry.type === 'journal.gap' ? [entry.data] : [])),
  };
}

const told = (round: number) => [{ examples: schedule.examplesIn(round), sums: [1, 1] }];

test('a successor writes the rows of committed rounds that are not stored, from the schedule, and says that their metrics are gone', () => {
  const { ledger, rows, gaps } = taken(5, 3);
  expect(rows()).toEqual([
    [3, 3, 13],
    [4, 4, 14],
  ]);
  expect(gaps()).toEqual([{ fromRound: 3, toRound: 4 }]);
  expect(ledger.trainedExamples).toBe(examplesBefore(5));
  ledger.commit(5, told(5));
  expect(rows().at(-1)).toEqual([5, 5, 15]);
  expect(ledger.trainedExamples).toBe(examplesBefore(6));
});

test('a successor counts what was left out before, as the control plane has stored it', () => {
  const journal = new Journal({ now: () => 0, ledgerRounds: 1 });
  const first = { examples: 100, exceptions: [{ round: 1, examples: 4, why: 'NaN' }] };
  const ledger = new RoundLedger(schedule, journal, () => 0, first);
  ledger.succeed(5, 4, { examples: 21, dropped: 9 });
  expect(ledger.trainedExamples).toBe(100 + 21 + 14);
  expect(ledger.state().exceptions).toEqual([...first.exceptions, { round: 3, examples: 9, why: SEVERAL }]);
});

test('a successor counts no examples of rounds that its shard knows to be left out', () => {
  const { ledger, rows, skipped } = taken(6, 3, { examples: 21, dropped: 12 }, [2, 4, 6]);
  expect(rows()).toEqual([
    [3, 3, 13],
    [4, 4, 0],
    [5, 5, 15],
  ]);
  expect(skipped()).toEqual([{ round: 4, examples: 14 }]);
  expect(ledger.state()).toMatchObject({
    examples: 21 + 13 + 15,
    exceptions: [
      { round: 2, examples: 12 },
      { round: 4, examples: 14 },
    ],
  });
  const unstored = taken(6, 3, undefined, [1, 4]);
  expect(unstored.ledger.trainedExamples).toBe(examplesBefore(6) - 11 - 14);
  expect(unstored.skipped()).toEqual([{ round: 4, examples: 14 }]);
});

test('with everything stored there is nothing to write, and no gap', () => {
  const { rows, gaps } = taken(5, 5);
  expect([rows(), gaps()]).toEqual([[], []]);
});

test('a round that is stored and is gathered again is counted, and not written again', () => {
  // The coordinator before had committed round 5 and told the journal of it; no server has heard that.
  const { ledger, rows, metrics, gaps } = taken(5, 6);
  expect([rows(), gaps()]).toEqual([[], []]);
  ledger.commit(5, told(5));
  expect(rows()).toEqual([]);
  ledger.commit(6, told(6));
  expect([rows(), metrics()]).toEqual([[[6, 6, 16]], [6]]);
  expect(ledger.trainedExamples).toBe(examplesBefore(7));
});

test('what is stored of a round that is gathered again is in the sums already', () => {
  const stored = { examples: examplesBefore(6) - 3, dropped: 3 };
  const before = taken(5, 6, stored).ledger.state();
  const again = [
    (ledger: RoundLedger) => ledger.commit(5, told(5)),
    (ledger: RoundLedger) => ledger.commit(5, []),
    (ledger: RoundLedger) => ledger.skip(5),
    (ledger: RoundLedger) => ledger.commitUnseen(5),
  ];
  for (const gather of again) {
    const { ledger } = taken(5, 6, stored);
    gather(ledger);
    expect(ledger.state()).toEqual(before);
    ledger.commit(6, told(6));
    expect(ledger.trainedExamples).toBe(examplesBefore(7) - 3);
  }
});

test('the same for a round that is left out, and for one whose commit only a worker has heard', () => {
  const skipped = taken(5, 6);
  skipped.ledger.skip(5);
  skipped.ledger.skip(6);
  expect(skipped.rows()).toEqual([[6, 6, 0]]);
  expect(skipped.ledger.state()).toMatchObject({
    examples: examplesBefore(5),
    exceptions: [
      { round: 5, examples: 15 },
      { round: 6, examples: 16 },
    ],
  });

  const unseen = taken(5, 6);
  unseen.ledger.commitUnseen(5);
  unseen.ledger.commitUnseen(6);
  expect(unseen.rows()).toEqual([[6, 6, 16]]);
  expect(unseen.gaps()).toEqual([{ fromRound: 6, toRound: 6 }]);
  expect(unseen.ledger.trainedExamples).toBe(examplesBefore(7));
});
