/**
 * Which row goes to which split. After each block of 100 consecutive rows the fractions are kept to the nearest row (by largest remainder), and a
 * permutation that (seed, block) decides says which rows of the block those are: the same on every machine, whatever the size of the source.
 */
import { hash } from 'node:crypto';
import { SPLITS, type SplitName } from '@paceline/spec';
import { IngestError } from './ingest-error.js';

export const BLOCK_ROWS = 100;

export type Fractions = Readonly<Partial<Record<SplitName, number>>>;

/** @throws IngestError OPTIONS_INVALID when the fractions are none or do not add up to 1 */
export function checkFractions(fractions: Fractions): void {
  const values = SPLITS.map((split) => fractions[split] ?? 0);
  if (values.some((value) => !Number.isFinite(value) || value < 0 || value > 1))
    throw new IngestError('OPTIONS_INVALID', 'A fraction of the split is not between 0 and 1.');
  const sum = values.reduce((a, b) => a + b, 0);
  if (Math.abs(sum - 1) > 1e-6) throw new IngestError('OPTIONS_INVALID', `The fractions of the split add up to ${sum}, not to 1.`);
  if ((fractions.train ?? 0) === 0) throw new IngestError('OPTIONS_INVALID', 'The split leaves nothing to the training.');
}

type Counts = Record<SplitName, number>;

/**
 * Rows of each split out of `rows`, by largest remainder; ties go to the earlier split.
 * @param owed rows that a split should have had before, below 0 where it had too many
 */
export function apportion(fractions: Fractions, rows: number, owed?: Readonly<Counts>): Counts {
  const shares = SPLITS.map((split) => {
    const exact = (fractions[split] ?? 0) * rows + (owed?.[split] ?? 0);
    const whole = Math.max(0, Math.floor(exact + 1e-9));
    return { split, whole, rest: exact - whole };
  });
  let left = rows - shares.reduce((sum, { whole }) => sum + whole, 0);
  const byRest = shares.toSorted((a, b) => b.rest - a.rest || SPLITS.indexOf(a.split) - SPLITS.indexOf(b.split));
  for (const share of byRest) if (left > 0 && (fractions[share.split] ?? 0) > 0) (share.whole++, left--);
  return Object.fromEntries(shares.map(({ split, whole }) => [split, whole])) as Counts;
}

/** The splits of rows, block by block. What a block of 100 rows has no whole row for is owed to the next: 0.1 % is one row in ten blocks. */
export class BlockSplits {
  private block = 0;
  private readonly owed: Counts = { train: 0, validation: 0, test: 0 };
  private readonly fractions: Fractions;

  constructor(
    fractions: Fractions,
    private readonly seed: number,
  ) {
    // What they lack to 1 would be owed to a split without end.
    const sum = SPLITS.reduce((total, split) => total + (fractions[split] ?? 0), 0);
    this.fractions =
      Math.abs(sum - 1) < 1e-12 ? fractions : Object.fromEntries(SPLITS.map((split) => [split, (fractions[split] ?? 0) / sum]));
  }

  /** The split of each row of the next block; `rows` is below 100 in the last block only. */
  next(rows: number): SplitName[] {
    const counts = apportion(this.fractions, rows, this.owed);
    const order = permutation(this.seed, this.block++, rows);
    const found = new Array<SplitName>(rows);
    let next = 0;
    for (const split of SPLITS) {
      for (let i = 0; i < counts[split]; i++) found[order[next++]!] = split;
      const owed = this.owed[split] + (this.fractions[split] ?? 0) * rows - counts[split];
      // The noise of the division by 100 would add up, and decide ties.
      this.owed[split] = Math.abs(owed) < 1e-9 ? 0 : owed;
    }
    return found;
  }
}

const WORDS_PER_DIGEST = 16;

/** Rows 0 … n - 1 sorted by a random word each, from SHA-512 over seed, block and counter. */
function permutation(seed: number, block: number, n: number): number[] {
  const words = new Uint32Array(n);
  for (let from = 0; from < n; from += WORDS_PER_DIGEST) {
    const digest = hash('sha512', `paceline split ${seed} ${block} ${from / WORDS_PER_DIGEST}`, 'buffer');
    for (let i = 0; i < WORDS_PER_DIGEST && from + i < n; i++) words[from + i] = digest.readUInt32LE(4 * i);
  }
  return Array.from({ length: n }, (_, i) => i).sort((a, b) => words[a]! - words[b]! || a - b);
}
