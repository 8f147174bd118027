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
    /** Processes that have recorded but found no room in the trace. */
    readonly leftOut: number;
    /** No span of these rounds and processes was lost. */
    readonly isWhole: boolean;
  };
}

interface Window {
  readonly fromUs: number;
  readonly toUs: number;
}

const ROUND = 'round';

/**
 * @param rounds how many, at most
 * @param leftOut processes that have recorded too, for which there was no room
 * @returns undefined when there is no round that every process has seen whole
 */
export function chromeTrace(processes: readonly TracedProcess[], rounds: number, leftOut = 0): ChromeTrace | undefined {
  const offsets = hostOffsets(processes);
  const offsetOf = ({ host }: TracedProcess): number => offsets.get(host)!;
  const seen = processes.map((process) => roundsOf(process, offsetOf(process)));
  const common = [...(seen[0]?.keys() ?? [])].filter((round) => seen.every((of) => of.has(round))).sort((a, b) => a - b);
  const to = common.at(-1);
  if (to === undefined) return undefined;
  const chosen = common.filter((round) => round > to - rounds);
  const window = seen.flatMap((of) => chosen.map((round) => of.get(round)!)).reduce(around);
  return {
    displayTimeUnit: 'ms',
    traceEvents: processes.flatMap((process, i) => eventsOf(process, i + 1, offsetOf(process), window)),
    otherData: {
      runId: processes[0]!.runId,
      fromRound: chosen[0]!,
      toRound: to,
      processes: processes.length,
      leftOut,
      isWhole: processes.every((process) => process.threads.every((thread) => isThere(process, thread, offsetOf(process), window))),
    },
  };
}

const around = (a: Window, b: Window): Window => ({ fromUs: Math.min(a.fromUs, b.fromUs), toUs: Math.max(a.toUs, b.toUs) });

/** What is added to a host's clock to get µs of the wall clock. */
function hostOffsets(processes: readonly TracedProcess[]): Map<string, number> {
  const offsets = new Map<string, number>();
  for (const { host, threads } of processes)
    for (const { startUs, wallStartUs } of threads) if (!offsets.has(host)) offsets.set(host, wallStartUs - startUs);
  return offsets;
}

/** When the process was in which round. */
function roundsOf({ names, threads: [main] }: TracedProcess, offsetUs: number): Map<number, Window> {
  const found = new Map<number, Window>();
  for (const [name, , from, length, round] of main?.spans ?? []) {
    const fromUs = offsetUs + main!.startUs + from;
    if (names[name] === ROUND) found.set(round, { fromUs, toUs: fromUs + length });
  }
  return found;
}

/** Nothing that was lost belongs to the trace. */
const isThere = ({ names }: TracedProcess, { lost, spans, startUs }: TracedThread, offsetUs: number, { fromUs }: Window): boolean =>
  lost === 0 || spans.some(([name, , from]) => names[name] !== ROUND && offsetUs + startUs + from <= fromUs);

function eventsOf(process: TracedProcess, pid: number, offsetUs: number, window: Window): TraceEvent[] {
  const { role, id, host, pid: realPid, threads } = process;
  const named = (name: string, tid: number, value: string): TraceEvent => ({ name, ph: 'M', ts: 0, pid, tid, args: { name: value } });
  const events = [named('process_name', 0, `${role} ${id} (${host}, pid ${realPid})`)];
  let tid = 0;
  for (const thread of threads) {
    const byTrack = eventsByTrack(process, thread, offsetUs, window);
    for (const [index, track] of thread.tracks.entries()) {
      const ofTrack = byTrack.get(index);
      if (!ofTrack) continue;
      tid++;
      events.push(named('thread_name', tid, track === 'main' ? thread.thread : `${thread.thread}: ${track}`));
      for (const event of ofTrack) events.push({ ...event, pid, tid });
    }
  }
  return events;
}

type Unplaced = Omit<TraceEvent, 'pid' | 'tid'>;

/** What lies in the window, cut to it: by the index of its track, in one pass over the spans. */
function eventsByTrack(
  { names }: TracedProcess,
  { tracks, spans, startUs }: TracedThread,
  offsetUs: number,
  window: Window,
): Map<number, Unplaced[]> {
  const found = new Map<number, Unplaced[]>();
  for (const [nameIndex, trackIndex, from, length, round] of spans) {
    const fromUs = offsetUs + startUs + from;
    const toUs = fromUs + length;
    if (toUs <= window.fromUs || fromUs >= window.toUs) continue;
    const ts = Math.max(fromUs, window.fromUs);
    const name = names[nameIndex] ?? 'unknown';
    const event: Unplaced = {
      name: name === ROUND ? `${ROUND} ${round}` : name,
      ph: 'X',
      ts: ts - window.fromUs,
      dur: Math.min(toUs, window.toUs) - ts,
      args: { round },
    };
    const track = trackIndex < tracks.length ? trackIndex : 0;
    const there = found.get(track);
    if (there) there.push(event);
    else found.set(track, [event]);
  }
  return found;
}
