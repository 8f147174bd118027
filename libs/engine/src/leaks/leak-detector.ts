/**
 * Does memory grow from round to round, or is it only uneven? Pure: samples in, a growth that reaches its limit out.
 *
 * A leak raises the lowest level; a garbage collector, an evaluation or a first call of something raises it once or lets it fall back. So what
 * counts is the minimum of a bucket of rounds, and a leak is a row of 8 buckets of which each one's minimum is above the one's before and
 * whose growth reaches the limit. Fast and slow leaks are seen on a ladder of such rows: buckets of 8, 64, 512, 4096 and 32,768 rounds.
 * A leak is therefore found once it has grown by the limit, at most by eight times the limit; one that needs more than 262,144 rounds for
 * the limit is not. The first rounds do not count: an engine packs, compiles and fills its caches then.
 */
export interface LeakSample {
  /** Tensors that tf.js counts. */
  readonly tensors: number;
  /** Values that the backend holds, with those that no tensor names. */
  readonly buffers: number;
  /** Of the tensors. */
  readonly bytes: number;
  /** Of the process. */
  readonly rssBytes: number;
}

export type LeakMeasure = keyof LeakSample;

/** Growth that is a leak, by measure; 0: not watched. */
export type LeakLimits = Readonly<Record<LeakMeasure, number>>;

export interface Growth {
  readonly measure: LeakMeasure;
  /** Lowest level of the first bucket and of the last. */
  readonly from: number;
  readonly to: number;
  /** Between the two. */
  readonly rounds: number;
  /** Median slope between all pairs of buckets (Theil 1950, Sen 1968): a single odd bucket does not move it. */
  readonly perRound: number;
}

const WARM_UP_ROUNDS = 16;
const BUCKETS = 8;
const SPANS = [8, 64, 512, 4096, 32_768] as const;
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

const newLadder = (): readonly Rung[] => SPANS.map((span) => new Rung(span));

export class LeakDetector {
  private round = 0;
  private readonly ladders = new Map<LeakMeasure, readonly Rung[]>(MEASURES.map((measure) => [measure, newLadder()]));

  constructor(private readonly limits: LeakLimits) {}

  /** To be called once a round, always at the same place in it. */
  observe(sample: LeakSample): Growth | undefined {
    if (++this.round <= WARM_UP_ROUNDS) return undefined;
    let found: Growth | undefined;
    for (const measure of MEASURES) {
      if (this.limits[measure] <= 0) continue;
      for (const rung of this.ladders.get(measure)!) {
        const lows = rung.add(this.round, sample[measure]);
        if (lows) found ??= growthOf(measure, lows, this.limits[measure]);
      }
    }
    return found;
  }

  /** The growth turned out to be none: the measure is looked at anew. */
  forget(measure: LeakMeasure): void {
    this.ladders.set(measure, newLadder());
  }
}

function growthOf(measure: LeakMeasure, lows: readonly Low[], limit: number): Growth | undefined {
  const [first, last] = [lows[0]!, lows.at(-1)!];
  if (last.value - first.value < limit) return undefined;
  if (lows.some(({ value }, i) => i > 0 && value <= lows[i - 1]!.value)) return undefined;
  return { measure, from: first.value, to: last.value, rounds: last.round - first.round, perRound: medianSlope(lows) };
}

function medianSlope(lows: readonly Low[]): number {
  const slopes = lows.flatMap((a, i) => lows.slice(i + 1).map((b) => (b.value - a.value) / (b.round - a.round)));
  return slopes.sort((a, b) => a - b)[slopes.length >> 1]!;
}
