/** Traces of a real run: what its processes have recorded becomes one picture, in which spans nest and little is missing. */
import { chromeTrace, type TraceEvent } from '@paceline/control-plane';
import { DataPlane } from '@paceline/testkit';
import { expect, test } from 'vitest';

const ROUNDS = 5;

interface Span {
  readonly name: string;
  readonly from: number;
  readonly to: number;
}

const spansOf = (events: readonly TraceEvent[], pid: number, tid: number): Span[] =>
  events
    .filter((event) => event.ph === 'X' && event.pid === pid && event.tid === tid)
    .map(({ name, ts, dur = 0 }) => ({ name, from: ts, to: ts + dur }))
    .sort((a, b) => a.from - b.from || b.to - a.to);

/** Share of [from, to) in which one of the spans lies. */
function covered(spans: readonly Span[], from: number, to: number): number {
  let [sum, reached] = [0, from];
  for (const span of spans) {
    sum += Math.max(0, Math.min(span.to, to) - Math.max(span.from, reached));
    reached = Math.max(reached, Math.min(span.to, to));
  }
  return sum / (to - from);
}

/** Rounded to a µs each: neighbours may seem to overlap by one at either end. */
const SLACK_US = 2;
function nests(spans: readonly Span[]): boolean {
  const open: Span[] = [];
  return spans.every((span) => {
    while (open.length > 0 && open.at(-1)!.to <= span.from + SLACK_US) open.pop();
    const outer = open.at(-1);
    open.push(span);
    return !outer || span.to <= outer.to + SLACK_US;
  });
}

test('a trace of a run that trains has a track for every thread; spans nest, and the compute threads are accounted for', async () => {
  const plane = await DataPlane.start({ servers: 1, workers: 2 });
  try {
    const view = await plane.train({ model: 'mlp', engine: 'wasm', globalBatch: 32, replicas: 2, length: { rounds: 1_000_000 } });
    await plane.until(view, 'both workers', 60_000, () => view.state?.seats.length === 2 && view.state.round > 20);
    const processes = await plane.traced(view, ROUNDS, 3);
    expect(processes.map(({ role }) => role).sort()).toEqual(['server', 'worker', 'worker']);
    const trace = chromeTrace(processes, ROUNDS)!;
    expect(trace.otherData).toMatchObject({ runId: view.id, processes: 3, isWhole: true });
    expect(trace.otherData.toRound - trace.otherData.fromRound).toBe(ROUNDS - 1);

    const tracks = trace.traceEvents.filter(({ name }) => name === 'thread_name');
    for (const { pid, tid, args } of tracks)
      expect([args['name'], nests(spansOf(trace.traceEvents, pid, tid))]).toEqual([args['name'], true]);
    const compute = tracks.filter(({ args }) => args['name'] === 'compute');
    expect(compute).toHaveLength(2);
    for (const { pid, tid } of compute) {
      const spans = spansOf(trace.traceEvents, pid, tid);
      expect([...new Set(spans.map(({ name }) => name))].sort()).toEqual([
        'compute',
        'load parameters',
        'step',
        'take gradient',
        'take rows',
        'wait',
      ]);
      const { tid: roundsTid } = tracks.find(({ pid: of, args }) => of === pid && args['name'] === 'main: rounds')!;
      const rounds = spansOf(trace.traceEvents, pid, roundsTid);
      expect(rounds.length).toBeGreaterThanOrEqual(ROUNDS);
      // A round in which the thread had no processor between two spans has a hole; a span that is missing makes one in every round.
      const shares = rounds.map(({ from, to }) => covered(spans, from, to));
      expect(shares.filter((share) => share > 0.9).length, `covered: ${shares}`).toBeGreaterThanOrEqual(rounds.length / 2);
    }
    const names = new Set(trace.traceEvents.map(({ name }) => name));
    for (const name of ['send', 'receive', 'add', 'update', 'publish', 'commit']) expect(names).toContain(name);
  } finally {
    await plane.stop();
  }
});
