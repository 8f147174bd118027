/**
 * How far runs are, for those who watch them: one look at a run for all of its watchers in this process, at each change that this api has stored and once
 * a second, as another api may store one. A look is one small row. Rows behind it are read by whoever lacks them (live-run.ts).
 */
import { Injectable } from '@nestjs/common';
import { isOver, type RunStatus } from '@paceline/control-plane';
import { Database } from '../database/database.js';
import { isDatabaseOutage } from '../database/outage.js';
import { RunSignals } from './run-signals.js';

/** Rows that another api stored are seen within this time. */
const LOOK_EVERY_MS = 1_000;

export interface RunHead {
  /** Or is not there. */
  readonly isOver: boolean;
  readonly attempt: number;
  /** Numbers of the newest event and of the newest metric. */
  readonly eventSeq: number;
  readonly metricSeq: number;
}

type StoredHead = Omit<RunHead, 'isOver'> & { readonly status: RunStatus };
const READ = `
  SELECT "status"::text AS "status", "attempt", "lastEventSeq" AS "eventSeq", "lastMetricSeq" AS "metricSeq" FROM "Run" WHERE "id" = $1::uuid`;

export interface HeadWatch {
  /**
   * The newest head that this watcher has not had; waits for the next one where it has had all. Undefined when the signal aborts. While PostgreSQL is away
   * there is none: watchers stay, and miss nothing. @throws what went wrong otherwise
   */
  next(signal: AbortSignal): Promise<RunHead | undefined>;
  close(): void;
}

@Injectable()
export class RunHeads {
  private readonly looks = new Map<string, Look>();

  constructor(
    private readonly database: Database,
    private readonly signals: RunSignals,
  ) {}

  watch(runId: string): HeadWatch {
    let look = this.looks.get(runId);
    if (!look) {
      const begun = new Look(
        () => this.read(runId),
        this.signals.watch(runId),
        () => this.looks.get(runId) === begun && this.looks.delete(runId),
      );
      this.looks.set(runId, begun);
      look = begun;
    } else this.signals.changed(runId); // what it has seen may be older than the question
    return look.join();
  }

  /** Undefined while PostgreSQL is away. */
  private async read(id: string): Promise<RunHead | undefined> {
    try {
      const [run] = await this.database.rows<StoredHead>('run-head', READ, [id]);
      return run ? { ...run, isOver: isOver(run.status) } : { isOver: true, attempt: 0, eventSeq: 0, metricSeq: 0 };
    } catch (error) {
      if (isDatabaseOutage(error)) return undefined;
      throw error;
    }
  }
}

/** Looks at one run, as long as anybody watches it. */
class Look {
  private watchers = 0;
  private readonly waiting = new Set<() => void>();
  private newest: { readonly number: number; readonly head: RunHead } | undefined;
  private failure: { readonly error: unknown } | undefined;
  private readonly ending = new AbortController();

  constructor(
    private readonly read: () => Promise<RunHead | undefined>,
    private readonly changes: ReturnType<RunSignals['watch']>,
    private readonly ended: () => void,
  ) {
    void this.go();
  }

  join(): HeadWatch {
    this.watchers++;
    let had = this.newest?.number ?? 0;
    let isOpen = true;
    return {
      next: async (signal) => {
        for (;;) {
          if (signal.aborted) return undefined;
          if (this.failure) throw this.failure.error;
          if (this.newest && this.newest.number > had) {
            had = this.newest.number;
            return this.newest.head;
          }
          await this.news(signal);
        }
      },
      close: () => {
        if (!isOpen) return;
        isOpen = false;
        if (--this.watchers === 0) this.end();
      },
    };
  }

  private news(signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const wake = (): void => {
        this.waiting.delete(wake);
        signal.removeEventListener('abort', wake);
        resolve();
      };
      this.waiting.add(wake);
      signal.addEventListener('abort', wake);
    });
  }

  private async go(): Promise<void> {
    const { signal } = this.ending;
    try {
      while (!signal.aborted) {
        const head = await this.read();
        if (head) this.newest = { number: (this.newest?.number ?? 0) + 1, head };
        if (head) this.wakeAll();
        await this.changes.wait(LOOK_EVERY_MS, signal);
      }
    } catch (error) {
      this.failure = { error };
      this.end();
      this.wakeAll();
    }
  }

  /** Whoever comes now begins another. */
  private end(): void {
    this.ending.abort();
    this.changes.close();
    this.ended();
  }

  private wakeAll(): void {
    for (const wake of [...this.waiting]) wake();
  }
}
