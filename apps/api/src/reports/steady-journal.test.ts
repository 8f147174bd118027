import type { JournalReport } from '@paceline/control-plane';
import { expect, test } from 'vitest';
import { MAX_REMEMBERED, SteadyJournal, type Remembered } from './steady-journal.js';

const remembered = {
  attempt: 1,
  storedSequence: 0,
  coordinatorTerm: 1,
  lastMetricSeq: 0,
  coordinator: { streamId: '1-0' },
} as unknown as Remembered;
const reportOf = (runId: string): JournalReport =>
  ({ kind: 'journal', runId, attempt: 1, term: 1, entries: [], state: {} }) as unknown as JournalReport;

test('of too many coordinators the one that has reported least lately is forgotten, and none while nothing is inserted', async () => {
  const asked: unknown[] = [];
  const statement = (_name: string, _text: string, [runId]: readonly unknown[] = []) =>
    Promise.resolve(void asked.push(runId)).then(() => []);
  const journal = new SteadyJournal({ statement } as never);
  for (let i = 0; i < MAX_REMEMBERED; i++) journal.remember(`run ${i}`, remembered);
  journal.remember('run 0', remembered); // is there: nothing has to go
  journal.remember('run 5', undefined);
  journal.remember('new', remembered); // has the place of run 5
  journal.remember('newer', remembered);
  for (const runId of ['run 0', 'run 1', 'run 2', 'run 5', 'new', 'newer']) await journal.store(reportOf(runId), '2-0');
  expect(asked).toEqual(['run 0', 'run 2', 'new', 'newer']);
});
