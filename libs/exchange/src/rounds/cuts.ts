/**
 * Checkpoints as the coordinator sees them: when one is due, who has written its part, and what came of it.
 *
 *   COMMIT(k) with `cut` → every shard snapshots generation k+1 and writes its part in the background → `cut-written` from all
 *   → the manifest is published → `published`
 *
 * One cut is under way at a time. A cadence that falls due meanwhile waits; a pause and a better generation do not: they supersede what is under way,
 * and the shards stop writing that. When that has happened three times in a row, the next better one waits, or a run that improves faster than it
 * can be written would never have a checkpoint. A cut that fails, or is not written within its deadline, is an event and nothing more: training
 * goes on, and the checkpoint before it stays the newest.
 */
import type { CutFile } from '@paceline/protocol';
import type { LedgerState } from './round-ledger.js';

export type CutReason = 'cadence' | 'best' | 'pause' | 'final' | 'shutdown';

/** What belongs to the generation that is cut; later rounds change it. */
export interface CutContent {
  /** Mean training loss since the cut before; null where there is none. */
  readonly loss: number | null;
  readonly ledger: LedgerState;
  /** What validations have decided (validations.ts), where the run has any. */
  readonly course?: string | undefined;
  /** Of all generations that were validated: kept until there is a better one. */
  readonly isBest?: boolean | undefined;
}

export interface CompletedCut extends CutContent {
  /** Committed rounds in it. */
  readonly generation: number;
  readonly reason: CutReason;
  /** One per server, by index. */
  readonly files: readonly CutFile[];
}

export interface CutCadence {
  /** 0 is never. */
  readonly everyRounds: number;
  /** 0 is never. */
  readonly everyMs: number;
  /** A cut that is not published after this long has failed. */
  readonly deadlineMs: number;
}

interface UnderWay {
  readonly generation: number;
  readonly reason: CutReason;
  readonly content: CutContent;
  readonly sinceMs: number;
  readonly files: Map<number, CutFile>;
}

const MOST_SUPERSEDED = 3;

export class Cuts {
  private underWay: UnderWay | undefined;
  /** In a row. */
  private superseded = 0;
  private lastMs: number;
  private lastAttempted: number;
  /** Generation of the newest checkpoint that is known to be complete: where a new attempt would begin. */
  newest: number;

  constructor(
    private readonly servers: number,
    private readonly cadence: CutCadence,
    /** Where the attempt began. */
    first: number,
    private readonly now: () => number,
  ) {
    this.newest = first;
    this.lastAttempted = first;
    this.lastMs = now();
  }

  get generation(): number | undefined {
    return this.underWay?.generation;
  }

  get reason(): CutReason | undefined {
    return this.underWay?.reason;
  }

  /** The best generation is being written: nothing but a better one takes its place. */
  get isBestUnderWay(): boolean {
    return this.underWay?.content.isBest ?? false;
  }

  /** What is under way has to be settled before another one may begin. */
  get isCrowded(): boolean {
    return this.underWay !== undefined && this.superseded >= MOST_SUPERSEDED;
  }

  /** Whether the cadence wants a cut of `generation`. */
  isDue(generation: number): boolean {
    if (this.underWay) return false;
    const { everyRounds, everyMs } = this.cadence;
    return (everyRounds > 0 && generation - this.lastAttempted >= everyRounds) || (everyMs > 0 && this.now() - this.lastMs >= everyMs);
  }

  /** A cut begins; one that was under way is superseded. */
  begin(generation: number, reason: CutReason, content: CutContent): void {
    this.superseded = this.underWay ? this.superseded + 1 : 0;
    this.underWay = { generation, reason, content, sinceMs: this.now(), files: new Map() };
    this.lastAttempted = generation;
    this.lastMs = this.now();
  }

  /** Returns the cut when the last part of it has come. */
  written(server: number, generation: number, file: CutFile): CompletedCut | undefined {
    const cut = this.underWay;
    if (!cut || cut.generation !== generation || cut.files.has(server)) return undefined;
    cut.files.set(server, file);
    if (cut.files.size < this.servers) return undefined;
    const files = Array.from({ length: this.servers }, (_, index) => cut.files.get(index)!);
    return { generation, reason: cut.reason, ...cut.content, files };
  }

  /** It is over, well or not. False when it is none that is under way (superseded, or past its deadline). */
  settle(generation: number, isPublished: boolean): boolean {
    if (this.underWay?.generation !== generation) return false;
    this.underWay = undefined;
    if (isPublished) this.newest = generation;
    return true;
  }

  /** The cut that has run past its deadline, in words, or undefined. */
  late(): { generation: number; why: string } | undefined {
    const cut = this.underWay;
    if (!cut || this.now() - cut.sinceMs <= this.cadence.deadlineMs) return undefined;
    const missing = Array.from({ length: this.servers }, (_, index) => index).filter((index) => !cut.files.has(index));
    const what = missing.length > 0 ? `parameter server ${missing.join(', ')} to write its part` : 'its manifest to be stored';
    return { generation: cut.generation, why: `waited ${Math.round(this.cadence.deadlineMs / 1000)} s for ${what}` };
  }
}
