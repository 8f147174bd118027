/** How the compute threads of a seat wait for each other: counters in shared memory that only rise, and wrap around at 2³²; so two of them are compared by the sign of their difference. */

/** Looks before a thread goes to sleep: waking it up takes longer than most waits. */
const SPINS = 1_000;
const LOOK_EVERY_MS = 250;

export const reached = (value: number, target: number): boolean => ((value - target) | 0) >= 0;

export interface Wait {
  readonly cells: Int32Array;
  readonly cell: number;
  readonly target: number;
  /** So long while nothing moves. */
  readonly deadlineMs: number;
  /** A count that moves whenever one of the threads does. */
  readonly progress: () => number;
}

/** @returns `at-once`, `waited`, or `stalled` after the deadline */
export function waitFor({ cells, cell, target, deadlineMs, progress }: Wait): 'at-once' | 'waited' | 'stalled' {
  for (let i = 0; i < SPINS; i++) if (reached(Atomics.load(cells, cell), target)) return 'at-once';
  // Counted in looks: the time for which the process was stopped is no wait.
  let [waitedMs, moved] = [0, progress()];
  for (;;) {
    const value = Atomics.load(cells, cell);
    if (reached(value, target)) return 'waited';
    if (waitedMs >= deadlineMs) return 'stalled';
    const lookMs = Math.min(deadlineMs - waitedMs, LOOK_EVERY_MS);
    const isOver = Atomics.wait(cells, cell, value, lookMs) === 'timed-out';
    const now = progress();
    waitedMs = now === moved && isOver ? waitedMs + lookMs : now === moved ? waitedMs : 0;
    moved = now;
  }
}
