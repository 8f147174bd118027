import { expect, test } from 'vitest';
import { PLACES_PER_SERVER } from '@paceline/control-plane';
import { Journal } from '@paceline/exchange';
import { virtualTime } from '../virtual-time.fixture.js';
import { JournalPublisher } from './journal-publisher.js';
import { UncollectedJournals } from './uncollected-journals.js';

const DAY_MS = 86_400_000;

function setUp() {
  const { clock, run } = virtualTime();
  const [lost, stopped]: [unknown[], number[]] = [[], []];
  const silent = (): void => undefined;
  const log = {
    debug: silent,
    info: silent,
    warn: silent,
    error: ({ attempt }: Readonly<Record<string, unknown>>) => void lost.push(attempt),
  };
  const journals = new UncollectedJournals({ clock, log });
  const keep = (attempt: number) => {
    const publisher = {
      isDrained: false,
      flushes: 0,
      flush: () => Promise.resolve(void publisher.flushes++),
      stop: () => void stopped.push(attempt),
    };
    journals.keep({ runId: 'a', attempt, publisher });
    return publisher;
  };
  return { journals, keep, lost, stopped, run };
}

test('a journal is published until its end is stored, for hours', async () => {
  const { journals, keep, lost, stopped, run } = setUp();
  const publisher = keep(1);
  await run(10 * 3_600_000);
  await journals.flush();
  expect([publisher.flushes, ...stopped]).toEqual([1]);
  publisher.isDrained = true;
  await run(10_000);
  await journals.flush();
  expect([publisher.flushes, ...stopped]).toEqual([1, 1]);
  expect(lost).toEqual([]);
});

test('where nobody ever collects it, it is let go after a day', async () => {
  const { keep, lost, stopped, run } = setUp();
  keep(1);
  await run(DAY_MS - 10_000);
  expect(stopped).toEqual([]);
  await run(20_000);
  expect([stopped, lost]).toEqual([[1], [1]]);
});

test('no more are kept than a server has places: the oldest go first', () => {
  const { keep, lost, stopped } = setUp();
  for (let attempt = 1; attempt <= PLACES_PER_SERVER + 2; attempt++) keep(attempt);
  expect([stopped, lost]).toEqual([
    [1, 2],
    [1, 2],
  ]);
});

test('a detached journal says what its run was at the end, and carries out nothing any more', async () => {
  const { clock, run } = virtualTime();
  const sent: { phase: string }[] = [];
  const wanted: string[] = [];
  const live = { phase: 'finished' };
  const journal = new Journal({ now: () => 0 });
  journal.append({ kind: 'event', type: 'run.finished', message: '', data: {} });
  const publisher = new JournalPublisher({
    runId: '00000000-0000-4000-8000-000000000001',
    attempt: 1,
    journal,
    term: 1,
    clock,
    controlPlane: {
      readControl: () => Promise.resolve({ action: '1:cancel' }),
      sendReport: (report) => Promise.resolve(void (report.kind === 'journal' && sent.push(Object.assign({}, report.state) as never))),
    },
    state: () => Object.assign({}, live) as never,
    coordinator: {
      cancel: () => void wanted.push('cancel'),
      stops: { pause: () => void wanted.push('pause') },
      attendance: { setTarget: () => void wanted.push('workers') },
    },
  });
  publisher.detach();
  live.phase = 'over';
  publisher.start();
  await run(5_000);
  expect(sent.length).toBeGreaterThan(1);
  for (const { phase } of sent) expect(phase).toBe('finished');
  expect(wanted).toEqual([]);
});
