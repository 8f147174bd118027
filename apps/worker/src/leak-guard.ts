/**
 * Watches the compute thread's memory round by round, and says what leaks.
 *
 *     WATCHING ── the detector sees growth ──> collected: is it still there? ── no ──> WATCHING, anew
 *        yes ──> TRACING: the next steps count what they leave behind ── found, or 4 steps ──> TOLD, once
 *
 * The steps compute the same as ever; ending the thread is for others (recycling.ts).
 */
import type { Engine, Growth, Kept, LeakDetector, LeakLimits, StepRequest, Sums } from '@paceline/engine';

export interface Leak {
  readonly growth: Growth;
  /** Tensors that one step left behind, most bytes first; empty if something else leaks. */
  readonly kept: readonly Kept[];
  /** Growth of the thread's JavaScript heap in the rounds since the first one, after a collection. */
  readonly heapGrowthBytes: number;
}

export interface LeakGuardOptions {
  readonly detector: Pick<LeakDetector, 'observe' | 'forget'>;
  readonly limits: LeakLimits;
  /** Collects the garbage of this thread. */
  readonly collect: () => void;
  /** Resident memory of the process. */
  readonly rssBytes: () => number;
  readonly nowMs: () => number;
  /** In use, of this thread's JavaScript. */
  readonly heapBytes: () => number;
  readonly found: (leak: Leak) => void;
}

/** Steps that are traced: a leak may not happen in every step. */
const TRACED_STEPS = 4;
const KEPT_TOLD = 5;
/** The system takes half a millisecond to tell it, as long as a small step: of short rounds not each has a reading of its own. */
const RSS_EVERY_MS = 50;

export class LeakWatch {
  private suspected: { readonly growth: Growth; readonly heapGrowthBytes: number } | undefined;
  private tracesLeft = 0;
  private kept: readonly Kept[] = [];
  private isTold = false;
  private heapAtStart: number | undefined;
  private rss: { readonly bytes: number; readonly atMs: number } | undefined;

  constructor(
    private readonly memory: Pick<Engine, 'memory'>,
    private readonly options: LeakGuardOptions,
  ) {}

  /** Does a part of a round. @param traced the same, which also says what it leaves behind */
  watch<T>(act: () => T, traced: () => { readonly result: T; readonly kept: readonly Kept[] }): T {
    if (this.tracesLeft === 0) return act();
    const { result, kept } = traced();
    this.tracesLeft = kept.length > 0 ? 0 : this.tracesLeft - 1;
    this.kept = kept.slice(0, KEPT_TOLD);
    return result;
  }

  /** After the steps of a round, or of a work item. */
  afterRound(): void {
    if (this.isTold) return;
    const { memory, options } = this;
    this.heapAtStart ??= options.heapBytes();
    if (!this.suspected) {
      const growth = options.detector.observe({ ...memory.memory(), rssBytes: this.recentRss() });
      if (growth) this.suspect(growth);
    } else if (this.tracesLeft === 0) {
      this.isTold = true;
      options.found({ ...this.suspected, kept: this.kept });
    }
  }

  private recentRss(): number {
    const { nowMs, rssBytes } = this.options;
    const atMs = nowMs();
    if (!this.rss || atMs - this.rss.atMs >= RSS_EVERY_MS) this.rss = { bytes: rssBytes(), atMs };
    return this.rss.bytes;
  }

  private suspect(growth: Growth): void {
    const { collect, rssBytes, heapBytes, detector, limits } = this.options;
    collect();
    if (growth.measure === 'rssBytes' && rssBytes() - growth.from < limits.rssBytes) return detector.forget(growth.measure);
    this.suspected = { growth, heapGrowthBytes: heapBytes() - this.heapAtStart! };
    this.tracesLeft = TRACED_STEPS;
  }
}

/** An engine whose steps are watched. */
export class LeakGuard extends LeakWatch implements Pick<Engine, 'step' | 'metricNames'> {
  constructor(
    private readonly engine: Engine,
    options: LeakGuardOptions,
  ) {
    super(engine, options);
  }

  get metricNames(): readonly string[] {
    return this.engine.metricNames;
  }

  step(request: StepRequest): Sums {
    return this.watch(
      () => this.engine.step(request),
      () => this.engine.trace(request),
    );
  }
}

const MB = 1e6;
const WORDS: Readonly<Record<Growth['measure'], (n: number) => string>> = {
  tensors: (n) => `${round(n)} more tensors`,
  buffers: (n) => `${round(n)} more values in its engine`,
  bytes: (n) => `${round(n / MB)} MB more tensors`,
  rssBytes: (n) => `${round(n / MB)} MB more memory`,
};
const counted = (n: number, what: string): string => `${n} ${what}${n === 1 ? '' : 's'}`;
const round = (n: number): string => String(Number(n.toPrecision(3)));

/** The suspect in words: a layer and its operation, or the kind of memory if it is not tensors. */
export function suspectOf({ growth, kept: [most], heapGrowthBytes }: Leak): string {
  if (most) {
    const what =
      most.tensors > 0
        ? `${counted(most.tensors, 'tensor')} (${most.bytes} bytes)`
        : `${counted(most.buffers, 'value')} that no tensor names`;
    return `${most.layer ? `layer ${most.layer}` : 'outside of all layers'}, operation ${most.op}: it leaves ${what} behind in a step`;
  }
  if (growth.measure !== 'rssBytes') return 'not found: the steps that were looked at left nothing behind';
  return heapGrowthBytes >= (growth.to - growth.from) / 2
    ? `JavaScript objects of the compute thread (${round(heapGrowthBytes / MB)} MB more)`
    : 'no tensor and no JavaScript object of the compute thread: native code, or another thread';
}

export function growthInWords({ measure, from, to, rounds, perRound }: Growth): string {
  const more = WORDS[measure];
  return `${more(to - from)} in ${rounds} rounds, ${more(perRound)} a round`;
}
