/**
 * Recordings of the processes of an attempt become one trace in the JSON format of Chrome's and Perfetto's trace viewers: a process for each of
 * ours, a track for each of its threads and connections.
 *
 *     worker   rounds │ main │ from and to servers │ compute
 *     server   rounds │ main │ from and to workers
 *
 * Processes of one host share a clock; those of others are placed by their wall clocks. The trace holds the newest rounds that all of them have seen whole, and what
 * reaches out of these is cut.
 */
import type { TracedProcess, TracedThread } from '../contract/traces.js';

export interface TraceEvent {
  readonly name: string;
  /** `X` is a span, `M` names a process or track. */
  readonly ph: 'X' | 'M';
  /** µs */
  readonly ts: number;
  readonly dur?: number;
  readonly pid: number;
  readonly tid: number;
  readonly args: Readonly<Record<string, unknown>>;
}

export interface ChromeTrace {
  readonly displayTimeUnit: 'ms';
  readonly traceEvents: readonly TraceEvent[];
  readonly otherData: {
    readonly runId: string;
    /** The first and the last round of it. */
    readonly fromRound: number;
    readonly toRound: number;
    readonly processes: number;
    /** Spans of these rounds that found no room. */
    readonly isWhole: boolean;
  };
}

interface PlacedSpan {
  readonly name: string;
  readonly track: string;
  readonly fromUs: number;
  readonly toUs: number;
  readonly round: number;
}

const ROUND = 'round';

/**
 * @param rounds how many, at most
 * @returns undefined when there is no round that every process has seen whole
 */
export function chromeTrace(processes: readonly TracedProcess[], rounds: number): ChromeTrace | undefined {
  const offsets = hostOffsets(processes);
  const placed = processes.map((process) =>
    process.threads.map((thread) => placedSpans(process, thread, offsets.get(process.host)! + thread.startUs)),
  );
  const windows = placed.map(([main]) => roundsOf(main ?? []));
  const [first] = windows;
  const common = [...(first?.keys() ?? [])].filter((round) => windows.every((of) => of.has(round))).sort((a, b) => a - b);
  const to = common.at(-1);
  if (to === undefined) return undefined;
  const chosen = common.filter((round) => round > to - rounds);
  const spans = windows.flatMap((of) => chosen.map((round) => of.get(round)!));
  const fromUs = Math.min(...spans.map((span) => span.fromUs));
  const toUs = Math.max(...spans.map((span) => span.toUs));
  return {
    displayTimeUnit: 'ms',
    traceEvents: processes.flatMap((process, i) => eventsOf(process, i + 1, placed[i]!, fromUs, toUs)),
    otherData: {
      runId: processes[0]!.runId,
      fromRound: chosen[0]!,
      toRound: to,
      processes: processes.length,
      isWhole: placed.flat().every((thread, i) => isThere(processes.flatMap(({ threads }) => threads)[i]!, thread, fromUs)),
    },
  };
}

/** What is added to a host's clock to get µs of the wall clock. */
function hostOffsets(processes: readonly TracedProcess[]): Map<string, number> {
  const offsets = new Map<string, number>();
  for (const { host, threads } of processes)
    for (const { startUs, wallStartUs } of threads) if (!offsets.has(host)) offsets.set(host, wallStartUs - startUs);
  return offsets;
}

function placedSpans({ names }: TracedProcess, { tracks, spans }: TracedThread, startUs: number): PlacedSpan[] {
  return spans.map(([name, track, from, length, round]) => ({
    name: names[name] ?? 'unknown',
    track: tracks[track] ?? 'main',
    fromUs: startUs + from,
    toUs: startUs + from + length,
    round,
  }));
}

const roundsOf = (spans: readonly PlacedSpan[]): Map<number, PlacedSpan> =>
  new Map(spans.filter(({ name }) => name === ROUND).map((span) => [span.round, span]));

/** Nothing that was lost belongs to the trace. */
const isThere = ({ lost }: TracedThread, spans: readonly PlacedSpan[], fromUs: number): boolean =>
  lost === 0 || spans.some((span) => span.name !== ROUND && span.fromUs <= fromUs);

function eventsOf(
  { role, id, host, pid: realPid, threads }: TracedProcess,
  pid: number,
  placed: readonly (readonly PlacedSpan[])[],
  fromUs: number,
  toUs: number,
): TraceEvent[] {
  const named = (name: string, tid: number, value: string): TraceEvent => ({ name, ph: 'M', ts: 0, pid, tid, args: { name: value } });
  const events = [named('process_name', 0, `${role} ${id} (${host}, pid ${realPid})`)];
  let tid = 0;
  for (const [i, { thread, tracks }] of threads.entries()) {
    for (const track of tracks) {
      const spans = placed[i]!.filter((span) => span.track === track && span.toUs > fromUs && span.fromUs < toUs);
      if (spans.length === 0) continue;
      tid++;
      events.push(named('thread_name', tid, track === 'main' ? thread : `${thread}: ${track}`));
      for (const span of spans) {
        const ts = Math.max(span.fromUs, fromUs);
        events.push({
          name: span.name === ROUND ? `${ROUND} ${span.round}` : span.name,
          ph: 'X',
          ts: ts - fromUs,
          dur: Math.min(span.toUs, toUs) - ts,
          pid,
          tid,
          args: { round: span.round },
        });
      }
    }
  }
  return events;
}
