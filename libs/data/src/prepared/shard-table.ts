/** The shards of a split by the number of a row, and what is in memory of them. */
import type { DatasetManifest, DatasetShard } from '@paceline/spec';
import { DatasetError } from '../dataset-error.js';
import { asNamed, residentBytes, residentShard, type Residency, type ResidentShard } from './resident-shard.js';
import type { MemoryBudget } from './memory-budget.js';
import { startOf } from './shard-columns.js';
import { shardLayout, type ShardLayout } from './shard-layout.js';
import type { ShardSource } from './shard-source.js';

/** Shards that are fetched at the same time. */
const LOADS_AT_ONCE = 4;

export class ShardTable {
  readonly rows: number;
  /** Row at which each shard begins, and the number of all rows. */
  readonly starts: Float64Array;
  readonly resident: (ResidentShard | undefined)[];
  private readonly loading: (Promise<void> | undefined)[];
  private readonly layouts: (Promise<ShardLayout> | undefined)[];
  private readonly isLeftOut: boolean[];
  private readonly malformed: (Error | undefined)[] = [];
  /** Fetches that hold a part of the budget which they will give back. */
  private readonly fetching = new Set<Promise<void>>();
  private heldBytes = 0;
  private loads = 0;
  private readonly waiting: (() => void)[] = [];
  private isClosed = false;

  constructor(
    private readonly manifest: DatasetManifest,
    private readonly vocabularies: ReadonlyMap<string, readonly string[]>,
    readonly shards: readonly DatasetShard[],
    readonly source: ShardSource,
    private readonly residency: Residency,
    private readonly budget: MemoryBudget,
  ) {
    this.starts = new Float64Array(shards.length + 1);
    for (const [i, { rows }] of shards.entries()) this.starts[i + 1] = this.starts[i]! + rows;
    this.rows = this.starts[shards.length]!;
    this.resident = shards.map(() => undefined);
    this.loading = shards.map(() => undefined);
    this.layouts = shards.map(() => undefined);
    this.isLeftOut = shards.map(() => false);
  }

  /** The shard of a row that is there. Shards are of nearly the same length, so a guess is right most of the time. */
  shardOf(row: number): number {
    const { starts } = this;
    const last = starts.length - 2;
    const guess = Math.min(last, Math.floor(row / starts[1]!));
    if (starts[guess]! <= row && row < starts[guess + 1]!) return guess;
    let low = 0;
    let high = last;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (starts[middle]! <= row) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  /** Has the shards in memory as far as the budget goes. Resolves when each is there or is left out. @throws DatasetError */
  async load(wanted: Iterable<number>): Promise<void> {
    const waits: Promise<void>[] = [];
    for (const i of wanted) {
      if (this.resident[i] || this.isLeftOut[i]) continue;
      this.loading[i] ??= this.loadOne(i).finally(() => (this.loading[i] = undefined));
      waits.push(this.loading[i]);
    }
    // All settle before one failure is told, so that nothing goes on behind the back of who asked.
    const settled = await Promise.allSettled(waits);
    const failed = settled.find((each) => each.status === 'rejected');
    if (failed) throw failed.reason;
  }

  /**
   * The same without waiting for it. What comes and is not what the manifest says is told by the next call; what did not come is asked for again.
   * @throws DatasetError
   */
  begin(wanted: ReadonlySet<number>): void {
    for (const i of wanted) if (this.malformed[i]) throw this.malformed[i];
    for (const i of wanted) {
      if (this.resident[i] || this.isLeftOut[i] || this.loading[i]) continue;
      this.load([i]).catch((error: unknown) => {
        if (error instanceof DatasetError && ['DATASET_AWAY', 'DATASET_UNREADABLE'].includes(error.code)) return;
        this.malformed[i] = error as Error;
      });
    }
  }

  /** Where the columns of a shard lie that is read by position. @throws DatasetError */
  layout(i: number): Promise<ShardLayout> {
    const shard = this.shards[i]!;
    this.layouts[i] ??= asNamed(shard, async () => shardLayout(this.manifest, shard, await startOf(this.source, shard))).catch(
      (error: unknown) => {
        this.layouts[i] = undefined;
        throw error;
      },
    );
    return this.layouts[i];
  }

  close(): void {
    this.isClosed = true;
    this.resident.fill(undefined);
    this.budget.giveBack(this.heldBytes);
    this.heldBytes = 0;
  }

  private async loadOne(i: number): Promise<void> {
    if (this.loads >= LOADS_AT_ONCE) await new Promise<void>((resolve) => this.waiting.push(resolve));
    else this.loads++;
    try {
      await this.fetchOne(i);
    } finally {
      const next = this.waiting.shift();
      if (next) next();
      else this.loads--;
    }
  }

  /**
   * The budget covers what is kept and, while it is made, the file itself. Where it is short, what other fetches give back is waited for;
   * a shard that does not fit then is left out for good and read by position.
   */
  private async fetchOne(i: number): Promise<void> {
    const taken = residentBytes(this.residency, this.shards[i]!) + this.shards[i]!.bytes;
    while (this.isClosed || !this.budget.take(taken)) {
      if (this.isClosed || this.fetching.size === 0) {
        this.isLeftOut[i] = true;
        return;
      }
      await Promise.race(this.fetching);
    }
    const fetched = this.fetchWithin(i, taken);
    const settled = fetched
      .then(
        () => undefined,
        () => undefined, // told to who asked for the shard, below
      )
      .finally(() => this.fetching.delete(settled));
    this.fetching.add(settled);
    await fetched;
  }

  private async fetchWithin(i: number, taken: number): Promise<void> {
    let unused = taken;
    try {
      const file = await this.source.whole(this.shards[i]!);
      const made = residentShard(this.manifest, this.vocabularies, this.residency, this.shards[i]!, file);
      if (this.isClosed) return;
      this.resident[i] = made;
      this.heldBytes += made.bytes;
      unused -= made.bytes;
    } finally {
      this.budget.giveBack(unused);
    }
  }
}
