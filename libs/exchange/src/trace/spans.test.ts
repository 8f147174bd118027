import { expect, test } from 'vitest';
import { MAX_SPANS, SPAN_NAMES, SpanRecorder } from './spans.js';

const nameOf = (index: number): string => SPAN_NAMES[index]!;

test('nothing is recorded before somebody asks, and what had begun before is left out', () => {
  const recorder = new SpanRecorder();
  expect(recorder.now()).toBe(0);
  recorder.add('compute', recorder.now());
  const before = performance.now();
  recorder.start();
  recorder.add('wait', before - 1);
  recorder.add('compute', recorder.now());
  const { spans } = recorder.stop();
  expect(spans.map(([name]) => nameOf(name))).toEqual(['compute']);
  expect(recorder.now()).toBe(0);
});

test('rounds are counted of the run that is recorded, and belong to spans of the same thread', () => {
  const recorder = new SpanRecorder();
  recorder.start('mine');
  for (const round of [4, 4, 5, 6]) {
    recorder.mark(round, 'mine');
    recorder.mark(round + 100, 'of another run');
    recorder.owner = 'mine';
    recorder.add('update', recorder.now());
  }
  expect(recorder.rounds).toBe(2);
  const { spans, tracks } = recorder.stop();
  const rounds = spans.filter(([name]) => nameOf(name) === 'round');
  expect(rounds.map(([, track, , , round]) => [tracks[track], round])).toEqual([
    ['rounds', 4],
    ['rounds', 5],
  ]);
  expect(spans.filter(([name]) => nameOf(name) === 'update').map(([, , , , round]) => round)).toEqual([4, 4, 5, 6]);
});

test('the newest spans stay when there is no room for all', () => {
  const recorder = new SpanRecorder();
  recorder.start();
  for (let i = 0; i < MAX_SPANS + 10; i++) recorder.add('send', recorder.now(), `to ${i % 3}`, i);
  const { spans, lost, tracks } = recorder.stop();
  expect([spans.length, lost]).toEqual([MAX_SPANS, 10]);
  expect(Math.min(...spans.map(([, , , , round]) => round))).toBe(10);
  expect(tracks).toEqual(['main', 'to 0', 'to 1', 'to 2']);
});

test('nothing of other runs is recorded, on whatever track', () => {
  const recorder = new SpanRecorder();
  recorder.start('mine');
  for (const owner of ['mine', 'of another run', undefined]) {
    recorder.owner = owner;
    recorder.add('update', recorder.now());
  }
  recorder.add('send', recorder.now(), 'to 1', 0, 'mine');
  recorder.add('send', recorder.now(), 'to 2', 0, 'of another run');
  const { spans, tracks, lost } = recorder.stop();
  expect([spans.map(([name]) => nameOf(name)).sort(), tracks, lost]).toEqual([['send', 'update'], ['main', 'to 1'], 0]);
});
