import { Journal, type Clock } from '@paceline/exchange';
import { ackFieldName, ackValue, type ControlFields, type Report } from '@paceline/control-plane';
import { expect, test } from 'vitest';
import { JournalPublisher, type WantedOf } from './journal-publisher.js';

/** A coordinator of which nothing is wanted. */
const IDLE: WantedOf = { cancel: () => undefined, stops: { pause: () => undefined }, attendance: { setTarget: () => undefined } };

type JournalReport = Extract<Report, { kind: 'journal' }>;

test('a report is never longer than what is taken, however long its entries are', async () => {
  const lengths: number[] = [];
  const journal = new Journal({ now: () => 0 });
  const members = Array.from({ length: 1024 }, (_, seat) => ({
    id: `worker-${seat}`.padEnd(100, 'x'),
    seat,
    incarnation: 0,
    replicas: [seat],
  }));
  for (let view = 0; view < 30; view++)
    journal.append({ kind: 'event', type: 'view.changed', message: `view ${view}`, data: { view, members } });
  const waiting: (() => void)[] = [];
  const publisher = new JournalPublisher({
    runId: '00000000-0000-4000-8000-000000000001',
    attempt: 1,
    journal,
    term: 1,
    clock: { now: () => 0, soon: () => undefined, every: () => () => undefined, after: (_, act) => (waiting.push(act), () => undefined) },
    controlPlane: {
      readControl: () => Promise.resolve({}),
      sendReport: (report) => Promise.resolve(void lengths.push(JSON.stringify(report).length)),
    },
    state: () => ({ seats: members }) as unknown as JournalReport['state'],
    coordinator: IDLE,
  });
  for (let period = 0; period < 3; period++) await publisher.flush();
  expect(lengths.length).toBeGreaterThan(9);
  expect(Math.max(...lengths)).toBeLessThan(1 << 20);
});

test('nothing is sent any more once it was stopped, not even what a batch under way has left', async () => {
  const sent: number[] = [];
  const journal = new Journal({ now: () => 0 });
  for (let i = 0; i < 900; i++) journal.append({ kind: 'event', type: 'worker.joined', message: '', data: {} });
  const publisher = new JournalPublisher({
    runId: '00000000-0000-4000-8000-000000000001',
    attempt: 1,
    journal,
    term: 1,
    clock: { now: () => 0, soon: () => undefined, every: () => () => undefined, after: () => () => undefined },
    controlPlane: {
      readControl: () => Promise.resolve({}),
      sendReport: (report) => Promise.resolve(void sent.push((report as JournalReport).entries.length)),
    },
    state: () => ({}) as JournalReport['state'],
    coordinator: IDLE,
  });
  const flushed = publisher.flush();
  publisher.stop();
  await flushed;
  await publisher.flush();
  expect(sent).toEqual([200]);
});

test('the journals of two attempts drain side by side: each hears only what is stored of its own, not of a successor in its attempt', async () => {
  const timers: { atMs: number; act: () => void }[] = [];
  let nowMs = 0;
  const clock: Clock = {
    now: () => nowMs,
    every: () => () => undefined,
    soon: (act) => void timers.push({ atMs: nowMs, act }),
    after: (ms, act) => {
      const timer = { atMs: nowMs + ms, act };
      timers.push(timer);
      return () => void timers.splice(timers.indexOf(timer), 1);
    },
  };
  const control: ControlFields = {};
  const reports: JournalReport[] = [];
  const journals = [1, 2].map((attempt) => {
    const journal = new Journal({ now: () => nowMs });
    for (let i = 0; i < 3 * attempt; i++) journal.append({ kind: 'event', type: 'worker.joined', message: `${attempt}`, data: {} });
    const publisher = new JournalPublisher({
      clock,
      runId: '00000000-0000-4000-8000-000000000001',
      attempt,
      journal,
      term: 1,
      controlPlane: {
        readControl: () => Promise.resolve({ ...control }),
        sendReport: (report) => Promise.resolve(void reports.push(report as JournalReport)),
      },
      state: () => ({}) as JournalReport['state'],
      coordinator: IDLE,
    });
    publisher.start();
    return journal;
  });
  const run = async (forMs: number): Promise<void> => {
    for (const until = nowMs + forMs; nowMs < until; nowMs += 50) {
      for (const timer of timers.splice(0))
        if (timer.atMs <= nowMs) timer.act();
        else timers.push(timer);
      for (let turn = 0; turn < 20; turn++) await Promise.resolve();
    }
  };
  await run(500);
  // What is stored of the newer attempt comes last, as it does while the older one drains.
  control[ackFieldName(1)] = ackValue({ sequence: 2 }, 1);
  control[ackFieldName(2)] = ackValue({ sequence: 6 }, 1);
  await run(500);
  expect(journals.map(({ pending }) => pending)).toEqual([1, 0]);
  expect(reports.filter(({ entries }) => entries.length > 0).map(({ attempt }) => attempt)).toEqual([1, 2]);
  control[ackFieldName(1)] = ackValue({ sequence: 3 }, 2);
  await run(500);
  expect(journals.map(({ pending }) => pending)).toEqual([1, 0]);
  control[ackFieldName(1)] = ackValue({ sequence: 3, areDropped: true }, 1);
  await run(500);
  expect(journals.map(({ pending, storedNumber }) => [pending, storedNumber])).toEqual([
    [0, 2],
    [0, 6],
  ]);
});

