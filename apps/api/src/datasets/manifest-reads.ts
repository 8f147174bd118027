/**
 * Turns decide whose manifest is in memory when: each has up to 32 MiB as text and several times as much as objects. A team reads one at a time, so that others
 * wait for one read of it at most.
 */
import { getHeapStatistics } from 'node:v8';
import { Fault } from '../fault.js';
import { waitingTurns, type TurnLimits, type Turns } from '../turns.js';

const OF_OTHERS = 'Schemas and rows of other datasets are being read.';
const HELD: TurnLimits = { atOnce: 2, atOnceOfTeam: 1, waiting: 1_000, waitingOfTeam: 250, waitMs: 30_000 };
const LARGE: TurnLimits = { atOnce: 1, waiting: 100, waitingOfTeam: 10, waitMs: 60_000 };
const PROCESSES: TurnLimits = { atOnce: 2, atOnceOfTeam: 1, waiting: 100, waitingOfTeam: 25, waitMs: 120_000 };
/** What one byte of a manifest takes as text and as objects is 5.4 at worst; the rest is for what is made of it. */
const HEAP_OF_BYTE = 8;
/** The part of the heap of the api that everything else has. */
const OTHER_HEAP_BYTES = 96 << 20;

export class ManifestReads {
  private readonly ofHeld: Turns;
  private readonly ofRows: Turns;
  private readonly ofLarge: Turns;
  private readonly ofProcesses: Turns;

  constructor(
    limits: { readonly held?: TurnLimits; readonly processes?: TurnLimits } = {},
    private readonly heapBytes = getHeapStatistics().heap_size_limit,
  ) {
    this.ofHeld = waitingTurns(limits.held ?? HELD, OF_OTHERS);
    this.ofRows = waitingTurns(limits.held ?? HELD, OF_OTHERS);
    this.ofLarge = waitingTurns(LARGE, OF_OTHERS);
    this.ofProcesses = waitingTurns(limits.processes ?? PROCESSES, OF_OTHERS);
  }

  /** A small manifest is in memory during the work. @throws Fault TOO_BUSY */
  held<T>(teamId: string, work: () => Promise<T>): Promise<T> {
    return this.ofHeld.run(teamId, work);
  }

  /** Rows are, and no manifest. @throws Fault TOO_BUSY */
  rows<T>(teamId: string, work: () => T | Promise<T>): Promise<T> {
    return this.ofRows.run(teamId, async () => work());
  }

  /** A large one is. @throws Fault TOO_BUSY; TOO_LARGE where the heap of the api has no room for it */
  async large<T>(teamId: string, bytes: number, work: () => Promise<T>): Promise<T> {
    const most = Math.floor((this.heapBytes - OTHER_HEAP_BYTES) / HEAP_OF_BYTE);
    if (bytes > most)
      throw new Fault(
        'TOO_LARGE',
        `The manifest of the dataset has ${bytes} bytes, and this api has memory for ${Math.max(0, most)}: import fewer columns, or categories with fewer different values; or its administrator gives it a larger heap (node --max-old-space-size).`,
      );
    return this.ofLarge.run(teamId, work);
  }

  /** A process holds one. @throws Fault TOO_BUSY */
  inProcess<T>(teamId: string, work: () => Promise<T>): Promise<T> {
    return this.ofProcesses.run(teamId, work);
  }
}
