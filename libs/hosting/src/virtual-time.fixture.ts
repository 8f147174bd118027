/** A clock that a test moves; what its timers begin is done before the next one acts. */
import type { Clock } from '@paceline/exchange';

export function virtualTime(): { clock: Clock; run(forMs: number): Promise<void> } {
  let nowMs = 0;
  const timers = new Set<{ atMs: number; act: () => void; everyMs?: number }>();
  const add = (timer: { atMs: number; act: () => void; everyMs?: number }) => {
    timers.add(timer);
    return () => void timers.delete(timer);
  };
  const clock: Clock = {
    now: () => nowMs,
    after: (ms, act) => add({ atMs: nowMs + ms, act }),
    every: (ms, act) => add({ atMs: nowMs + ms, act, everyMs: ms }),
    soon: (act) => queueMicrotask(act),
  };
  const run = async (forMs: number): Promise<void> => {
    for (const untilMs = nowMs + forMs; ;) {
      await new Promise((resolve) => setImmediate(resolve));
      const next = [...timers].sort((a, b) => a.atMs - b.atMs)[0];
      if (!next || next.atMs > untilMs) return;
      nowMs = next.atMs;
      if (next.everyMs === undefined) timers.delete(next);
      else next.atMs += next.everyMs;
      next.act();
    }
  };
  return { clock, run };
}
