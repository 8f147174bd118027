/**
 * Long work beside others: a server process holds the parts of many runs in one event loop, so no run may keep the loop for longer than
 * a slice. Between two slices sockets are read, heartbeats sent and timers fire.
 */
import type { Clock } from '@paceline/exchange';

/** The longest that one run keeps the event loop in one go, as far as the steps of its work are shorter. */
export const SLICE_MS = 8;

export interface Slicing {
  readonly clock: Pick<Clock, 'now' | 'after'>;
  /** `SLICE_MS`, unless somebody wants to see what comes between: with 0 every step is a slice. */
  readonly sliceMs?: number;
}

/**
 * Calls `next` until it returns false, as often in one go as a slice allows; the first calls come at once.
 * @param guard what a later slice throws goes to it, as nobody else hears of it
 */
export function callInSlices(next: () => boolean, { clock, sliceMs = SLICE_MS }: Slicing, guard: (act: () => void) => void): void {
  const sinceMs = clock.now();
  while (next()) {
    if (clock.now() - sinceMs < sliceMs) continue;
    clock.after(0, () => guard(() => callInSlices(next, { clock, sliceMs }, guard)));
    return;
  }
}

/**
 * Does the steps of `work`, as many in one go as a slice allows.
 * @param signal nobody waits for the work any more: the rest is not done, and what it would write to may be gone
 * @throws the reason of the signal
 */
export async function inSlices(work: Iterable<undefined>, { clock, sliceMs = SLICE_MS }: Slicing, signal: AbortSignal): Promise<void> {
  let sinceMs = clock.now();
  for (const _step of work) {
    if (clock.now() - sinceMs < sliceMs) continue;
    await new Promise<void>((resolve) => clock.after(0, resolve));
    signal.throwIfAborted();
    sinceMs = clock.now();
  }
}
