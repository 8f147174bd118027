/**
 * Does memory grow from round to round, or is it only uneven? Pure: samples in, a growth that reaches its limit out.
 *
 * A leak raises the lowest level; a garbage collector, an evaluation or a first call of something raises it once or lets it fall back. So what
 * counts is the minimum of a bucket of rounds, and a leak is a row of 8 buckets of which each one's minimum is above the one's before and
 * whose growth reaches the limit. Fast and slow leaks are seen on a ladder of such rows: buckets of 1, 4, 16 … 65,536 rounds. The first 16 rounds
 * do not count: an engine packs, compiles and fills its caches then.
 *
 * A leak may fill the machine before a row is full. So a rush is a leak too: at most 32 rounds in which the level never falls and rises by three
 * limits, its largest single step not counted. Tensors are counted exactly, so theirs is looked for from the first round on; the memory of the
 * process only after the first 16.
 *
 * Tensors are therefore found once they have grown by the limit, and before they are more than six times the limit or than what five rounds leak;
 * the memory of the process likewise, or in the first 24 rounds. A leak that needs more than 458,752 rounds for its limit is not found.
 */
export interface LeakSample {
  /** Tensors that tf.js counts. */
  readonly tensors: number;
  /** Values that the backend holds, with those that no tensor names. */
  readonly buffers: number;
  /** Bytes of the tensors. */
  readonly bytes: number;
  /** Resident memory of the process. */
  readonly rssBytes: number;
}

export type LeakMeasure = keyof LeakSample;

/** Growth that is a leak, by measure; 0: not watched. */
export type LeakLimits = Readonly<Record<LeakMeasure, number>>;

export interface Growth {
  readonly measure: LeakMeasure;
  /** Lowest level of the first bucket and of the last, or first and last level of a rush. */
  readonly from: number;
  readonly to: number;
  /** Between the two. */
  readonly rounds: number;
  /** Median slope between all pairs of levels (Theil 1950, Sen 1968): a single odd bucket does not move it. */
  readonly perRound: number;
}

const WARM_UP_ROUNDS = 16;
const BUCKETS = 8;
const SPANS = Array.from({ length: 9 }, (_, i) => 4 ** i);
const RUSH_ROUNDS = 32;
const RUSH_LIMITS = 3;
/** In the order in which they say what leaks most precisely. */
const MEASURES: readonly LeakMeasure[] = ['tensors', 'buffers', 'bytes', 'rssBytes'];

interface Low {
  readonly round: number;
  readonly value: number;
}

class Rung {
  private readonly lows: Low[] = [];
  private present: Low | undefined;
  private filled = 0;

  constructor(private readonly span: number) {}

  /** @returns the lowest levels of the last buckets, when one has just been completed and there are enough */
  add(round: number, value: number): readonly Low[] | undefined {
    if (!this.present || value < this.present.value) this.present = { round, value };
    if (++this.filled < this.span) return undefined;
    this.lows.push(this.present);
    if (this.lows.length > BUCKETS) this.lows.shift();
    this.present = undefined;
    this.filled = 0;
    return this.lows.length === BUCKETS ? this.lows : undefined;
  }
}

/** The newest levels, since the last fall. */
class Rise {
  private readonly levels: Low[] = [];

  /** @returns the levels when they rise by more than `leastGrowth`, the largest step not counted: something kept once is no rush */
  add(round: number, value: number, leastGrowth: number): readonly Low[] | undefined {
    const { levels } = this;
    if (value < (levels.at(-1)?.value ?? 0)) levels.length = 0;
    levels.push({ round, value });
    if (levels.length > RUSH_ROUNDS) levels.shift();
    const largest = Math.max(0, ...levels.slice(1).map((level, i) => level.value - levels[i]!.value));
    return value - levels[0]!.value - largest >= leastGrowth ? levels : undefined;
  }
}

/** What is known of one measure. */
class Watch {
  private rise = new Rise();
  private readonly rungs = SPANS.map((span) => new Rung(span));
  /** Where growth was seen last. */
  private seenOn = -1;

  constructor(
    private readonly measure: LeakMeasure,
    private readonly limit: number,
  ) {}

  observe(round: number, value: number): Growth | undefined {
    const isWarm = round > WARM_UP_ROUNDS;
    let found: Growth | undefined;
    if (isWarm || this.measure !== 'rssBytes') {
      const levels = this.rise.add(round, value, RUSH_LIMITS * this.limit);
      if (levels) found = this.found(levels, -1);
    }
    if (!isWarm) return found;
    for (const [i, rung] of this.rungs.entries()) {
      const lows = rung.add(round, value);
      if (lows && !found && isGrowth(lows, this.limit)) found = this.found(lows, i);
    }
    return found;
  }

  /** What is seen over more rounds goes on: garbage that comes and goes does not hide a slow leak. */
  forget(): void {
    this.rise = new Rise();
    for (let i = 0; i <= this.seenOn; i++) this.rungs[i] = new Rung(SPANS[i]!);
  }

  private found(levels: readonly Low[], rung: number): Growth {
    this.seenOn = rung;
    const [first, last] = [levels[0]!, levels.at(-1)!];
    return { measure: this.measure, from: first.value, to: last.value, rounds: last.round - first.round, perRound: medianSlope(levels) };
  }
}

export class LeakDetector {
  private round = 0;
  private readonly watches: ReadonlyMap<LeakMeasure, Watch>;

  constructor(limits: LeakLimits) {
    const watched = MEASURES.filter((measure) => limits[measure] > 0);
    this.watches = new Map(watched.map((measure) => [measure, new Watch(measure, limits[measure])]));
  }

  /** To be called once a round, always at the same place in it. */
  observe(sample: LeakSample): Growth | undefined {
    this.round++;
    let found: Growth | undefined;
    for (const [measure, watch] of this.watches) {
      const growth = watch.observe(this.round, sample[measure]);
      found ??= growth;
    }
    return found;
  }

  /** The growth that was seen turned out to be none: it is looked for anew. */
  forget(measure: LeakMeasure): void {
    this.watches.get(measure)?.forget();
  }
}

function isGrowth(lows: readonly Low[], limit: number): boolean {
  return lows.at(-1)!.value - lows[0]!.value >= limit && lows.every(({ value }, i) => i === 0 || value > lows[i - 1]!.value);
}

function medianSlope(lows: readonly Low[]): number {
  const slopes = lows.flatMap((a, i) => lows.slice(i + 1).map((b) => (b.value - a.value) / (b.round - a.round)));
  return slopes.sort((a, b) => a - b)[slopes.length >> 1]!;
}