test('while nobody answers nothing new is told, however much there is: what may be stored unheard of stays little', async () => {
  let nowMs = 0;
  const journal = new Journal({ now: () => nowMs });
  const told: number[] = [];
  const control: ControlFields = {};
  const waiting: (() => void)[] = [];
  const publisher = new JournalPublisher({
    runId: '00000000-0000-4000-8000-000000000001',
    attempt: 1,
    journal,
    term: 1,
    clock: {
      now: () => nowMs,
      soon: () => undefined,
      every: () => () => undefined,
      after: (_, act) => (waiting.push(act), () => undefined),
    },
    controlPlane: {
      readControl: () => Promise.resolve({ ...control }),
      sendReport: (report) => Promise.resolve(void told.push(...(report as JournalReport).entries.map(({ sequence }) => sequence))),
    },
    state: () => ({}) as JournalReport['state'],
    coordinator: IDLE,
  });
  publisher.start();
  const pass = async (seconds: number): Promise<void> => {
    for (const untilMs = nowMs + seconds * 1000; nowMs < untilMs; nowMs += 250) {
      if (nowMs % 1000 === 0) journal.append({ kind: 'event', type: 'checkpoint.written', message: '', data: {} });
      for (const act of waiting.splice(0)) act();
      for (let turn = 0; turn < 20; turn++) await Promise.resolve();
    }
  };
  await pass(60);
  expect(journal.pending).toBe(60);
  expect(Math.max(...told)).toBeLessThan(6);
  // What was told before is told again.
  expect(told.filter((n) => n === 1).length).toBeGreaterThan(10);
  control[ackFieldName(1)] = ackValue({ sequence: Math.max(...told) }, 1);
  await pass(1);
  expect(Math.max(...told)).toBeGreaterThan(60);
});

test('rounds of an attempt that has trained for a while are told once a second, events at once with the rounds before them', async () => {
  let nowMs = 0;
  let wake: () => void = () => undefined;
  const reports: JournalReport[] = [];
  let stored = 0;
  const journal = new Journal({ now: () => nowMs });
  const publisher = new JournalPublisher({
    runId: '00000000-0000-4000-8000-000000000001',
    attempt: 1,
    journal,
    term: 1,
    clock: { now: () => nowMs, soon: () => undefined, every: () => () => undefined, after: (_, act) => ((wake = act), () => undefined) },
    controlPlane: {
      readControl: () => Promise.resolve(stored > 0 ? { [ackFieldName(1)]: ackValue({ sequence: stored }, 1) } : {}),
      sendReport: (report) => {
        reports.push(report as JournalReport);
        stored = (report as JournalReport).entries.at(-1)?.sequence ?? stored;
        return Promise.resolve();
      },
    },
    state: () => ({}) as JournalReport['state'],
    coordinator: IDLE,
  });
  publisher.start();
  let round = 0;
  const seconds = async (count: number): Promise<JournalReport[]> => {
    reports.length = 0;
    for (let period = 0; period < 4 * count; period++, nowMs += 250) {
      for (let i = 0; i < 5; i++, round++)
        journal.append({ kind: 'metric', round, rounds: 1, epoch: 0, values: { loss: 1 }, examples: 1, examplesPerSecond: 1, roundMs: 50 });
      wake();
      for (let turn = 0; turn < 20; turn++) await Promise.resolve();
    }
    return [...reports];
  };
  expect((await seconds(10)).length).toBeGreaterThanOrEqual(39);
  await seconds(6);
  const late = await seconds(10);
  expect(late).toHaveLength(10);
  expect(late.map(({ entries }) => entries.length)).toEqual(late.map(() => 20));
  journal.append({ kind: 'event', type: 'worker.joined', message: '', data: {} });
  nowMs += 250;
  reports.length = 0;
  wake();
  for (let turn = 0; turn < 20; turn++) await Promise.resolve();
  expect(reports.map(({ entries }) => entries.at(-1)!.kind)).toEqual(['event']);
  // Rows so long that a report has few of them do not wait either, nor does an event behind them.
  const values = Object.fromEntries(Array.from({ length: 400 }, (_, i) => [`metric ${i}`, i]));
  for (let i = 0; i < 190; i++, round++)
    journal.append({ kind: 'metric', round, rounds: 1, epoch: 0, values, examples: 1, examplesPerSecond: 1, roundMs: 50 });
  journal.append({ kind: 'event', type: 'worker.left', message: '', data: {} });
  nowMs += 250;
  reports.length = 0;
  wake();
  for (let turn = 0; turn < 60; turn++) await Promise.resolve();
  expect(reports.length).toBeGreaterThan(2);
  expect(reports.at(-1)!.entries.at(-1)).toMatchObject({ type: 'worker.left' });
});
