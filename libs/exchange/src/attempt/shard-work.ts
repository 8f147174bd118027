/**
 * Work on all chunks of a shard, a chunk at a time: a server holds shards of many runs in one event loop, and an update of the largest takes half a
 * second. What comes meanwhile and may wait does so in one line; what needs the work to be done calls `finish` first. So all is done in the order
 * in which it came, and nothing sees half of it.
 *
 *   begin ── steps, as the slices allow ──> done ── the line goes on, until something in it begins again
 *               │                             ↑
 *               ├── finish: the rest now, and the line
 *               └── cancel: neither is done, and its regions are let go
 */
import { releaseRegions, type Region } from './regions.js';

/** Calls `next` until it returns false, and leaves the event loop to others now and then; the first calls come at once. */
export type Slices = (next: () => boolean) => void;

const inOneGo: Slices = (next) => {
  while (next());
};

interface Work {
  readonly steps: Iterator<void>;
  readonly done: () => void;
  readonly regions: readonly Region[];
}

interface Waiting {
  readonly act: () => void;
  readonly regions: readonly Region[];
}

export class ShardWork {
  private present: Work | undefined;
  private isStepping = false;
  private readonly line: Waiting[] = [];
  private isTaking = false;

  constructor(private readonly slices: Slices = inOneGo) {}

  get isUnderWay(): boolean {
    return this.present !== undefined;
  }

  /**
   * @param done called when all steps are done, in the same turn as the last
   * @param regions let go after that, or when the work is cancelled
   */
  begin(steps: Iterator<void>, done: () => void, regions: readonly Region[] = []): void {
    if (this.present) throw new Error('a shard has work under way already');
    const work = { steps, done, regions };
    this.present = work;
    this.slices(() => this.present === work && this.next(work));
  }

  /**
   * Acts now, or when everything that came before is done.
   * @param regions let go when the work is cancelled first
   */
  inTurn(act: () => void, regions: readonly Region[] = []): void {
    this.line.push({ act, regions });
    this.takeLine();
  }

  /** Also what waits in line. A step that calls it goes on as it would without. */
  finish(): void {
    while (this.present && !this.isStepping) this.next(this.present);
  }

  cancel(): void {
    if (this.present) releaseRegions(this.present.regions);
    this.present = undefined;
    for (const { regions } of this.line.splice(0)) releaseRegions(regions);
  }

  /** False when the work is over. */
  private next(work: Work): boolean {
    this.isStepping = true;
    try {
      if (!work.steps.next().done) return true;
    } finally {
      this.isStepping = false;
    }
    if (this.present !== work) return false; // cancelled by its last step
    this.present = undefined;
    work.done();
    releaseRegions(work.regions);
    this.takeLine();
    return false;
  }

  private takeLine(): void {
    if (this.isTaking) return; // by a call that goes on with the line
    this.isTaking = true;
    try {
      while (!this.present) {
        const next = this.line.shift();
        if (!next) return;
        next.act();
      }
    } finally {
      this.isTaking = false;
    }
  }
}
