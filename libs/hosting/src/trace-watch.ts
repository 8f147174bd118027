/**
 * A process of a run looks now and then whether a trace of its rounds is wanted, records it, and reports what it has recorded. It has nothing to do with the run itself: a
 * trace that fails is a trace that is not there.
 */
import { SPAN_NAMES, spans, type CancelTimer, type Clock, type Recording } from '@paceline/exchange';
import {
  MAX_TRACED_SPANS,
  traceRequestOf,
  type ControlPlane,
  type TracedProcess,
  type TracedThread,
  type TraceRequest,
} from '@paceline/control-plane';

const LOOK_EVERY_MS = 500;
/** While it records. */
const TICK_MS = 50;
/** Processes do not begin in the same millisecond: each records so much more than was asked for. */
const SLACK_ROUNDS = 2;
const LEAST_MS = 500;
/** Slow rounds: then the trace has what there was. */
const MOST_MS = 10_000;

export interface TraceWatchOptions {
  readonly controlPlane: ControlPlane;
  readonly clock: Clock;
  readonly wallMs: () => number;
  readonly process: Pick<TracedProcess, 'role' | 'id' | 'host' | 'pid'>;
  /** The runs that it works for now. */
  readonly runs: () => Iterable<{ readonly runId: string; readonly attempt: number }>;
  /** Which rounds are counted: `of` of `SpanRecorder.start`. */
  readonly owner: (runId: string) => unknown;
  /** Redis is away. */
  readonly failed: (error: Error) => void;
  /** The other threads of the process, which record meanwhile. */
  readonly others?: { start(): void; stop(): Promise<readonly TracedThread[]> };
}

export const threadOf = (thread: string, { tracks, spans: all, ...rest }: Recording): TracedThread => ({
  thread,
  ...rest,
  tracks: [...tracks],
  spans: all.map((span): [...typeof span] => [...span]),
});

/** The newest spans of each, so that all of them fit into a report: what one thread does not need of its equal share, the others have. */
function bounded(threads: readonly TracedThread[]): TracedThread[] {
  let [left, most] = [MAX_TRACED_SPANS, 0];
  const counts = threads.map(({ spans: { length } }) => length).sort((a, b) => a - b);
  for (const [i, count] of counts.entries()) {
    most = Math.floor(left / (counts.length - i));
    if (count > most) break;
    left -= count;
    most = count;
  }
  return threads.map((thread) => {
    const over = thread.spans.length - most;
    return over > 0 ? Object.assign({}, thread, { spans: thread.spans.slice(over), lost: thread.lost + over }) : thread;
  });
}

export class TraceWatch {
  private readonly seen = new Set<string>();
  private readonly cancel: CancelTimer;
  private isLooking = false;
  private isBusy = false;
  private isStopped = false;

  constructor(private readonly options: TraceWatchOptions) {
    this.cancel = options.clock.every(LOOK_EVERY_MS, () => void this.look());
  }

  stop(): void {
    this.isStopped = true;
    this.cancel();
  }

  private async look(): Promise<void> {
    if (this.isLooking || this.isBusy) return;
    this.isLooking = true;
    try {
      for (const { runId, attempt } of this.options.runs()) {
        const { trace } = await this.options.controlPlane.readControl(runId);
        const request = traceRequestOf(trace, attempt);
        if (request && !this.seen.has(request.id) && !this.isBusy) this.plan(runId, request);
      }
    } catch (error) {
      this.options.failed(error as Error); // Redis is away: nobody can ask for a trace
    } finally {
      this.isLooking = false;
    }
  }

  private plan(runId: string, request: TraceRequest): void {
    this.seen.add(request.id);
    const inMs = request.startAtMs - this.options.wallMs();
    // It was asked for before this process came, or by a clock that is far off.
    if (inMs < -LEAST_MS || inMs > MOST_MS) return;
    this.isBusy = true;
    this.options.clock.after(Math.max(0, inMs), () => this.record(runId, request));
  }

  private record(runId: string, request: TraceRequest): void {
    const { clock, owner, others } = this.options;
    const startedMs = clock.now();
    others?.start();
    spans.start(owner(runId));
    const cancel = clock.every(TICK_MS, () => {
      const ms = clock.now() - startedMs;
      const isEnough = spans.rounds >= request.rounds + SLACK_ROUNDS && ms >= LEAST_MS;
      if (!isEnough && ms < MOST_MS && !this.isStopped) return;
      cancel();
      void this.report(runId, request, spans.stop());
    });
  }

  private async report(runId: string, { id: traceId, attempt }: TraceRequest, main: Recording): Promise<void> {
    const { controlPlane, process, others } = this.options;
    try {
      const threads = [threadOf('main', main), ...((await others?.stop()) ?? [])];
      if (!this.isStopped)
        await controlPlane.sendReport({
          kind: 'traced',
          runId,
          attempt,
          traceId,
          ...process,
          names: [...SPAN_NAMES],
          threads: bounded(threads),
        });
    } catch (error) {
      this.options.failed(error as Error); // who has asked is told that nobody has answered
    } finally {
      this.isBusy = false;
    }
  }
}
