import { expect, test } from 'vitest';
import { Journal, type NumberedEntry } from './journal.js';

const MAX = 40;

function trained(journal: Journal, from: number, to: number): void {
  for (let round = from; round < to; round++) {
    journal.append({ kind: 'ledger', fromRound: round, toRound: round, examples: 10 });
    journal.append({
      kind: 'metric',
      round,
      rounds: 1,
      epoch: 0,
      values: { loss: round, accuracy: null },
      examples: 10,
      examplesPerSecond: 1,
      roundMs: 1,
    });
  }
}

/** What a reader has that stores each number once. */
function store(stored: Map<number, NumberedEntry>, entries: readonly NumberedEntry[]): void {
  for (const entry of entries) if (!stored.has(entry.sequence)) stored.set(entry.sequence, { ...entry });
}

test('a full journal loses no round of the ledger and no example of the metrics, whatever part of it was stored before', () => {
  for (const seen of [0, 1, 3, 8, 20]) {
    const journal = new Journal({ now: () => 0, maxEntries: MAX });
    const stored = new Map<number, NumberedEntry>();
    for (let round = 0; round < 12; round++) {
      trained(journal, round, round + 1);
      store(stored, journal.batch(seen)); // published as it comes; the reader is gone after `seen` entries
    }
    trained(journal, 12, 400);
    expect(journal.pending).toBeLessThanOrEqual(MAX + 24);
    store(stored, journal.batch(1_000));
    const entries = [...stored.values()].sort((a, b) => a.sequence - b.sequence);
    let next = 0;
    for (const entry of entries) {
      if (entry.kind !== 'ledger') continue;
      expect(entry.fromRound).toBe(next);
      expect(entry.examples).toBe(10 * (entry.toRound + 1 - entry.fromRound));
      next = entry.toRound + 1;
    }
    expect(next).toBe(400);
    const metrics = entries.filter((entry) => entry.kind === 'metric');
    expect(metrics.reduce((sum, metric) => sum + metric.rounds, 0)).toBe(400);
    expect(metrics.at(-1)!.round).toBe(399);
  }
});

test('rows that are thinned have the mean of both where a metric is one, else the newer number, and rounds that measured nothing do not count', () => {
  const journal = new Journal({ now: () => 0, maxEntries: 4, means: new Set(['loss', 'accuracy']) });
  const rows = [
    { values: { loss: 4, accuracy: 0.5, auc: 0.5 }, examples: 10 },
    { values: { loss: 1, accuracy: 1, auc: 0.9 }, examples: 20 },
    { values: { loss: 2, accuracy: 0, auc: 0.7 }, examples: 10 },
    { values: { loss: 2, accuracy: 1, auc: null }, examples: 10 },
    // Left out, and validated.
    { values: { loss: null }, examples: 0 },
  ];
  for (const [round, { values, examples }] of rows.entries())
    journal.append({ kind: 'metric', round, rounds: 1, epoch: 0, values, examples, examplesPerSecond: 1, roundMs: 1 });
  for (let i = 0; i < 3; i++) journal.append({ kind: 'event', type: 'worker.joined', message: '', data: {} });
  expect(journal.batch().filter(({ kind }) => kind === 'metric')).toMatchObject([
    { round: 4, rounds: 5, examples: 50, values: { loss: 2, accuracy: 0.7, auc: 0.7 } },
  ]);
});

test('events that nobody collects are dropped behind a marker that says how many', () => {
  const journal = new Journal({ now: () => 0, maxEntries: MAX });
  for (let i = 0; i < 200; i++) journal.append({ kind: 'event', type: 'worker.joined', message: `${i}`, data: {} });
  expect(journal.pending).toBeLessThanOrEqual(MAX + 1);
  const gaps = journal.batch(1_000).filter((entry) => entry.kind === 'event' && entry.type === 'journal.gap');
  expect(gaps.length).toBeGreaterThan(0);
  expect(journal.batch(1_000).at(-1)).toMatchObject({ message: '199' });
});

test('an event is taken back as long as nobody has read it', () => {
  const journal = new Journal({ now: () => 0 });
  for (const round of [1, 2]) {
    journal.append({ kind: 'event', type: 'checkpoint.written', message: '', data: { round } });
    if (round === 1) journal.batch();
  }
  const withdraw = (round: number) => journal.withdraw('checkpoint.written', (data) => data['round'] === round);
  expect([1, 2, 2].map(withdraw)).toEqual([false, true, false]);
  expect(journal.batch()).toMatchObject([{ sequence: 1 }]);
  journal.append({ kind: 'event', type: 'run.finished', message: '', data: {} });
  expect(journal.batchAgain()).toMatchObject([{ sequence: 1 }]);
  journal.acknowledge(1);
  expect(journal.batchAgain()).toMatchObject([{ sequence: 3 }]);
});
