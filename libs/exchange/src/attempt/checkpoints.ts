/**
 * Checkpoints as the coordinator sees them: when one is due, who has written its part, and what came of it.
 *
 *   COMMIT(k) with `checkpoint` → every shard snapshots generation k+1 and writes its part in the background → `part-written` from all
 *   → the manifest is published → `published`
 *
 * One checkpoint is under way at a time. A cadence that falls due meanwhile waits; a pause and a better generation do not: they supersede what is under way,
 * and the shards stop writing that. When that has happened three times in a row, the next better one waits, or a run that improves faster than it
 * can be written would never have a checkpoint. A checkpoint that fails, or is not written within its deadline, is an event and nothing more: training
 * goes on, and the checkpoint before it stays the newest.
 */
import type { CheckpointPart } from '@paceline/protocol';
import type { LedgerState } from './ledger-state.js';

export type CheckpointReason = 'cadence' | 'best' | 'pause' | 'final' | 'shutdown';

/** What belongs to the generation of a checkpoint; later rounds change it. */
export interface CheckpointContent {
  /** Mean training loss since the checkpoint before; null where there is none. */
  readonly loss: number | null;
  readonly ledger: LedgerState;
  /** What validations have decided (validations.ts), where the run has any. */
  readonly course?: string | undefined;
  /** Whether it is the best generation of all that were validated; it is kept until there is a better one. */
  readonly isBest?: boolean | undefined;
}

export interface CompletedCheckpoint extends CheckpointContent {
  /** Committed rounds in it. */
  readonly generation: number;
  readonly reason: CheckpointReason;
  /** One per server, by index. */
  readonly files: readonly CheckpointPart[];
  /** Replicas of which it lacks what the codec has kept; undefined where checkpoints do not have that. */
  readonly missing: ReadonlySet<number> | undefined;
}

export interface CheckpointCadence {
  /** 0 is never. */
  readonly everyRounds: number;
  /** 0 is never. */
  readonly everyMs: number;
  /** A checkpoint that is not published after this long has failed. */
  readonly deadlineMs: number;
}

interface UnderWay {
  readonly generation: number;
  readonly reason: CheckpointReason;
  readonly content: CheckpointContent;
  readonly sinceMs: number;
  readonly files: Map<number, CheckpointPart>;
  readonly missing: Set<number>;
  /** A part has come that has no residuals. */
  lacksAll: boolean;
}

const MOST_SUPERSEDED = 3;

export class CheckpointTracker {
  private underWay: UnderWay | undefined;
  /** In a row. */
  private superseded = 0;
  private lastMs: number;
  private lastAttempted: number;
  /** Generation of the newest checkpoint that is known to be complete: where a new attempt would begin. */
  newest: number;

  constructor(
    private readonly servers: number,
    private readonly cadence: CheckpointCadence,
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

  get reason(): CheckpointReason | undefined {
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

  /** Whether the cadence wants a checkpoint of `generation`. */
  isDue(generation: number): boolean {
    if (this.underWay) return false;
    const { everyRounds, everyMs } = this.cadence;
    return (everyRounds > 0 && generation - this.lastAttempted >= everyRounds) || (everyMs > 0 && this.now() - this.lastMs >= everyMs);
  }

  /** A checkpoint begins; one that was under way is superseded. */
  begin(generation: number, reason: CheckpointReason, content: CheckpointContent): void {
    this.superseded = this.underWay ? this.superseded + 1 : 0;
    this.underWay = { generation, reason, content, sinceMs: this.now(), files: new Map(), missing: new Set(), lacksAll: false };
    this.lastAttempted = generation;
    this.lastMs = this.now();
  }

  /** Returns the checkpoint when the last part of it has come. */
  written(server: number, generation: number, file: CheckpointPart, missing?: readonly number[]): CompletedCheckpoint | undefined {
    const checkpoint = this.underWay;
    if (!checkpoint || checkpoint.generation !== generation || checkpoint.files.has(server)) return undefined;
    checkpoint.files.set(server, file);
    for (const replica of missing ?? []) checkpoint.missing.add(replica);
    checkpoint.lacksAll ||= missing === undefined;
    if (checkpoint.files.size < this.servers) return undefined;
    const files = Array.from({ length: this.servers }, (_, index) => checkpoint.files.get(index)!);
    return {
      generation,
      reason: checkpoint.reason,
      ...checkpoint.content,
      files,
      missing: checkpoint.lacksAll ? undefined : checkpoint.missing,
    };
  }

  /** It is over, well or not. False when it is none that is under way (superseded, or past its deadline). */
  settle(generation: number, isPublished: boolean): boolean {
    if (this.underWay?.generation !== generation) return false;
    this.underWay = undefined;
    if (isPublished) this.newest = generation;
    return true;
  }

  /** The checkpoint that has run past its deadline, in words, or undefined. */
  late(): { generation: number; why: string } | undefined {
    const checkpoint = this.underWay;
    if (!checkpoint || this.now() - checkpoint.sinceMs <= this.cadence.deadlineMs) return undefined;
    const missing = Array.from({ length: this.servers }, (_, index) => index).filter((index) => !checkpoint.files.has(index));
    const what = missing.length > 0 ? `parameter server ${missing.join(', ')} to write its part` : 'its manifest to be stored';
    return { generation: checkpoint.generation, why: `waited ${Math.round(this.cadence.deadlineMs / 1000)} s for ${what}` };
  }
}
