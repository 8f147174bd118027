/**
 * Wakes up whoever waits for news of a run in this process. A signal carries nothing: the reader looks into PostgreSQL, so a
 * signal that is missed (stored by another api) costs time, never data.
 */
import { Injectable } from '@nestjs/common';

/** One reader's ear. A change that comes while it reads is not missed: the next wait ends at once. */
export interface Watch {
  /** Resolves at a change since the last wait, after the deadline, or when the signal aborts. */
  wait(deadlineMs: number, signal: AbortSignal): Promise<void>;
  close(): void;
}

@Injectable()
export class RunSignals {
  private readonly watching = new Map<string, Set<() => void>>();

  changed(runId: string): void {
    for (const notify of this.watching.get(runId) ?? []) notify();
  }

  watch(runId: string): Watch {
    let hasChanged = false;
    let wake: (() => void) | undefined;
    const notify = (): void => {
      hasChanged = true;
      wake?.();
    };
    const set = this.watching.get(runId) ?? new Set();
    this.watching.set(runId, set.add(notify));
    return {
      async wait(deadlineMs, signal) {
        if (!hasChanged && !signal.aborted) {
          await new Promise<void>((resolve) => {
            const timer = setTimeout(resolve, deadlineMs);
            wake = () => {
              clearTimeout(timer);
              resolve();
            };
            signal.addEventListener('abort', wake);
          });
          if (wake) signal.removeEventListener('abort', wake);
          wake = undefined;
        }
        hasChanged = false;
      },
      close: () => {
        set.delete(notify);
        if (set.size === 0 && this.watching.get(runId) === set) this.watching.delete(runId);
      },
    };
  }

  /** For tests: how many readers listen now. */
  get watchCount(): number {
    return [...this.watching.values()].reduce((sum, set) => sum + set.size, 0);
  }
}
