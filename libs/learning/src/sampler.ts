/**
 * Which examples a replica sees in a round (docs/protocol.md §7.2): a pure function of (seed, epoch, round, replica), with no shuffled
 * list anywhere.
 *
 *   epoch     a permutation of the n examples, computed by index; with `shuffle: false` their own order
 *   round     positions [first, first + count) of the epoch's permutation; the last round of an epoch may be ragged
 *   replica   with n positions in the round, floor(r·n/R) .. floor((r+1)·n/R)
 *   micro-batches of a replica, by the same floor rule
 */
import { LIMITS, roundGrid, type GridRound, type RoundGridOptions, type RunSpec } from '@paceline/spec';
import { LearningError } from './errors.js';
import { philox4x32, streamKey } from './random.js';

/** Positions from ≤ i < to. */
export interface Rows {
  readonly from: number;
  readonly to: number;
}

const FEISTEL_ROUNDS = 8;
/** Tiny domains mix badly (a network over 2 bits reaches few permutations), so small n walk inside 2^8. */
const LEAST_BITS = 8;

/**
 * A pseudorandom permutation of 0 .. n−1 by index: an alternating Feistel network over the next power of two, with cycle walking
 * (Black & Rogaway 2002): what falls outside is sent through again; fewer than two passes on average from n = 129 on.
 */
export class Permutation {
  private readonly keys = new Uint32Array(FEISTEL_ROUNDS);
  private readonly lowBits: number;
  private readonly lowMask: number;
  private readonly highMask: number;

  constructor(
    seed: number,
    epoch: number,
    readonly n: number,
  ) {
    if (!Number.isSafeInteger(n) || n < 1 || n > 2 ** 31 - 1) throw new RangeError(`a permutation of ${n} examples`);
    const bits = Math.max(LEAST_BITS, 32 - Math.clz32(n - 1));
    this.lowBits = bits >>> 1;
    this.lowMask = (1 << this.lowBits) - 1;
    this.highMask = (1 << (bits - this.lowBits)) - 1;
    const key = streamKey('permutation', seed, epoch);
    for (let i = 0; i < FEISTEL_ROUNDS; i += 4) philox4x32(i, 0, 0, 0, key, this.keys, i);
  }

  /** Example at position i (0 ≤ i < n). */
  at(i: number): number {
    if (!(i >= 0 && i < this.n)) throw new RangeError(`position ${i} of ${this.n}`);
    let x = i;
    do x = this.pass(x);
    while (x >= this.n);
    return x;
  }

  private pass(x: number): number {
    const { keys, lowMask, highMask } = this;
    let low = x & lowMask;
    let high = x >>> this.lowBits;
    for (let round = 0; round < FEISTEL_ROUNDS; round += 2) {
      high ^= mix(low ^ keys[round]!) & highMask;
      low ^= mix(high ^ keys[round + 1]!) & lowMask;
    }
    return (high << this.lowBits) | low;
  }
}

/** Finaliser of MurmurHash3, its upper half folded down: every output bit depends on every input bit. */
function mix(x: number): number {
  x = Math.imul(x ^ (x >>> 16), 0x85ebca6b);
  x = Math.imul(x ^ (x >>> 13), 0xc2b2ae35);
  return x ^ (x >>> 16);
}

/** Example at position i of epoch `epoch`: a permutation of 0 .. n−1 (n < 2^31). For many of one epoch use `fillPermutation`. */
export function permutedIndex(seed: number, epoch: number, n: number, i: number): number {
  return new Permutation(seed, epoch, n).at(i);
}

/** Examples at positions from, from + 1, … of an epoch, as many as `out` holds: 60,000 take about 3 ms. */
export function fillPermutation(seed: number, epoch: number, n: number, out: Int32Array, from = 0): void {
  const permutation = new Permutation(seed, epoch, n);
  for (let i = 0; i < out.length; i++) out[i] = permutation.at(from + i);
}

export interface ScheduleOptions extends RoundGridOptions {
  /** Epochs or rounds; rounds may end inside an epoch. */
  readonly length: RunSpec['length'];
}

export interface Schedule {
  /** Rounds of an epoch that begins after the first, smaller rounds, where the run has such. */
  readonly roundsPerEpoch: number;
  readonly totalRounds: number;
  /** Round k, from 0. @throws RangeError outside of the run */
  round(k: number): GridRound;
  /** Where round k would be, also behind the end of the run: what comes after so many rounds. */
  place(k: number): Pick<GridRound, 'epoch' | 'roundInEpoch'>;
}

/**
 * The rounds of a run. With globalBatch > examples an epoch is one ragged round.
 * @throws LearningError SCHEDULE_IMPOSSIBLE, naming the field
 */
export function createSchedule({ length, ...options }: ScheduleOptions): Schedule {
  const { examples, globalBatch } = options;
  requireWhole('dataset', 'examples', examples, Number.MAX_SAFE_INTEGER);
  requireWhole('globalBatch', 'examples per round', globalBatch, Number.MAX_SAFE_INTEGER);
  const grid = roundGrid(options);
  const { roundsPerEpoch } = grid;
  if (roundsPerEpoch === 0) {
    throw new LearningError(
      'SCHEDULE_IMPOSSIBLE',
      `the batch of ${globalBatch} is larger than the ${examples} examples of the split, and dropRemainder leaves the smaller one out: no round is left`,
      'globalBatch',
    );
  }
  const totalRounds = 'epochs' in length ? grid.roundsIn(length.epochs) : length.rounds;
  requireWhole('epochs' in length ? 'length.epochs' : 'length.rounds', 'rounds', totalRounds, LIMITS.rounds);
  return {
    roundsPerEpoch,
    totalRounds,
    place: grid.round,
    round(k) {
      if (!Number.isSafeInteger(k) || k < 0 || k >= totalRounds) throw new RangeError(`round ${k} of ${totalRounds}`);
      return grid.round(k);
    },
  };
}

function requireWhole(field: string, what: string, value: number, maximum: number): void {
  if (Number.isSafeInteger(value) && value >= 1 && value <= maximum) return;
  throw new LearningError('SCHEDULE_IMPOSSIBLE', `${value} ${what}: a whole number from 1 to ${maximum} is needed`, field);
}

/** Rows of replica `replica` among `count` rows of a round: balanced, possibly none. */
export function replicaRows(count: number, replicas: number, replica: number): Rows {
  return { from: Math.floor((replica * count) / replicas), to: Math.floor(((replica + 1) * count) / replicas) };
}

/** Rows cut into `accumulate` balanced micro-batches, in order; empty ones are left out. */
export function microBatches({ from, to }: Rows, accumulate: number): Rows[] {
  const batches: Rows[] = [];
  for (let i = 0; i < accumulate; i++) {
    const rows = replicaRows(to - from, accumulate, i);
    if (rows.to > rows.from) batches.push({ from: from + rows.from, to: from + rows.to });
  }
  return batches;
}
