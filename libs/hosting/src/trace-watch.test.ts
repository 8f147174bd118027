import { reportSchema, type ControlPlane, type Report, type TracedProcess, type TracedThread } from '@paceline/control-plane';
import { expect, test } from 'vitest';
import { TraceWatch } from './trace-watch.js';

const RUN = '0190a000-0000-7000-8000-000000000001';
/** What the api takes of a report (libs/control-plane/src/dispatch/report-reader.ts). */
const REPORT_CHARACTERS = 1 << 20;
const SPANS = 6_000;

const recorded = (thread: string, spans = SPANS): TracedThread => ({
  thread,
  tracks: ['main', 'rounds'],
  spans: Array.from({ length: spans }, (_, i): [number, number, number, number, number] => [5, 0, 1_000_000 + i * 100, 4_321, 123_456]),
  lost: 3,
  startUs: 1,
  wallStartUs: 2,
});

async function traced(others: readonly TracedThread[]): Promise<TracedProcess> {
  const timers: (() => void)[] = [];
  let now = 0;
  const reports: Report[] = [];
  const request = { attempt: 1, id: RUN, rounds: 1, startAtMs: 0 };
  const watch = new TraceWatch({
    controlPlane: {
      readControl: () => Promise.resolve({ trace: JSON.stringify(request) }),
      sendReport: (report: Report) => Promise.resolve(void reports.push(report)),
    } as unknown as ControlPlane,
    clock: {
      now: () => now,
      after: (_: number, act: () => void) => (act(), () => undefined),
      every: (_: number, act: () => void) => (timers.push(act), () => undefined),
    } as never,
    wallMs: () => 0,
    process: { role: 'worker', id: 'w', host: 'h', pid: 7 },
    runs: () => [{ runId: RUN, attempt: 1 }],
    owner: () => undefined,
    failed: (error) => expect.unreachable(error.message),
    others: { start: () => undefined, stop: () => Promise.resolve(others) },
  });
  timers[0]!();
  await expect.poll(() => timers.length).toBe(2);
  now = 20_000; // as long as a recording may take
  timers[1]!();
  await expect.poll(() => reports.length).toBe(1);
  watch.stop();
  return reportSchema.parse(reports[0]) as TracedProcess;
}

test.each([1, 16, 256])('a trace of a worker with %i compute threads fits into a report, with the newest spans of each', async (count) => {
  const report = await traced(Array.from({ length: count }, (_, i) => recorded(`compute ${i}`)));
  expect(report.threads).toHaveLength(count + 1);
  expect(JSON.stringify(report).length).toBeLessThan(REPORT_CHARACTERS);
  const [, thread] = report.threads;
  expect(thread!.spans.length).toBeGreaterThan(80);
  expect(thread!.spans.at(-1)).toEqual(recorded('').spans.at(-1));
  expect(thread!.lost).toBe(3 + SPANS - thread!.spans.length);
});

test('what one thread does not need of its share others have', async () => {
  const { threads } = await traced([recorded('compute 0'), ...Array.from({ length: 16 }, (_, i) => recorded(`compute ${i + 1}`, 200))]);
  expect(threads.slice(1).map(({ spans }) => spans.length)).toEqual([SPANS, ...Array.from({ length: 16 }, () => 200)]);
});
